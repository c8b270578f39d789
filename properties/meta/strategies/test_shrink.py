"""The strategies shrink to what a person would write down, as Hypothesis tests of its own (test_shrink_quality.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis.strategies import SearchStrategy

from properties.harness.case.values import Tensor
from properties.meta.strategies.drawing import minimal
from properties.strategies.batch import (
    Batch,
    BlockTable,
    RequestRow,
    Splitting,
    batches,
    block_tables,
    decodes,
    prefills,
    shuffled_batches,
    splittings,
)
from properties.strategies.chunks import (
    Packed,
    integer_vectors,
    lengths_around,
    packed_sequences,
    spread,
)
from properties.strategies.layout import (
    HUGE_STRIDE,
    Copy,
    PaddedState,
    conv_copies,
    layouts,
    temporal_copies,
)
from properties.strategies.shapes import ShapeArguments, models
from properties.strategies.situations import Situated

pytestmark = pytest.mark.slow
T = TypeVar("T")
DECODE, PREFILL = RequestRow(1, 1), RequestRow(1, 0, prefilling=True)
DRAFTED = RequestRow(2, 1)
SMALLEST = PaddedState(2, (1, 1))


def found_in(situation: str) -> Callable[[Situated], bool]:
    return lambda value: situation in value.situations()


@pytest.mark.parametrize(
    ("strategy", "simplest"),
    [
        (packed_sequences(), Packed((), 1)),
        (batches(), Batch(())),
        (shuffled_batches(), Batch(())),
        (splittings(), Splitting(Batch(()))),
        (block_tables(), BlockTable((), (), block_size=1)),
        (conv_copies(), Copy(SMALLEST, (1,))),
        (temporal_copies(), Copy(PaddedState(2, (1,)), (1,))),
        (models(), ShapeArguments("linear_attention_state_shape", (("num_heads", 1), ("head_dim", 1)))),
        (decodes(num_spec=3), DECODE),
        (prefills(), PREFILL),
        (layouts(), "SD"),
        (lengths_around(4), 0),
        (integer_vectors((0, 2)), Tensor("int32", (2,), (0, 2))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_in_particular_is_the_simplest_value(strategy: SearchStrategy[Any], simplest: object) -> None:
    assert minimal(strategy) == simplest


def test_a_sequence_longer_than_a_chunk_is_two_tokens_in_chunks_of_one() -> None:
    assert minimal(packed_sequences(), found_in("several chunks in a sequence")) == Packed((2,), 1)


def test_an_empty_sequence_between_others_has_one_token_on_either_side() -> None:
    assert minimal(packed_sequences(), found_in("an empty sequence between others")) == Packed((1, 0, 1), 1)


def test_an_empty_sequence_at_the_back_follows_one_token() -> None:
    assert minimal(packed_sequences(), found_in("zero-length rows at the back")) == Packed((1, 0), 1)


def test_a_sequence_that_starts_inside_a_chunk_is_the_second_of_two_tokens() -> None:
    assert minimal(packed_sequences(), found_in("a start inside a physical chunk")) == Packed((1, 1), 2)


def test_a_length_one_past_a_chunk_is_three_tokens_in_chunks_of_two() -> None:
    assert minimal(packed_sequences(), found_in("a length at k * chunk_size + 1")) == Packed((3,), 2)


def test_a_chunk_size_is_the_smallest_that_matters() -> None:
    long_in_a_large_chunk = minimal(packed_sequences(), lambda packed: max(packed.lens, default=0) > 7)
    assert long_in_a_large_chunk == Packed((8,), 3)
    assert minimal(packed_sequences(), lambda packed: packed.chunk_size > 8) == Packed((), 16)


def test_ten_tokens_are_in_one_sequence() -> None:
    assert minimal(packed_sequences(), lambda packed: packed.starts[-1] >= 10) == Packed((10,), 3)


@pytest.mark.parametrize("length", range(12))
def test_a_length_around_a_unit_is_the_least_that_the_condition_allows(length: int) -> None:
    assert minimal(lengths_around(4), lambda found: found >= length) == length


def test_a_spread_vector_is_of_32_bits() -> None:
    vectors = integer_vectors((0, 2, 5))
    assert minimal(vectors, lambda tensor: tensor.strides is not None) == spread((0, 2, 5), "int32")


def test_a_decode_before_a_prefill_is_one_token_each() -> None:
    assert minimal(batches(), found_in("decodes before prefills")) == Batch((DECODE, PREFILL))


def test_a_prefill_before_a_decode_is_one_token_each() -> None:
    assert minimal(shuffled_batches(), found_in("a prefill before a decode")) == Batch((PREFILL, DECODE))


def test_a_later_chunk_of_a_prompt_has_one_token_behind_it() -> None:
    assert minimal(batches(), found_in("chunked prefill")) == Batch((RequestRow(1, 1, prefilling=True),))


def test_a_uniform_speculative_batch_is_two_decodes_of_one_draft() -> None:
    assert minimal(batches(), found_in("uniform speculative decodes")) == Batch((DRAFTED, DRAFTED))


def test_uniform_decodes_before_padding_have_one_padded_row() -> None:
    situation = "uniform speculative decodes before padding"
    assert minimal(batches(), found_in(situation)) == Batch((DRAFTED, DRAFTED), padded_rows=1)


def test_padding_behind_a_request_is_one_row() -> None:
    assert minimal(batches(), found_in("zero-length rows at the back")) == Batch((DECODE,), padded_rows=1)


def test_padded_tokens_need_no_request() -> None:
    assert minimal(batches(), found_in("padded tokens")) == Batch((), padded_tokens=1)


def test_a_long_prompt_is_alone_in_its_batch() -> None:
    assert minimal(batches(), lambda batch: max(batch.query_lens, default=0) >= 6) == Batch(
        (RequestRow(6, 0, prefilling=True),)
    )


def test_a_long_history_is_that_of_one_decode() -> None:
    assert minimal(batches(), lambda batch: max(batch.seq_lens, default=0) > 15) == Batch(
        (RequestRow(1, 15),)
    )


def test_three_rows_are_three_decodes_of_one_token() -> None:
    assert minimal(batches(), lambda batch: len(batch.requests) == 3) == Batch((DECODE,) * 3)


def test_uneven_decodes_where_uniform_ones_are_required_are_of_one_and_two_tokens() -> None:
    assert minimal(splittings(), found_in("uneven decodes where uniform ones are required")) == Splitting(
        Batch((DECODE, DRAFTED)), decode_threshold=2, require_uniform=True
    )


def test_a_short_prompt_chunk_that_is_a_prefill_is_one_token() -> None:
    assert minimal(splittings(), found_in("a short prompt chunk where those are prefills")) == Splitting(
        Batch((PREFILL,)), treat_short_extends_as_decodes=False
    )


def test_a_loose_bound_is_one_too_large() -> None:
    situation = "a bound above the threshold that no query reaches"
    assert minimal(splittings(), found_in(situation)) == Splitting(Batch((DECODE,)), slack=1)


def test_two_rows_of_a_table_are_two_blocks() -> None:
    assert minimal(block_tables(), lambda table: len(table.rows) == 2) == BlockTable(
        ((1,), (2,)), (0, 0), block_size=1
    )


def test_a_strided_table_with_a_row_has_one_column_between_its_rows() -> None:
    assert minimal(
        block_tables(), lambda table: table.extra_stride > 0 and len(table.rows) > 0
    ) == BlockTable(((1,),), (0,), block_size=1, extra_stride=1)


def test_a_null_block_is_two_columns_before_the_running_one() -> None:
    assert minimal(block_tables(), found_in("null blocks before the running one")) == BlockTable(
        ((0, 1, 2),), (3,), block_size=1, width=3
    )


def test_a_poisoned_column_is_one_column_too_many() -> None:
    assert minimal(block_tables(), found_in("wider than needed")) == BlockTable(
        ((1,),), (0,), block_size=1, width=2
    )


def test_a_length_one_past_a_block_is_three_tokens_in_blocks_of_two() -> None:
    assert minimal(block_tables(), found_in("a length at k * block_size + 1")) == BlockTable(
        ((1, 2),), (3,), block_size=2, width=2
    )


def test_a_speculative_block_of_a_row_is_the_one_behind_the_running_one() -> None:
    with_a_row = minimal(
        block_tables(), lambda table: table.num_speculative_blocks > 0 and len(table.rows) > 0
    )
    assert with_a_row == BlockTable(((1, 2),), (0,), block_size=1, num_speculative_blocks=1, width=2)


def test_a_row_without_a_length_needs_no_other_row() -> None:
    assert minimal(block_tables(), found_in("fewer lengths than rows")) == BlockTable(
        ((1,),), (), block_size=1
    )


def test_a_large_id_is_the_only_one() -> None:
    assert minimal(block_tables(), found_in("ids above 2^30")) == BlockTable(
        ((2**31 - 64,),), (0,), block_size=1
    )


def test_a_conv_copy_past_a_draft_has_one_draft() -> None:
    assert minimal(conv_copies(), lambda copy: copy.num_accepted_tokens > 1) == Copy(
        PaddedState(3, (2, 1)), (1, 2), num_accepted_tokens=2, num_spec=1
    )


def test_a_conv_copy_that_rejects_a_draft_has_no_other() -> None:
    assert minimal(conv_copies(), found_in("no draft accepted")) == Copy(
        PaddedState(3, (2, 1)), (1, 2), num_spec=1
    )


def test_a_channel_first_conv_copy_is_one_row_of_one_channel() -> None:
    assert minimal(conv_copies(), found_in("channel-first layout")) == Copy(SMALLEST, (1,), layout="DS")


def test_a_channel_first_copy_past_a_draft_has_one_channel_of_two_rows() -> None:
    situation = "channel-first layout with accepted drafts"
    assert minimal(conv_copies(), found_in(situation)) == Copy(
        PaddedState(3, (1, 2)), (1, 2), num_accepted_tokens=2, num_spec=1, layout="DS"
    )


def test_two_rows_of_two_channels_need_no_draft() -> None:
    assert minimal(conv_copies(), lambda copy: min(copy.state.block_shape) == 2) == Copy(
        PaddedState(2, (2, 2)), (1,)
    )


def test_a_padded_page_has_one_element_more() -> None:
    assert minimal(conv_copies(), found_in("page padding")) == Copy(PaddedState(2, (1, 1), padding=1), (1,))


def test_a_state_behind_another_one_has_one_element_before_it() -> None:
    assert minimal(conv_copies(), found_in("behind another state of the page")) == Copy(
        PaddedState(2, (1, 1), padding=1, offset=1), (1,)
    )


def test_a_huge_stride_leaves_one_block_and_one_element() -> None:
    assert minimal(conv_copies(), found_in("addresses above 2^31")) == Copy(
        PaddedState(2, (1, 1), "float8_e4m3fn", HUGE_STRIDE), (1,)
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2", "int8"])
def test_a_dtype_changes_nothing_else(dtype: str) -> None:
    assert minimal(conv_copies(), found_in(f"dtype {dtype}")) == Copy(PaddedState(2, (1, 1), dtype), (1,))


def test_a_temporal_copy_past_a_draft_takes_the_second_of_two_blocks() -> None:
    assert minimal(temporal_copies(), lambda copy: copy.num_accepted_tokens > 1) == Copy(
        PaddedState(3, (1,)), (1, 2), num_accepted_tokens=2, num_spec=1
    )


def test_a_null_before_the_running_block_is_one_null() -> None:
    assert minimal(temporal_copies(), found_in("null blocks before the running one")) == Copy(
        PaddedState(2, (1,)), (0, 1), cur_block_idx=1
    )


def test_several_ranks_share_one_head_each() -> None:
    assert minimal(models(), found_in("several ranks")) == ShapeArguments(
        "linear_attention_state_shape", (("num_heads", 2), ("head_dim", 1)), tp_size=2
    )


def test_replicated_groups_are_one_group_on_two_ranks() -> None:
    assert minimal(models(), found_in("groups replicated")) == mamba2(shared=2, groups=1, tp_size=2)


def test_shared_groups_are_one_group_a_rank() -> None:
    assert minimal(models(), found_in("groups shared")) == mamba2(shared=2, groups=2, tp_size=2)


def mamba2(shared: int, groups: int, tp_size: int) -> ShapeArguments:
    sizes = {
        "intermediate_size": shared,
        "n_groups": groups,
        "num_heads": shared,
        "head_dim": 1,
        "state_size": 1,
        "conv_kernel": 2,
    }
    return ShapeArguments("mamba2_state_shape", tuple(sizes.items()), tp_size)


def test_a_speculative_token_needs_no_more_than_a_short_convolution() -> None:
    arguments = (("intermediate_size", 1), ("conv_kernel", 2))
    assert minimal(models(), found_in("speculative tokens")) == ShapeArguments(
        "short_conv_state_shape", arguments, num_spec=1
    )


def test_a_gated_delta_net_that_fails_is_no_published_model() -> None:
    sizes = ("num_k_heads", 1), ("num_v_heads", 1), ("head_k_dim", 1), ("head_v_dim", 1)
    assert minimal(models(), found_in("gated_delta_net_state_shape")) == ShapeArguments(
        "gated_delta_net_state_shape", (*sizes, ("conv_kernel_size", 2))
    )


def test_arguments_of_kda_that_do_not_matter_are_left_out() -> None:
    assert minimal(models(), found_in("kda_state_shape")) == ShapeArguments(
        "kda_state_shape", (("num_heads", 1), ("head_dim", 1))
    )


def test_a_published_model_is_on_one_rank_without_drafts() -> None:
    assert minimal(models(), found_in("published model")) == ShapeArguments(
        "linear_attention_state_shape", (("num_heads", 64), ("head_dim", 128)), published="MiniMax-Text-01"
    )
