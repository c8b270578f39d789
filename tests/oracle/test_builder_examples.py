"""The builders' rules, worked by hand on batches small enough to see through."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from oracle.builders.base import BaseMetadata, base_metadata
from oracle.builders.batch import BuilderConfig, BuilderStep, StepRow
from oracle.builders.gdn import GDNMetadata, gdn_metadata
from oracle.builders.mamba2 import PositionChunks, position_chunks
from oracle.chunks import ConvPrograms
from oracle.variants import Variants
from tests.oracle.worked import case, refused

INT64: Final = "int64"


def config(mode: str = "none", num_spec: int = 0, **changes: Any) -> BuilderConfig:
    usual = BuilderConfig(mode, 4, num_spec, num_spec, 8, None, False, 16)
    return replace(usual, **changes)


def full(mode: str = "none", num_spec: int = 0, **changes: Any) -> BuilderConfig:
    return config(mode, num_spec, full_cudagraphs=True, **changes)


def row(query_len: int, computed: int = 0, blocks: Sequence[int] = (5, 6, 7), **given: Any) -> StepRow:
    return StepRow(query_len, computed + query_len, tuple(blocks), **given)


def padding(blocks: Sequence[int] = (9, 9, 9), **given: Any) -> StepRow:
    """A row whose blocks were not reset."""
    return StepRow(0, 0, tuple(blocks), **given)


def step(*rows: StepRow, **changes: Any) -> BuilderStep:
    """A step with the values of the rows, unless changed."""
    said = BuilderStep(
        rows=rows,
        num_actual_tokens=sum(request.query_len for request in rows),
        max_query_len=max((request.query_len for request in rows), default=0),
        has_prefilling=any(request.prefilling is not None for request in rows),
        has_upper_bound=any(request.seq_len_upper_bound is not None for request in rows),
        has_accepted=any(request.accepted is not None for request in rows),
        has_drafts=any(request.drafts is not None for request in rows),
    )
    return replace(said, **changes)


def split_of(metadata: BaseMetadata | GDNMetadata) -> tuple[int, int, int, int]:
    return (
        metadata.num_decodes,
        metadata.num_prefills,
        metadata.num_decode_tokens,
        metadata.num_prefill_tokens,
    )


def programs(conv: ConvPrograms | None) -> tuple[tuple[int, ...], ...]:
    assert conv is not None
    assert conv.batch_ptr[: len(conv.mlist)] == conv.mlist
    return conv.nums, conv.mlist, conv.offsetlist


@pytest.mark.parametrize(
    ("first", "second", "split"),
    [
        case(
            "decode-and-first-chunk-marked",
            row(1, 4, prefilling=False),
            row(1, 0, prefilling=True),
            (1, 1, 1, 1),
        ),
        case(
            "prompt-tail-with-state-marked",
            row(1, 4, prefilling=False),
            row(1, 7, prefilling=True),
            (1, 1, 1, 1),
        ),
        case("decodes-marked", row(1, 4, prefilling=False), row(1, 7, prefilling=False), (2, 0, 2, 0)),
        case(
            "first-chunk-by-its-bound",
            row(1, 4, seq_len_upper_bound=5),
            row(1, 0, seq_len_upper_bound=1),
            (1, 1, 1, 1),
        ),
        case(
            "optimistic-bound-of-a-decode",
            row(1, 4, seq_len_upper_bound=7),
            row(1, 1, seq_len_upper_bound=2),
            (2, 0, 2, 0),
        ),
        case(
            "mark-outweighs-bound",
            row(1, 4, prefilling=True, seq_len_upper_bound=5),
            row(1, 4, prefilling=False, seq_len_upper_bound=5),
            (0, 2, 0, 2),
        ),
        case(
            "bound-outweighs-mark",
            row(1, 0, prefilling=False, seq_len_upper_bound=1),
            row(1, 4, prefilling=False, seq_len_upper_bound=5),
            (0, 2, 0, 2),
        ),
        case("length-alone", row(1, 4), row(2, 4), (1, 1, 1, 2)),
    ],
)
def test_a_row_that_the_host_knows_to_be_in_its_prompt_is_a_prefill_however_short(
    first: StepRow, second: StepRow, split: tuple[int, ...]
) -> None:
    assert split_of(base_metadata(step(first, second), config())) == split
    assert split_of(gdn_metadata(step(first, second), config())) == split


@pytest.mark.parametrize(
    "said", [{"has_prefilling": False}, {"has_prefilling": False, "has_upper_bound": True}]
)
def test_values_that_a_step_does_not_give_count_for_nothing(said: dict[str, bool]) -> None:
    marked = step(row(1, 4, prefilling=True, seq_len_upper_bound=9), **said)
    bounded = step(row(1, 0, prefilling=False, seq_len_upper_bound=1), has_upper_bound=False)
    for given in (marked, bounded):
        assert split_of(base_metadata(given, config())) == (1, 0, 1, 0)
    prompt = step(row(3, 2, seq_len_upper_bound=4), has_upper_bound=False)
    assert base_metadata(prompt, config(chunk_size=4), "mamba2").cu_chunk_seqlen_p == (0, 2, 3)


def test_a_row_without_tokens_points_at_the_chunk_before_it() -> None:
    rows = [padding(), row(3), padding(), row(7, 5), padding()]
    # Positions 5 to 11 have the multiple 8 inside: three tokens, then four.
    expected = PositionChunks((0, 3, 6, 10), (1, 3, 3), (-1, 0, 0, 2, 2))
    assert position_chunks(rows, (0, 0, 0, 5, 0), 4) == expected


def test_mamba2_must_see_on_the_host_what_its_prefills_have_computed() -> None:
    unseen = step(row(3, 2), row(4), on_host=False)
    with refused("seq_lens_cpu_upper_bound"):
        base_metadata(unseen, config(chunk_size=4), "mamba2")
    bounded = step(row(3, 2, seq_len_upper_bound=5), row(4, seq_len_upper_bound=4), on_host=False)
    metadata = base_metadata(bounded, config(chunk_size=4), "mamba2")
    assert metadata.cu_chunk_seqlen_p == (0, 2, 3, 7)
    assert base_metadata(unseen, config()).cu_chunk_seqlen_p is None
    decodes = step(row(1, 2), on_host=False)
    assert base_metadata(decodes, config(chunk_size=4), "mamba2").chunk_size == 4


def contract_example(**third: Any) -> BuilderStep:
    """Contract 3.3: two rows with drafts, one without that accepted three tokens, a prompt, padding."""
    blocks = ((1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12), (13, 14, 15))
    said = {"prefilling": False, "accepted": 3, **third}
    return step(
        row(3, 9, blocks[0], prefilling=False, accepted=2, drafts=2),
        row(2, 9, blocks[1], prefilling=False, accepted=1, drafts=1),
        row(1, 9, blocks[2], drafts=-1, **said),
        row(5, 0, blocks[3], prefilling=True, accepted=1, drafts=-1),
        padding(blocks[4], prefilling=False, accepted=1, drafts=-1),
    )


def test_gdn_reads_a_row_without_drafts_at_its_accepted_offset_unlike_the_document() -> None:
    # The document makes the third row a prefill that reads column 0, and loses its count of 3: two
    # prefills of six tokens, (0,0),(1,0) as chunks. We keep its count, since `is_prefilling` says that the row is no prompt.
    metadata = gdn_metadata(contract_example(), config(num_spec=2))
    assert replace(metadata, conv=None) == GDNMetadata(
        num_prefills=1,
        num_prefill_tokens=5,
        num_decodes=0,
        num_decode_tokens=0,
        num_spec_decodes=3,
        num_spec_decode_tokens=6,
        num_actual_tokens=11,
        has_initial_state=(False, False),
        chunk_indices=((0, 0),),
        chunk_offsets=(0, 1, 1),
        spec_query_start_loc=(0, 3, 5, 6),
        non_spec_query_start_loc=(0, 5, 5),
        spec_state_indices_tensor=((1, 2, 3), (4, 5, 6), (7, 8, 9)),
        non_spec_state_indices_tensor=(10, 0),
        spec_sequence_masks=(True, True, True, False, False),
        spec_token_indx=(0, 1, 2, 3, 4, 5),
        non_spec_token_indx=(6, 7, 8, 9, 10),
        token_index_dtype=INT64,
        num_accepted_tokens=(2, 1, 3),
    )
    assert programs(metadata.conv) == ((1, 0), (0,), (0,))


# Fields that a step has no use for, and single tokens and drafts.


TABLES = {"state_indices_tensor_d"}
COLUMNS = {"block_idx_last_scheduled_token", "block_idx_last_computed_token"}
SPECULATION = {"query_start_loc_d", "num_accepted_tokens"}


@pytest.mark.parametrize(
    ("given", "configured", "owned"),
    [
        case("decodes", step(row(1, 4), row(1, 4)), full(max_num_seqs=2), TABLES),
        case("too-many", step(row(1, 4), row(1, 4)), full(max_num_seqs=1), set()),
        case("more-than-captured", step(row(1, 4), row(1, 4)), full(max_cudagraph_capture_size=1), set()),
        case("captured", step(row(1, 4), row(1, 4)), full(max_cudagraph_capture_size=2), TABLES),
        case(
            "captured-but-too-many",
            step(row(1, 4), row(1, 4)),
            full(max_num_seqs=1, max_cudagraph_capture_size=2),
            set(),
        ),
        case("eager", step(row(1, 4)), config(), set()),
        case("mixed", step(row(1, 4), row(5)), full(), set()),
        case("speculation", step(row(2, 4, accepted=1)), full(num_spec=1), TABLES | SPECULATION),
        case(
            "speculation-whose-starts-are-the-runner-s",
            step(row(2, 4, accepted=1)),
            full(num_spec=1, profile=Variants(starts_in_buffers=False)),
            TABLES | {"num_accepted_tokens"},
        ),
        case("mode-all", step(row(1, 4)), full("all"), TABLES | COLUMNS),
    ],
)
def test_fields_that_a_full_graph_reads_are_in_buffers(
    given: BuilderStep, configured: BuilderConfig, owned: set[str]
) -> None:
    assert base_metadata(given, configured).owned == owned


# What a profile of a release changes.


def test_a_release_may_skip_rows_by_the_null_block() -> None:
    decodes = step(row(1, 4), padding())
    assert base_metadata(decodes, config(profile=Variants(padding_block=0))).state_indices_tensor_d == (
        (5,),
        (0,),
    )


def test_a_release_may_take_the_last_token_of_a_prompt_for_a_decode() -> None:
    tails = Variants(tails_decode=True)
    rows = [row(1, 4, prefilling=False), row(1, 1, prefilling=True), row(1, 0, prefilling=True)]
    found = [
        split_of(base_metadata(step(*rows), config(chunk_size=4, profile=profile), "mamba2"))
        for profile in (Variants(), tails)
    ]
    assert found == [(1, 2, 1, 2), (2, 1, 2, 1)]
    longer = step(row(2, 4, prefilling=True, accepted=1))
    assert split_of(base_metadata(longer, config(num_spec=1, chunk_size=4, profile=tails), "mamba2"))[0] == 0


@pytest.mark.parametrize(("columns", "width"), [("tokens", 4), ("blocks", 5)])
def test_a_release_keeps_columns_for_drafts_or_for_their_blocks(columns: str, width: int) -> None:
    kept = full("all", 2, num_speculative_blocks=3, max_model_len=7, profile=Variants(kept_columns=columns))
    (table,) = base_metadata(step(row(1, 4, accepted=1)), kept).state_indices_tensor_d
    assert table == (5, 6, 7, -1, -1)[:width]


def test_a_release_of_gdn_may_count_padding_and_cut_chunks_of_prefills_alone() -> None:
    given = step(row(1, 4), row(70), padding(), num_actual_tokens=73)
    released = Variants(gdn_counts_padding=True, gdn_padded_tokens=False, gdn_chunks_of_decodes=False)
    ours, theirs = (gdn_metadata(given, config(profile=profile)) for profile in (Variants(), released))
    assert (split_of(ours), split_of(theirs)) == ((1, 1, 1, 72), (1, 2, 1, 70))
    assert (ours.chunk_offsets, theirs.chunk_offsets) == ((0, 1, 3, 3), (0, 2, 2))
    assert theirs.chunk_indices == ((0, 0), (0, 1))
    assert ours.has_initial_state == theirs.has_initial_state == (True, False, False)
    assert programs(ours.conv) == programs(theirs.conv)
    mixed = step(row(3, 9, drafts=2, accepted=1), row(5, accepted=1, drafts=-1))
    assert gdn_metadata(mixed, config(num_spec=2, profile=released)).chunk_offsets == (0, 1)


@pytest.mark.parametrize(
    ("drafts", "accepted", "spec"),
    [
        case("drafts", (2, -1), (1, 1), [True, False]),
        case("a-draft", (1, -1), (1, 1), [True, False]),
        case("no-drafts-but-accepted-some", (-1, -1), (1, 2), [False, True]),
        case("none-drafted-anything", (0, -1), (1, 1), None),
        case("none-drafted-beside-drafts", (2, 0), (1, 1), [True, True]),
    ],
)
def test_a_release_of_gdn_may_tell_by_the_drafts_alone(
    drafts: tuple[int, int], accepted: tuple[int, int], spec: list[bool] | None
) -> None:
    rows = [
        row(1 + max(count, 0), 9, prefilling=False, drafts=count, accepted=taken)
        for count, taken in zip(drafts, accepted, strict=True)
    ]
    plain = config(num_spec=2, profile=Variants(gdn_plain_decodes=True))
    masks = gdn_metadata(step(*rows), plain).spec_sequence_masks
    assert masks == (None if spec is None else tuple(spec))


# GDN without prompts.


@pytest.mark.parametrize(
    ("rows", "said", "spec"),
    [
        case("counts-are-not-said", [row(1, 4, prefilling=False, accepted=2)], {"has_accepted": False}, None),
        case("drafts-are-not-said", [row(2, 4, drafts=1, accepted=1)], {"has_drafts": False}, None),
        case("drafts-of-a-prompt-without-counts", [row(2, prefilling=True, drafts=1)], {}, None),
        case("two-tokens-without-drafts", [row(2, 4, prefilling=False, accepted=1, drafts=-1)], {}, None),
        case(
            "drafts-of-padding",
            [row(2, 4, drafts=1, accepted=1), padding(drafts=0, accepted=1)],
            {},
            (True, False),
        ),
    ],
)
def test_only_a_decode_whose_drafts_and_counts_are_said_is_speculative(
    rows: list[StepRow], said: dict[str, bool], spec: tuple[bool, ...] | None
) -> None:
    assert gdn_metadata(step(*rows, **said), config(num_spec=2)).spec_sequence_masks == spec
