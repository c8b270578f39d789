import pickle
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest

from oracle import batch, chunks, layout, shapes, types
from oracle.layout import ByteRun, StateGeometry, Unrepresentable
from oracle.rules import Refused
from oracle.variants import DOCUMENTS, Variants
from tests.helpers.modules import ROOT
from tests.helpers.processes import run_fresh
from tests.oracle.worked import case, refused


def starts_of(lens: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate(lens, initial=0))


def test_a_refusal_reads_as_argument_value_and_rule() -> None:
    with pytest.raises(ValueError, match=r"^chunk_size = 0, but should be >= 1$"):
        chunks.chunk_indices((0, 1), 0)


def test_a_refused_element_names_itself_and_the_element_that_it_contradicts() -> None:
    rule = r"^query_start_loc\[2\] = 3, but should be >= query_start_loc\[1\] = 5$"
    with pytest.raises(Refused, match=rule) as caught:
        chunks.varlen_chunk_metadata((0, 5, 3), 4)
    assert (caught.value.argument, caught.value.value) == ("query_start_loc[2]", 3)
    assert caught.value.args[:2] == ("query_start_loc[2]", 3)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made above
    assert vars(again) == vars(caught.value)


def test_every_oracle_module_imports_with_the_standard_library_alone() -> None:
    paths = sorted((ROOT / "oracle").rglob("*.py"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    imports = "; ".join(f"import {module.removesuffix('.__init__')}" for module in modules)
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {imports}"
    result = run_fresh("-I", "-S", "-c", code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (-5, 4, -1),
        (-4, 4, -1),
        (-1, 4, 0),
        (0, 4, 0),
        (1, 4, 1),
        (4, 4, 1),
        (5, 4, 2),
        (5, -4, -1),
        (-5, -4, 2),
    ],
)
def test_cdiv_rounds_up_for_either_sign(x: int, y: int, expected: int) -> None:
    assert types.cdiv(x, y) == expected


@pytest.mark.parametrize(
    ("block_shapes", "itemsizes", "padded", "expected"),
    [
        case("conv-and-temporal", ((3, 8), (2, 4, 4)), (2, 4), None, 48 + 128),
        case("temporal-alone", ((4, 16, 16),), (4,), None, 4096),
        case("padded-page", ((3, 8), (2, 4, 4)), (2, 4), 256, 256),
        case("padding-of-no-bytes", ((3, 8), (2, 4, 4)), (2, 4), 176, 176),
    ],
)
def test_a_page_holds_all_states_or_its_padded_size(
    block_shapes: Sequence[Sequence[int]], itemsizes: Sequence[int], padded: int | None, expected: int
) -> None:
    assert types.page_size_bytes(block_shapes, itemsizes, padded) == expected


@pytest.mark.parametrize(
    ("mode", "drafts", "block_size", "max_model_len", "expected"),
    [
        case("none", "none", 0, 10, 10, 1),
        case("none-with-drafts", "none", 2, 10, 10, 3),
        case("align", "align", 0, 4, 10, 2),
        case("align-with-drafts", "align", 2, 4, 10, 4),
        case("all", "all", 0, 4, 10, 3),
        case("all-whole-blocks", "all", 0, 4, 8, 2),
        case("all-ignores-drafts", "all", 2, 4, 9, 3),
    ],
)
def test_a_request_has_its_budget_of_pages(
    mode: str, drafts: int, block_size: int, max_model_len: int, expected: int
) -> None:
    assert types.pages_per_request(mode, drafts, block_size, max_model_len, DOCUMENTS) == expected


def test_a_release_may_budget_for_drafts_in_mode_all() -> None:
    assert types.pages_per_request("all", 2, 4, 9, Variants(kept_pages_of_drafts=True)) == 5


def split(
    lens: Sequence[int],
    threshold: int = 1,
    *,
    tokens: int | None = None,
    bound: int | None = None,
    **options: Any,
) -> tuple[int, int, int, int]:
    starts = starts_of(lens)
    num_actual_tokens = starts[-1] if tokens is None else tokens
    max_query_len = max(lens, default=0) if bound is None else bound
    return batch.split_decodes_and_prefills(starts, num_actual_tokens, max_query_len, threshold, **options)


UNIFORM = {"require_uniform": True}
STRICT = {"treat_short_extends_as_decodes": False}
F, T = False, True


@pytest.mark.parametrize(
    ("lens", "threshold", "options", "expected"),
    [
        case("decodes", (1, 1, 1), 1, {}, (3, 0, 3, 0)),
        case("padded-decodes", (1, 1, 0), 1, {"tokens": 4}, (3, 0, 4, 0)),
        case("decodes-then-prefill", (1, 1, 5), 1, {}, (2, 1, 2, 5)),
        case("prefill-first", (5, 1, 1), 1, {}, (0, 3, 0, 7)),
        case("prefill-between", (1, 5, 1), 1, {}, (1, 2, 1, 6)),
        case("padding-after-prefill", (1, 5, 0, 0), 1, {}, (1, 3, 1, 5)),
        case("empty-row-first", (0, 5), 1, {}, (1, 1, 0, 5)),
        case("up-to-threshold", (3, 2, 1), 3, {}, (3, 0, 6, 0)),
        case("uneven", (3, 2, 1), 3, UNIFORM, (1, 2, 3, 3)),
        case("uniform-but-padding", (3, 3, 0), 3, UNIFORM, (3, 0, 6, 0)),
        case(
            "uniform-with-prompt-tail",
            (3, 3),
            3,
            {**UNIFORM, **STRICT, "is_prefilling": (F, T)},
            (1, 1, 3, 3),
        ),
        case("prompt-tail-first", (1, 1), 1, {**STRICT, "is_prefilling": (T, F)}, (0, 2, 0, 2)),
        case("empty-batch", (), 1, {}, (0, 0, 0, 0)),
        case("empty-batch-strict", (), 1, STRICT, (0, 0, 0, 0)),
        case("empty-batch-strict-with-flags", (), 1, {**STRICT, "is_prefilling": ()}, (0, 0, 0, 0)),
        case("empty-batch-uniform", (), 3, UNIFORM, (0, 0, 0, 0)),
        # Beyond the table
        case("loose-bound", (1, 1, 5), 1, {"bound": 100}, (2, 1, 2, 5)),
        case("loose-bound-of-decodes", (1, 1), 1, {"bound": 100}, (2, 0, 2, 0)),
        case("flags-unused", (1, 1), 1, {"is_prefilling": (T, T)}, (2, 0, 2, 0)),
        case("strict-without-tails", (1, 1), 1, {**STRICT, "is_prefilling": (F, F)}, (2, 0, 2, 0)),
        case("uniform-behind-padding-and-before-a-prompt", (0, 1, 5), 1, UNIFORM, (1, 2, 0, 6)),
        case("uniform-too-long", (5, 5), 3, UNIFORM, (0, 2, 0, 10)),
        case("uniform-single-tokens", (0, 1), 1, UNIFORM, (2, 0, 1, 0)),
        case("padded-tokens-are-prefill", (1, 5), 1, {"tokens": 8}, (1, 1, 1, 7)),
        case(
            "uniform-strict-padding-stays-decode",
            (3, 3, 0),
            3,
            {**UNIFORM, **STRICT, "is_prefilling": (F, F, F)},
            (3, 0, 6, 0),
        ),
    ],
)
def test_rows_split_at_the_first_prefill(
    lens: Sequence[int], threshold: int, options: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    assert split(lens, threshold, **options) == expected


def test_computed_tokens_are_the_length_less_the_query() -> None:
    starts = (0, 3, 5, 6, 11, 11)
    assert batch.query_lens(starts) == (3, 2, 1, 5, 0)
    assert batch.num_computed_tokens(starts, (12, 11, 10, 5, 0)) == (9, 9, 9, 0, 0)


TABLE = ((10, 11, 12, 13, 14), (20, 21, 22, 23, 24))


@pytest.mark.parametrize(
    ("seq_len", "expected"),
    [
        case("negative", -3, (10, 11, 12)),
        case("padded-row", 0, (10, 11, 12)),
        case("first-token", 1, (10, 11, 12)),
        case("full-block", 4, (10, 11, 12)),
        case("next-block", 5, (11, 12, 13)),
        case("two-full-blocks", 8, (11, 12, 13)),
        case("last-columns", 9, (12, 13, 14)),
        case("longest", 12, (12, 13, 14)),
    ],
)
def test_an_aligned_row_starts_at_the_column_of_its_last_token(
    seq_len: int, expected: tuple[int, ...]
) -> None:
    assert batch.block_table_rows(TABLE, (seq_len,), 4, 2, "align") == (expected,)


@pytest.mark.parametrize(
    ("seq_lens", "drafts", "expected"),
    [
        case("two-rows", (5, 12), 2, ((11, 12, 13), (22, 23, 24))),
        case("fewer-rows", (5,), 2, ((11, 12, 13),)),
        case("no-rows", (), 2, ()),
        case("no-drafts", (20, 1), 0, ((14,), (20,))),
        case("one-column-to-choose", (4, 0), 4, (TABLE[0], TABLE[1])),
    ],
)
def test_the_aligned_table_has_a_row_for_each_length(
    seq_lens: Sequence[int], drafts: int, expected: tuple[tuple[int, ...], ...]
) -> None:
    assert batch.block_table_rows(TABLE, seq_lens, 4, drafts, "align") == expected


@pytest.mark.parametrize("mode", ["none", "all"])
def test_other_modes_have_the_table_itself(mode: str) -> None:
    assert batch.block_table_rows(TABLE, (5,), 4, 2, mode) is batch.UNCHANGED


def test_a_length_beyond_the_table_is_told_the_longest_one() -> None:
    with pytest.raises(Refused, match=r"^seq_lens\[1\] = 9, but should be <= 8"):
        batch.block_table_rows(((1, 2, 3), (4, 5, 6)), (8, 9), 4, 1, "align")


@pytest.mark.parametrize(
    ("starts", "chunk_size", "boundaries", "last", "sequences"),
    [
        case("starts-off-grid", (0, 3, 10), 4, (0, 3, 4, 8, 10), (0, 3), (0, 1, 1, 1)),
        case("one-sequence", (0, 9), 4, (0, 4, 8, 9), (2,), (0, 0, 0)),
        case("starts-on-grid", (0, 8, 16), 4, (0, 4, 8, 12, 16), (1, 3), (0, 0, 1, 1)),
        case("no-sequence", (0,), 4, (0,), (), ()),
        case("empty-sequence", (0, 0), 4, (0,), (-1,), ()),
        case("empty-between", (0, 3, 3, 5), 4, (0, 3, 4, 5), (0, -1, 2), (0, 2, 2)),
        case("empty-around", (0, 0, 2, 2), 4, (0, 2), (-1, 0, -1), (1,)),
        case("chunks-of-one", (0, 1, 3), 1, (0, 1, 2, 3), (0, 2), (0, 1, 1)),
        case("chunk-beyond-total", (0, 1, 3), 100, (0, 1, 3), (0, 1), (0, 1)),
        case("the-most-tokens", (0, 2**31 - 1), 2**30, (0, 2**30, 2**31 - 1), (1,), (0, 0)),
    ],
)
def test_chunks_end_at_sequences_and_at_the_packed_grid(
    starts: Sequence[int],
    chunk_size: int,
    boundaries: tuple[int, ...],
    last: tuple[int, ...],
    sequences: tuple[int, ...],
) -> None:
    assert chunks.varlen_chunk_metadata(starts, chunk_size) == (boundaries, last, sequences)


@pytest.mark.parametrize(
    ("starts", "nums", "rows", "tiles"),
    [
        case("rows-of-3-17-0-1", (0, 3, 20, 20, 21), (1, 3, 0, 1), (0, 1, 1, 1, 3), (0, 0, 1, 2, 0)),
        case("no-rows", (0,), (), (), ()),
        case("an-empty-row", (0, 0), (0,), (), ()),
        case("exact-tiles", (0, 8, 24), (1, 2), (0, 1, 1), (0, 0, 1)),
        case("first-start-is-free", (7, 10, 27), (1, 3), (0, 1, 1, 1), (0, 0, 1, 2)),
    ],
)
def test_each_tile_of_eight_tokens_is_a_program(
    starts: Sequence[int], nums: tuple[int, ...], rows: tuple[int, ...], tiles: tuple[int, ...]
) -> None:
    programs = chunks.causal_conv1d_metadata(starts)
    filler = (-1,) * (2048 - len(rows))
    assert programs == (nums, rows, tiles, rows + filler, tiles + filler)


def test_a_long_row_has_twice_as_many_slots_as_programs() -> None:
    programs = chunks.causal_conv1d_metadata((0, 12000))
    assert programs.nums == (1500,)
    assert programs.offsetlist == tuple(range(1500))
    assert programs.batch_ptr == (0,) * 1500 + (-1,) * 1500
    assert programs.token_chunk_offset_ptr == tuple(range(1500)) + (-1,) * 1500


@pytest.mark.parametrize(
    ("cu_seqlens", "indices", "offsets"),
    [
        case("rows-of-1-64-135", (0, 1, 65, 200), ((0, 0), (1, 0), (2, 0), (2, 1), (2, 2)), (0, 1, 2, 5)),
        case("empty-between", (0, 64, 64, 128), ((0, 0), (2, 0)), (0, 1, 1, 2)),
        case("empty-at-the-end", (0, 1, 6, 6), ((0, 0), (1, 0)), (0, 1, 2, 2)),
        case("no-sequence", (0,), (), (0,)),
        case("empty-sequence", (0, 0), (), (0, 0)),
        case("first-start-is-free", (5, 7, 72), ((0, 0), (1, 0), (1, 1)), (0, 1, 3)),
    ],
)
def test_fla_chunks_are_numbered_within_their_sequence(
    cu_seqlens: Sequence[int], indices: tuple[tuple[int, int], ...], offsets: tuple[int, ...]
) -> None:
    assert chunks.chunk_indices(cu_seqlens, 64) == indices
    assert chunks.chunk_offsets(cu_seqlens, 64) == offsets


@pytest.mark.parametrize(
    ("ngroups", "tp", "expected"),
    [case("whole", 8, 4, 0), case("one-each", 4, 4, 0), case("one-for-all", 1, 8, 7), case("pairs", 2, 8, 6)],
)
def test_extra_groups_give_each_rank_whole_groups(ngroups: int, tp: int, expected: int) -> None:
    assert shapes.extra_groups_for_head_shards(ngroups, tp) == expected


@pytest.mark.parametrize(
    ("shape_of", "arguments", "conv", "others"),
    [
        # A conv state is written as (rows, channels).
        case("mamba1", shapes.mamba1_state_shape, (2, 8, 16, 4), [(3, 4)], [(4, 16)]),
        case("mamba2", shapes.mamba2_state_shape, (2, 32, 4, 4, 8, 16, 4), [(3, 80)], [(2, 8, 16)]),
        case("mamba2-one-group", shapes.mamba2_state_shape, (2, 32, 1, 4, 8, 16, 4), [(3, 48)], [(2, 8, 16)]),
        case("mamba2-drafts", shapes.mamba2_state_shape, (2, 32, 1, 4, 8, 16, 4, 2), [(5, 48)], [(2, 8, 16)]),
        case("short-conv", shapes.short_conv_state_shape, (2, 8, 4), [(3, 4)], []),
        case("short-conv-drafts", shapes.short_conv_state_shape, (2, 8, 4, 2), [(5, 4)], []),
        case("gdn", shapes.gated_delta_net_state_shape, (2, 2, 4, 8, 16, 4), [(3, 48)], [(2, 16, 8)]),
        case(
            "gdn-drafts", shapes.gated_delta_net_state_shape, (2, 2, 4, 8, 16, 4, 1), [(4, 48)], [(2, 16, 8)]
        ),
        case("kda", shapes.kda_state_shape, (2, 4, 8), [(3, 16)] * 3, [(2, 8, 8)]),
        case("kda-keys", shapes.kda_state_shape, (2, 4, 8, 2, 4), [(3, 16), (3, 4), (3, 4)], [(2, 8, 8)]),
        case("kda-drafts", shapes.kda_state_shape, (2, 4, 8, None, None, 4, 2), [(5, 16)] * 3, [(2, 8, 8)]),
    ],
)
def test_a_rank_holds_these_states_in_either_layout(
    shape_of: Callable[..., object],
    arguments: tuple[object, ...],
    conv: list[tuple[int, int]],
    others: list[tuple[int, ...]],
) -> None:
    assert shape_of(*arguments, layout="SD") == (*conv, *others)
    assert shape_of(*arguments, layout="DS") == (*((dim, rows) for rows, dim in conv), *others)


def test_linear_attention_has_a_square_matrix_per_head_of_the_rank() -> None:
    assert shapes.linear_attention_state_shape(8, 2, 16) == ((4, 16, 16),)
    with refused("num_heads"):
        shapes.linear_attention_state_shape(7, 2, 16)


# Five rows of three channels of two bytes: 30 bytes in a page of 64.
SD = StateGeometry(num_blocks=4, block_shape=(5, 3), itemsize=2, block_stride_bytes=64)
DS = StateGeometry(num_blocks=4, block_shape=(3, 5), itemsize=2, block_stride_bytes=64)
# 24 elements of four bytes: 96 bytes in a page of 128.
TEMPORAL = StateGeometry(
    num_blocks=4, block_shape=(2, 3, 4), itemsize=4, block_stride_bytes=128, offset_bytes=30
)
IDS = (0, 2, 1, 3)
LONG_IDS = (2, 1, 3, 1, 3, 1)


@pytest.mark.parametrize(
    ("source", "block_ids", "column", "accepted", "expected"),
    [
        case("sd-first", (SD, "SD"), IDS, 1, 1, ByteRun(128, 15 * 2)),
        case("sd-shifted", (SD, "SD"), IDS, 1, 3, ByteRun(128 + 12, 9 * 2)),
        case("sd-last-row", (SD, "SD"), LONG_IDS, 0, 5, ByteRun(128 + 24, 3 * 2)),
        case("sd-last-column", (SD, "SD"), IDS, 3, 1, ByteRun(192, 15 * 2)),
        case("ds-first", (DS, "DS"), IDS, 2, 1, ByteRun(64, 15 * 2)),
    ],
)
def test_a_conv_copy_reads_the_running_block_from_the_accepted_row_on(
    source: tuple[StateGeometry, str], block_ids: Sequence[int], column: int, accepted: int, expected: ByteRun
) -> None:
    run = layout.conv_copy_run(*source, block_ids, column, accepted)
    assert (run, run.elements) == (expected, expected.length // 2)


@pytest.mark.parametrize(
    ("accepted", "offset"), [case("one", 1, 2 * 128), case("two", 2, 1 * 128), case("three", 3, 3 * 128)]
)
def test_a_temporal_copy_reads_the_block_of_the_last_accepted_token(accepted: int, offset: int) -> None:
    run = layout.temporal_copy_run(TEMPORAL, IDS, 1, accepted)
    assert (run, run.elements) == (ByteRun(offset, 96), 24)


def test_offsets_keep_their_bits_in_large_pools() -> None:
    pool = StateGeometry(num_blocks=2**22, block_shape=(7, 8192), itemsize=2, block_stride_bytes=2**20)
    run = layout.conv_copy_run(pool, "SD", (3_000_000, 1, 1), 0, 3)
    assert run == ByteRun(3_000_000 * 2**20 + 2 * 16384, 5 * 16384)
    assert layout.temporal_copy_run(pool, (3_000_000,), 0, 1) == ByteRun(3_000_000 * 2**20, 7 * 16384)


@pytest.mark.parametrize("shape", [case("three-channels", (3, 5)), case("one-channel", (1, 5))])
def test_a_shift_of_channel_first_rows_is_unrepresentable(shape: tuple[int, ...]) -> None:
    with pytest.raises(Unrepresentable):
        layout.conv_copy_run(StateGeometry(4, shape, 2, 64), "DS", IDS, 1, 2)


def test_a_conv_copy_judges_only_the_block_that_it_reads() -> None:
    assert layout.conv_copy_run(SD, "SD", (2, 0, -1), 0, 3) == ByteRun(128 + 12, 18)
    with refused("cur_block_idx"):
        layout.conv_copy_run(SD, "SD", (2, 1), 2, 1)
    with refused("num_accepted_tokens"):
        layout.conv_copy_run(SD, "SD", LONG_IDS, 0, 6)


def test_a_temporal_copy_judges_only_the_block_that_it_reads() -> None:
    assert layout.temporal_copy_run(TEMPORAL, (0, 0, 3), 0, 3) == ByteRun(3 * 128, 96)
    with refused("block_ids[1]"):
        layout.temporal_copy_run(TEMPORAL, (2, 0, 3), 0, 2)
