"""The builders' rules, worked by hand on batches small enough to see through."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from oracle.builders.base import BaseMetadata, base_metadata, updated_block_table
from oracle.builders.batch import BuilderConfig, BuilderStep, StepRow, require_config
from oracle.builders.gdn import GDNMetadata, gdn_metadata, updated_gdn_metadata
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
    """What the rows say themselves, unless changed."""
    said = BuilderStep(
        rows=rows,
        num_actual_tokens=sum(one.query_len for one in rows),
        max_query_len=max((one.query_len for one in rows), default=0),
        has_prefilling=any(one.prefilling is not None for one in rows),
        has_upper_bound=any(one.seq_len_upper_bound is not None for one in rows),
        has_accepted=any(one.accepted is not None for one in rows),
        has_drafts=any(one.drafts is not None for one in rows),
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
    ("argument", "bad"),
    [
        case("steps-back", "query_start_loc_cpu[2]", step(row(2), row(-1), max_query_len=2)),
        case("empty-row-inside", "query_start_loc_cpu[2]", step(row(1, 4), padding(), row(5))),
        case(
            "bound-below-query",
            "seq_lens_cpu_upper_bound[1]",
            step(row(1, 4, seq_len_upper_bound=5), row(5, seq_len_upper_bound=4)),
        ),
        case("longest-query-understated", "max_query_len", step(row(1, 4), row(5), max_query_len=4)),
        case("tokens-understated", "num_actual_tokens", step(row(1, 4), row(5), num_actual_tokens=5)),
        case(
            "two-empty-rows-inside", "query_start_loc_cpu[2]", step(row(1, 4), padding(), padding(), row(5))
        ),
    ],
)
def test_every_builder_refuses_an_ill_formed_step(argument: str, bad: BuilderStep) -> None:
    with refused(argument):
        base_metadata(bad, config())
    with refused(argument):
        gdn_metadata(bad, config())


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
def test_what_a_step_does_not_say_counts_for_nothing(said: dict[str, bool]) -> None:
    marked = step(row(1, 4, prefilling=True, seq_len_upper_bound=9), **said)
    bounded = step(row(1, 0, prefilling=False, seq_len_upper_bound=1), has_upper_bound=False)
    for given in (marked, bounded):
        assert split_of(base_metadata(given, config())) == (1, 0, 1, 0)
    prompt = step(row(3, 2, seq_len_upper_bound=4), has_upper_bound=False)
    assert base_metadata(prompt, config(chunk_size=4), "mamba2").cu_chunk_seqlen_p == (0, 2, 3)


@pytest.mark.parametrize(
    ("kind", "argument", "refused_config"),
    [
        case("a-mode", "base", "mamba_cache_mode", config("ALL")),
        case("gdn-in-mode-all", "gdn", "mamba_cache_mode", config("all")),
        case("no-block", "base", "block_size", config(block_size=0)),
        case("no-request", "base", "max_num_seqs", config(max_num_seqs=0)),
        case("no-token", "base", "max_model_len", config("all", max_model_len=0)),
        case(
            "too-few-blocks", "base", "num_speculative_blocks", config("align", 2, num_speculative_blocks=1)
        ),
        case("mamba1-with-drafts", "mamba1", "num_speculative_tokens", config(num_spec=1)),
        case("mamba2-without-chunks", "mamba2", "chunk_size", config(chunk_size=0)),
    ],
)
def test_a_builder_is_not_constructed(kind: str, argument: str, refused_config: BuilderConfig) -> None:
    with refused(argument):
        require_config(refused_config, kind)


def test_the_smallest_builders_are_constructed() -> None:
    least = {"block_size": 1, "max_num_seqs": 1, "chunk_size": 1, "max_model_len": 1}
    require_config(config("all", 2, num_speculative_blocks=0, **least), "mamba2")
    require_config(config("align", 2, **least), "gdn")
    require_config(config("all", **least), "mamba1")


def test_a_decode_by_length_alone_must_have_a_state_where_the_host_sees_its_length() -> None:
    stateless = step(row(1, 4), row(1, 0))
    with refused("is_prefilling"):
        base_metadata(stateless, config())
    with refused("is_prefilling"):
        gdn_metadata(stateless, config())
    assert split_of(base_metadata(step(row(1, 1)), config())) == (1, 0, 1, 0)
    on_device = replace(stateless, on_host=False)
    assert split_of(base_metadata(on_device, config())) == (2, 0, 2, 0)
    assert split_of(gdn_metadata(on_device, config())) == (2, 0, 2, 0)


def test_decodes_before_prefills_without_speculation() -> None:
    mixed = step(row(1, 4, (11, 12)), row(9, 3, (21, 22)), row(2, 0, (31, 32)))
    metadata = base_metadata(mixed, config())
    assert replace(metadata, conv=None) == BaseMetadata(
        num_prefills=2,
        num_prefill_tokens=11,
        num_decodes=1,
        num_decode_tokens=1,
        num_reqs=3,
        state_indices_tensor_p=(21, 31),
        state_indices_tensor_d=((11,),),
        seq_lens=(5, 12, 2),
        has_initial_states_p=(True, False),
        query_start_loc_p=(0, 9, 11),
    )
    assert programs(metadata.conv) == ((2, 1), (0, 0, 1), (0, 1, 0))


def test_speculative_decodes_bring_their_starts_counts_and_a_column_per_draft() -> None:
    metadata = base_metadata(
        step(
            row(3, 4, (1, 2, 3, 4), accepted=2),
            row(1, 9, (5, 6, 7, 8), accepted=3),
            row(4, 0, (9, 10, 11, 12)),
        ),
        config(num_spec=2, num_speculative_blocks=3),
    )
    assert split_of(metadata) == (2, 1, 4, 4)
    assert metadata.state_indices_tensor_d == ((1, 2, 3), (5, 6, 7))
    assert metadata.state_indices_tensor_p == (9,)
    assert metadata.query_start_loc_d == (0, 3, 4)
    # The second row drafted nothing, and still reads at the offset of the three that it accepted.
    assert metadata.num_accepted_tokens == (2, 3)
    assert metadata.query_start_loc_p == (0, 4)


@pytest.mark.parametrize(
    ("argument", "bad"),
    [
        case("missing", "num_accepted_tokens", step(row(1, 4))),
        case("not-said", "num_accepted_tokens", step(row(1, 4, accepted=1), has_accepted=False)),
        case("missing-for-padding", "num_accepted_tokens", step(padding())),
        case("too-few", "num_accepted_tokens", step(row(1, 4, accepted=1), row(1, 4))),
        case("zero", "num_accepted_tokens[1]", step(row(1, 4, accepted=1), row(2, 4, accepted=0))),
        case(
            "more-than-offered", "num_accepted_tokens[0]", step(row(1, 4, accepted=4), row(2, 4, accepted=1))
        ),
    ],
)
def test_decodes_that_speculate_need_legal_counts(argument: str, bad: BuilderStep) -> None:
    with refused(argument):
        base_metadata(bad, config(num_spec=2))


@pytest.mark.parametrize(
    ("mode", "columns", "argument"),
    [
        ("none", 2, "block_table_tensor"),
        ("none", 3, ""),
        ("align", 4, "block_table_tensor"),
        ("align", 5, ""),
        ("all", 2, ""),
    ],
)
def test_a_row_has_columns_for_its_drafts_or_their_blocks(mode: str, columns: int, argument: str) -> None:
    given = step(row(1, 0, range(1, 1 + columns), accepted=1, prefilling=True))
    with refused(argument):
        base_metadata(given, config(mode, 2, num_speculative_blocks=4))


def test_padding_is_skipped_among_decodes_and_is_the_null_block_among_prefills() -> None:
    decodes = base_metadata(step(row(1, 4, accepted=1), padding(accepted=7)), config(num_spec=1))
    assert decodes.state_indices_tensor_d == ((5, 6), (-1, -1))
    prefills = base_metadata(step(row(1, 4), row(2), padding(), padding()), config())
    assert split_of(prefills) == (1, 3, 1, 2)
    assert prefills.state_indices_tensor_p == (5, 0, 0)
    assert prefills.has_initial_states_p == (False, False, False)
    assert prefills.query_start_loc_p == (0, 2, 2, 2)
    assert programs(prefills.conv) == ((1, 0, 0), (0,), (0,))
    kept = base_metadata(step(row(1, 4), row(2), padding()), config("all"))
    assert kept.state_indices_tensor_p == ((5, 6, 7), (0, 0, 0))


@pytest.mark.parametrize(
    ("computed", "query_len", "expected"),
    [
        (0, 5, (0, 0, 1)),
        (4, 1, (0, 1, 1)),
        (5, 3, (1, 1, 1)),
        (5, 4, (1, 1, 2)),
        (8, 1, (1, 2, 2)),
        (0, 0, (0, 0, 0)),
    ],
)
def test_mode_all_names_the_columns_of_the_computed_and_the_scheduled_tokens(
    computed: int, query_len: int, expected: tuple[int, int, int]
) -> None:
    chunk = StepRow(query_len, computed + query_len, (1, 2, 3, 4), prefilling=True)
    metadata = base_metadata(step(chunk), config("all"))
    columns = (
        metadata.block_idx_last_computed_token,
        metadata.block_idx_first_scheduled_token_p,
        metadata.block_idx_last_scheduled_token,
    )
    assert columns == tuple((column,) for column in expected)
    assert metadata.num_computed_tokens_p == (computed,)


@pytest.mark.parametrize(
    ("num_spec", "max_model_len", "blocks", "expected"),
    [
        case("narrower", 0, 16, (5, 6, 7), (5, 6, 7, -1)),
        case("exact", 0, 12, (5, 6, 7), (5, 6, 7)),
        case("wider", 0, 7, (5, 6, 7), (5, 6)),
        case("a-column-per-draft", 2, 7, (5, 6, 7), (5, 6, 7, -1)),
    ],
)
def test_a_kept_table_takes_the_width_of_the_longest_request_and_its_drafts(
    num_spec: int, max_model_len: int, blocks: Sequence[int], expected: tuple[int, ...]
) -> None:
    given = step(row(1, 4, blocks, accepted=1), padding(accepted=1))
    graph = base_metadata(given, full("all", num_spec, max_model_len=max_model_len))
    assert graph.state_indices_tensor_d == (expected, (-1,) * len(expected))
    eager = base_metadata(given, config("all", num_spec, max_model_len=max_model_len))
    assert eager.state_indices_tensor_d == (tuple(blocks), (-1, -1, -1))


@pytest.mark.parametrize(
    ("lens", "computed", "expected"),
    [
        case("rows-not-packed", (3, 7), (0, 0), (0, 3, 7, 10)),
        case("chunks-that-go-on", (3, 7), (2, 5), (0, 2, 3, 6, 10)),
        case("one-request", (9,), (3,), (0, 1, 5, 9)),
        case("aligned", (8, 8), (0, 4), (0, 4, 8, 12, 16)),
        case("short-of-the-first-multiple", (1, 2), (1, 5), (0, 1, 3)),
    ],
)
def test_mamba2_cuts_chunks_at_multiples_of_the_requests_own_position(
    lens: Sequence[int], computed: Sequence[int], expected: tuple[int, ...]
) -> None:
    rows = [row(length, count) for length, count in zip(lens, computed, strict=True)]
    assert position_chunks(rows, computed, 4).cu_chunk_seqlen_p == expected


def test_a_row_without_tokens_points_at_the_chunk_before_it() -> None:
    rows = [padding(), row(3), padding(), row(7, 5), padding()]
    # Positions 5 to 11 have the multiple 8 inside: three tokens, then four.
    expected = PositionChunks((0, 3, 6, 10), (1, 3, 3), (-1, 0, 0, 2, 2))
    assert position_chunks(rows, (0, 0, 0, 5, 0), 4) == expected


def test_mamba2_adds_chunks_of_the_prefills_and_whether_any_goes_on() -> None:
    mixed = step(row(1, 4), row(3, 2), row(7, 5), padding())
    metadata = base_metadata(mixed, config(chunk_size=4), "mamba2")
    assert metadata.cu_chunk_seqlen_p == (0, 2, 3, 6, 10)
    assert metadata.seq_idx_p == (0, 0, 1, 1)
    assert metadata.last_chunk_indices_p == (1, 3, 3)
    assert (metadata.prep_initial_states, metadata.chunk_size) == (True, 4)
    stale = padding(seq_len_upper_bound=7)
    prompt = step(row(1, 4, seq_len_upper_bound=5), row(3, seq_len_upper_bound=3), stale)
    fresh = base_metadata(prompt, config(chunk_size=4), "mamba2")
    assert fresh.prep_initial_states is False


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


def test_another_table_changes_the_blocks_of_gdn_only() -> None:
    given, made = contract_example(), config(num_spec=2)
    table = ((21, 22, 23), (24, 25, 26), (27, 28, 29), (30, 31, 32), (33, 34, 35))
    built, updated = gdn_metadata(given, made), updated_gdn_metadata(given, made, table)
    assert updated.spec_state_indices_tensor == ((21, 22, 23), (24, 25, 26), (27, 28, 29))
    assert updated.non_spec_state_indices_tensor == (30, 0)
    blocks = {
        name: getattr(built, name) for name in ("spec_state_indices_tensor", "non_spec_state_indices_tensor")
    }
    assert replace(updated, **blocks) == built
    with refused("blk_table"):
        updated_gdn_metadata(given, made, table[:4])


def test_gdn_gives_the_documents_outcome_for_a_known_prompt_chunk() -> None:
    metadata = gdn_metadata(contract_example(prefilling=True, accepted=1), config(num_spec=2))
    assert split_of(metadata) == (0, 2, 0, 6)
    assert (metadata.num_spec_decodes, metadata.num_spec_decode_tokens) == (2, 5)
    assert metadata.has_initial_state == (True, False, False)
    assert metadata.spec_query_start_loc == (0, 3, 5)
    assert metadata.non_spec_query_start_loc == (0, 1, 6, 6)
    assert metadata.spec_token_indx == (0, 1, 2, 3, 4)
    assert metadata.non_spec_token_indx == (5, 6, 7, 8, 9, 10)
    assert metadata.num_accepted_tokens == (2, 1)
    assert (metadata.chunk_indices, metadata.chunk_offsets) == (((0, 0), (1, 0)), (0, 1, 2, 2))
    assert metadata.non_spec_state_indices_tensor == (7, 10, 0)
    assert programs(metadata.conv) == ((1, 1, 0), (0, 1), (0, 0))


def test_gdn_gives_the_documents_outcome_for_unmarked_decodes_that_accepted_nothing() -> None:
    unmarked = replace(contract_example(accepted=1), has_prefilling=False)
    metadata = gdn_metadata(unmarked, config(num_spec=2))
    assert (split_of(metadata), metadata.num_spec_decodes) == ((0, 2, 0, 6), 2)
    dropped = replace(contract_example(), has_prefilling=False)
    with refused("num_accepted_tokens[2]"):
        gdn_metadata(dropped, config(num_spec=2))
    assert gdn_metadata(replace(dropped, on_host=False), config(num_spec=2)).num_accepted_tokens == (2, 1)


DRAFTED: dict[str, Any] = {"prefilling": False, "accepted": 1}


@pytest.mark.parametrize(
    ("argument", "bad"),
    [
        case("below-none", "num_decode_draft_tokens_cpu[0]", step(row(1, 4, drafts=-2, **DRAFTED))),
        case("more-than-configured", "num_decode_draft_tokens_cpu[0]", step(row(4, 4, drafts=3, **DRAFTED))),
        case(
            "other-than-the-row",
            "num_decode_draft_tokens_cpu[1]",
            step(row(2, 4, drafts=1, **DRAFTED), row(3, 4, drafts=1, **DRAFTED)),
        ),
        case(
            "prompt-with-drafts",
            "num_decode_draft_tokens_cpu[0]",
            step(row(9, prefilling=True, accepted=1, drafts=1)),
        ),
        case(
            "drafts-but-no-token-of-them",
            "num_decode_draft_tokens_cpu[0]",
            step(row(2, 4, drafts=0, **DRAFTED)),
        ),
        case("counts-missing", "num_accepted_tokens", step(row(2, 4, drafts=1))),
        case(
            "counts-missing-without-drafts",
            "num_accepted_tokens",
            step(row(5, drafts=-1), row(1, 4, drafts=0)),
        ),
        case(
            "a-count-missing", "num_accepted_tokens", step(row(2, 4, drafts=1, accepted=1), row(5, drafts=-1))
        ),
        case("zero", "num_accepted_tokens[0]", step(row(2, 4, drafts=1, accepted=0))),
        case("more-than-offered", "num_accepted_tokens[0]", step(row(1, 4, prefilling=False, accepted=4))),
        case(
            "dropped",
            "num_accepted_tokens[1]",
            step(row(2, 4, drafts=1, accepted=1), row(5, accepted=2, drafts=-1)),
        ),
        case("stateless", "is_prefilling", step(row(2, 0, drafts=1, accepted=1))),
        case(
            "steps-back-beside-drafts",
            "query_start_loc_cpu[2]",
            step(row(2, 4, drafts=1, accepted=1), row(-1, 3, drafts=-1, accepted=1), max_query_len=2),
        ),
    ],
)
def test_gdn_refuses(argument: str, bad: BuilderStep) -> None:
    with refused(argument):
        gdn_metadata(bad, config(num_spec=2))


# Fields that a step has no use for, and single tokens and drafts.


def test_prompts_alone_say_nothing_of_accepted_tokens() -> None:
    metadata = base_metadata(step(row(4, accepted=1), row(5, 1, accepted=1)), config(num_spec=2))
    assert (metadata.query_start_loc_d, metadata.num_accepted_tokens) == (None, None)
    assert metadata.has_initial_states_p == (False, True)


def test_a_single_draft_is_speculation() -> None:
    metadata = base_metadata(step(row(2, 4, accepted=2), row(1, 9, accepted=1)), config(num_spec=1))
    assert (metadata.query_start_loc_d, metadata.num_accepted_tokens) == ((0, 2, 3), (2, 1))


def test_mamba1_cuts_chunks_at_blocks_in_mode_all_only() -> None:
    prompts = step(row(1, 4), row(3, 2), row(7, 5))
    chunks = base_metadata(prompts, config("all"), "mamba1")
    assert (chunks.cu_chunk_seqlen_p, chunks.last_chunk_indices_p) == ((0, 2, 3, 6, 10), (1, 3))
    for mode, kind in (("none", "mamba1"), ("all", "base")):
        assert base_metadata(prompts, config(mode), kind).cu_chunk_seqlen_p is None


def test_mamba2_goes_on_from_a_single_token() -> None:
    assert base_metadata(step(row(3, 1)), config(chunk_size=4), "mamba2").prep_initial_states is True


def test_a_row_of_padding_has_no_state_whatever_its_length_says() -> None:
    stale = StepRow(0, 7, (9, 9, 9))
    assert base_metadata(step(row(2), stale), config()).has_initial_states_p == (False, False)
    assert gdn_metadata(step(row(2), stale), config()).has_initial_state == (False, False)


def test_decodes_alone_have_no_columns_of_prefills() -> None:
    metadata = base_metadata(step(row(1, 4)), config("all"))
    assert metadata.block_idx_last_scheduled_token == (1,)
    assert (metadata.block_idx_first_scheduled_token_p, metadata.num_computed_tokens_p) == (None, None)


def test_a_chunk_begins_in_the_column_of_its_first_token() -> None:
    metadata = base_metadata(step(row(4, 2), row(4, 3)), config("all"))
    assert metadata.block_idx_first_scheduled_token_p == (0, 0)


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
def test_what_a_full_graph_reads_is_in_buffers(
    given: BuilderStep, configured: BuilderConfig, owned: set[str]
) -> None:
    assert base_metadata(given, configured).owned == owned


def test_a_captured_step_has_decodes_that_accepted_all_their_tokens() -> None:
    captured = step(row(3, 4, seq_len_upper_bound=3), padding(), has_accepted=False)
    metadata = base_metadata(captured, full(num_spec=2), capture=True)
    assert (split_of(metadata), metadata.num_accepted_tokens) == ((2, 0, 3, 0), (3, 1))
    found = gdn_metadata(captured, full(num_spec=2), capture=True)
    assert (found.num_spec_decodes, found.num_accepted_tokens) == (1, (3, 1))


@pytest.mark.parametrize("kind", ["base", "mamba1", "mamba2"])
def test_another_table_changes_the_blocks_only(kind: str) -> None:
    given, table = step(row(1, 4), row(5), padding()), ((1, 2, 3), (4, 5, 6), (7, 8, 9))
    same = step(row(1, 4, table[0]), row(5, 0, table[1]), padding(table[2]))
    made = config("align", chunk_size=4)
    assert updated_block_table(given, made, table, kind) == base_metadata(same, made, kind)
    assert updated_block_table(given, made, table, kind).state_indices_tensor_p == (5, 0)
    with refused("num_speculative_tokens"):
        updated_block_table(step(row(5)), config("align", 1, chunk_size=4), table[:1], "mamba2")
    with refused("blk_table"):
        updated_block_table(
            step(row(5)), config("align", num_speculative_blocks=2, chunk_size=4), ((1, 2),), kind
        )
    graph = step(row(1, 4), padding())
    assert updated_block_table(graph, full(chunk_size=4), table[:2], kind, capture=True).num_decodes == 2


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


def test_gdn_without_speculation_runs_decodes_and_prefills_in_their_columns() -> None:
    given = step(row(1, 4, (1, 2)), row(65, 1, (3, 4)), padding())
    metadata = gdn_metadata(given, config())
    assert replace(metadata, conv=None) == GDNMetadata(
        num_prefills=1,
        num_prefill_tokens=65,
        num_decodes=1,
        num_decode_tokens=1,
        num_spec_decodes=0,
        num_spec_decode_tokens=0,
        num_actual_tokens=66,
        has_initial_state=(True, True, False),
        chunk_indices=((0, 0), (1, 0), (1, 1)),
        chunk_offsets=(0, 1, 3, 3),
        non_spec_query_start_loc=(0, 1, 66, 66),
        non_spec_state_indices_tensor=(1, 3, 0),
    )
    assert programs(metadata.conv) == ((1, 9, 0), (0, *[1] * 9), (0, *range(9)))


@pytest.mark.parametrize(
    ("configured", "owned"),
    [
        case("full", full(), {"non_spec_state_indices_tensor", "non_spec_query_start_loc"}),
        case("too-many", full(max_num_seqs=1), set()),
        case("eager", config(), set()),
    ],
)
def test_decodes_of_gdn_are_in_buffers_of_full_graphs(configured: BuilderConfig, owned: set[str]) -> None:
    assert gdn_metadata(step(row(1, 4), padding()), configured).owned == owned
    assert gdn_metadata(step(row(1, 4), row(5)), configured).owned == set()


def test_a_full_graph_of_gdn_has_a_row_for_each_token_that_requests_may_have() -> None:
    graphs = full(num_spec=2, max_num_seqs=1)
    owned = [bool(gdn_metadata(step(*[row(1, 4)] * rows), graphs).owned) for rows in (3, 4)]
    assert owned == [True, False]


CAPTURING = full(num_spec=2, max_num_seqs=2)


@pytest.mark.parametrize(
    ("argument", "bad", "most"),
    [
        case("rows", "num_reqs", step(*[row(1, 4)] * 7), step(*[row(1, 4)] * 6)),
        case(
            "tokens", "num_actual_tokens", step(*[row(3, 4)] * 2, num_actual_tokens=7), step(*[row(3, 4)] * 2)
        ),
        case("a-query", "max_query_len", step(row(1, 4), row(4, 4)), step(row(3, 4), row(1, 4))),
    ],
)
def test_gdn_captures_no_more_than_its_buffers_hold(
    argument: str, bad: BuilderStep, most: BuilderStep
) -> None:
    with refused(argument):
        gdn_metadata(bad, CAPTURING, capture=True)
    assert gdn_metadata(most, CAPTURING, capture=True).owned


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


def test_a_count_is_looked_at_where_there_may_be_drafts() -> None:
    given = step(row(1, 4, accepted=2))
    assert gdn_metadata(given, config()).num_decodes == 1
    with refused("num_accepted_tokens[0]"):
        gdn_metadata(given, config(num_spec=1))


def test_a_row_with_drafts_that_is_marked_as_a_decode_may_be_without_a_state() -> None:
    marked = step(row(2, 0, drafts=1, accepted=1, prefilling=False))
    assert gdn_metadata(marked, config(num_spec=1)).num_spec_decodes == 1


@pytest.mark.parametrize(
    ("configured", "paddings", "rows"),
    [
        case("one-padded-row", full(num_spec=2), 1, 3),
        case("more-rows-than-a-graph", full(num_spec=2, max_num_seqs=2), 5, 2),
        case("more-tokens-than-a-graph", full(num_spec=2, max_num_seqs=1), 1, 2),
        case("no-graph", config(num_spec=2), 1, 2),
    ],
)
def test_rows_with_drafts_are_padded_to_the_rows_of_a_full_graph(
    configured: BuilderConfig, paddings: int, rows: int
) -> None:
    first, second = (row(3, 9, blocks, drafts=2, accepted=2) for blocks in ((1, 2, 3), (4, 5, 6)))
    pads = [padding(accepted=1, drafts=0)] * paddings
    metadata = gdn_metadata(step(first, second, *pads), configured)
    assert metadata.spec_state_indices_tensor == ((1, 2, 3), (4, 5, 6), (0, 0, 0))[:rows]
    assert metadata.spec_query_start_loc == (0, 3, 6, 6)[: rows + 1]
    assert metadata.num_accepted_tokens == (2, 2, 1)[:rows]


@pytest.mark.parametrize(("seqs", "fits"), [case("just-fits", 2, True), case("too-many-tokens", 1, False)])
def test_rows_with_drafts_are_padded_where_their_tokens_fit_a_full_graph(seqs: int, fits: bool) -> None:
    first = row(3, 9, (1, 2, 3), drafts=2, accepted=2)
    second = row(3, 9, (4, 5, 6), drafts=2, accepted=1)
    metadata = gdn_metadata(
        step(first, second, padding(accepted=7, drafts=-1), padding(accepted=1, drafts=0)),
        full(num_spec=2, max_num_seqs=seqs),
    )
    assert (metadata.num_prefills, metadata.num_spec_decodes, metadata.num_spec_decode_tokens) == (0, 2, 6)
    assert (metadata.spec_token_indx, metadata.non_spec_token_indx) == ((0, 1, 2, 3, 4, 5), ())
    assert (metadata.token_index_dtype, metadata.spec_sequence_masks) == ("int32", (True, True, False, False))
    rest = ((0, 0, 0),) * 2, (6, 6), (1, 1)
    table, starts, counts = rest if fits else ((), (), ())
    assert metadata.spec_state_indices_tensor == ((1, 2, 3), (4, 5, 6), *table)
    assert metadata.spec_query_start_loc == (0, 3, 6, *starts)
    assert metadata.num_accepted_tokens == (2, 1, *counts)
    assert len(metadata.owned) == (6 if fits else 0)
