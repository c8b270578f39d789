"""The strategies reach what they claim: every named situation, and often enough to matter in a run of 100 examples."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from properties.harness.case.values import Tensor
from properties.meta.strategies.drawing import drawn
from properties.strategies.batch import (
    POISON,
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
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest, setups, steps
from properties.strategies.chunks import (
    Packed,
    integer_vectors,
    lengths_around,
    packed_sequences,
)
from properties.strategies.layout import (
    DTYPES,
    HUGE_STRIDE,
    LAYOUTS,
    Copy,
    PaddedState,
    conv_copies,
    layouts,
    temporal_copies,
)
from properties.strategies.shapes import TP_SIZES, ShapeArguments, models
from properties.strategies.situations import all_situations
from properties.subjects.impl import PUBLISHED_MODELS

NEVER = 0
"""A situation that the strategy rules out, although the dataclass can name it."""

BATCHES = {
    "empty batch": 1,
    "padding only": 1,
    "decodes only": 20,
    "prefills only": 7,
    "decodes before prefills": 12,
    "a prefill before a decode": NEVER,
    "a decode with drafts": 25,
    "first chunk": 15,
    "chunked prefill": 12,
    "one-token prompt chunk": 10,
    "uniform speculative decodes": 7,
    "uniform speculative decodes before padding": 2,
    "zero-length rows at the back": 18,
    "padded tokens": 22,
}
COPIES = {
    "no drafts": 10,
    "no draft accepted": 9,
    "some drafts accepted": 15,
    "all drafts accepted": 10,
    "null blocks before the running one": 25,
    "blocks out of order": 20,
    "page padding": 20,
    "behind another state of the page": 12,
    "addresses above 2^31": 6,
    "channel-first layout": 20,
    "channel-first layout with accepted drafts": 12,
    **{f"dtype {name}": 4 for name in DTYPES},
}
STRATEGIES: dict[str, Callable[[], SearchStrategy[Any]]] = {
    "packed_sequences": packed_sequences,
    "batches": batches,
    "shuffled_batches": shuffled_batches,
    "splittings": splittings,
    "block_tables": block_tables,
    "conv_copies": conv_copies,
    "temporal_copies": temporal_copies,
    "models": models,
    "setups": setups,
    "steps": lambda: setups().flatmap(steps),
}
LEAST_PERCENT: dict[str, Mapping[str, float]] = {
    "setups": {
        "mamba1": 15,
        "mamba2": 15,
        "gdn": 15,
        "mode none": 15,
        "mode align": 15,
        "mode all": 8,
        "speculation": 20,
        "full graphs": 20,
        "buffers smaller than the batch may be": 10,
        "spare speculative blocks": 10,
        "parallel drafting": 20,
        "decode context parallelism": 20,
    },
    "steps": {
        "no row": 1,
        "decodes only": 8,
        "prefills only": 8,
        "decodes before prefills": 15,
        "one-token first chunk": 3,
        "one-token prompt tail": 2,
        "drafted nothing after accepting several": 3,
        "some drafted and some did not": 3,
        "padding rows": 25,
        "padding rows behind prefills": 15,
        "padded tokens": 25,
        "no prompt marks": 20,
        "no host lengths": 10,
        "no host knowledge of prompts": 5,
        "optimistic bounds": 8,
        "no counts": 10,
        "a row without drafts between rows with drafts": 0.6,
    },
    "packed_sequences": {
        "no sequence": 1,
        "only empty sequences": 1,
        "an empty sequence at the front": 4,
        "an empty sequence between others": 6,
        "zero-length rows at the back": 5,
        "a length at k * chunk_size": 20,
        "a length at k * chunk_size + 1": 20,
        "a length at k * chunk_size - 1": 20,
        "a start inside a physical chunk": 30,
        "several chunks in a sequence": 40,
    },
    "batches": BATCHES,
    "shuffled_batches": BATCHES | {"a prefill before a decode": 10},
    "splittings": {
        "a threshold above one": 20,
        "a query at the threshold": 20,
        "a query one above the threshold": 5,
        "every query within the threshold": 20,
        "a long first query": 8,
        "decodes before a long query": 4,
        "a bound above the threshold that no query reaches": 4,
        "even decodes where uniform ones are required": 2,
        "uneven decodes where uniform ones are required": 1,
        "padded decodes where uniform ones are required": 2,
        "a short prompt chunk where those are prefills": 4,
    },
    "block_tables": {
        "no row": 2,
        "rows of different lengths": 20,
        "a padded row": 10,
        "fewer lengths than rows": 15,
        "null blocks before the running one": 15,
        "wider than needed": 25,
        "poisoned columns": 30,
        "strided view": 20,
        "a view that starts inside its storage": 10,
        "a length at k * block_size": 10,
        "a length at k * block_size + 1": 10,
        "a length at k * block_size - 1": 10,
        "speculative blocks": 30,
        "ids above 2^30": 15,
        "ids of 64 bits": 15,
    },
    "conv_copies": COPIES,
    "temporal_copies": COPIES,
    "models": {
        "linear_attention_state_shape": 4,
        "mamba1_state_shape": 4,
        "mamba2_state_shape": 10,
        "short_conv_state_shape": 7,
        "gated_delta_net_state_shape": 7,
        "kda_state_shape": 7,
        "published model": 12,
        "several ranks": 30,
        "speculative tokens": 20,
        "groups replicated": 5,
        "groups shared": 3,
        "arguments left to their defaults": 6,
        "channel-first layout": 12,
    },
}


@cache
def drawn_by(strategy: str) -> tuple[Any, ...]:
    return drawn(STRATEGIES[strategy]())


@pytest.fixture(scope="module", params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> str:
    """Each of the names; tests of the same one run after each other, so that its values are drawn once."""
    return request.param


def percent(strategy: str, names: Callable[[Any], Iterable[Hashable]]) -> dict[Hashable, float]:
    """How many of a hundred drawn values have each name."""
    values = drawn_by(strategy)
    counted = Counter(name for value in values for name in set(names(value)))
    return {name: 100 * count / len(values) for name, count in counted.items()}


@pytest.mark.slow
def test_every_situation_that_a_value_can_name_has_its_least_frequency(strategy: str) -> None:
    for value in drawn_by(strategy):
        assert all_situations(value) == set(LEAST_PERCENT[strategy])


@pytest.mark.slow
def test_every_situation_is_reached_often_enough(strategy: str) -> None:
    seen = percent(strategy, lambda value: value.situations())
    wanted = {name: least for name, least in LEAST_PERCENT[strategy].items() if least != NEVER}
    missed = {name: seen.get(name, 0) for name, least in wanted.items() if seen.get(name, 0) < least}
    assert not missed, f"{missed} %, but should be {[wanted[name] for name in missed]} [{strategy}]"


@pytest.mark.slow
def test_a_situation_that_a_strategy_rules_out_never_happens(strategy: str) -> None:
    ruled_out = {name for name, least in LEAST_PERCENT[strategy].items() if least == NEVER}
    assert not ruled_out & percent(strategy, lambda value: value.situations()).keys()


def test_every_published_model_is_reached_by_its_name() -> None:
    seen = percent("models", lambda model: [model.published])
    assert min(seen.get(model.name, 0) for model in PUBLISHED_MODELS) >= 0.5


def test_published_models_are_a_fair_share_but_not_all() -> None:
    assert 12 <= 100 - percent("models", lambda model: [model.published])[""] <= 60


def test_every_number_of_ranks_is_reached() -> None:
    seen = percent("models", lambda model: [model.tp_size])
    assert seen.keys() == set(TP_SIZES)
    assert min(seen.values()) >= 6


def test_every_chunk_size_is_reached() -> None:
    seen = percent("packed_sequences", lambda packed: [packed.chunk_size])
    assert seen.keys() == {1, 2, 3, 4, 7, 8, 16, 64, 256}
    assert min(seen.values()) >= 3


def test_every_block_size_is_reached() -> None:
    seen = percent("block_tables", lambda table: [table.block_size])
    assert seen.keys() == {1, 2, 3, 4, 8}
    assert min(seen.values()) >= 6


@pytest.mark.parametrize("strategy", ["conv_copies", "temporal_copies"])
def test_every_number_of_accepted_and_rejected_drafts_is_reached(strategy: str) -> None:
    seen = percent(strategy, lambda copy: [(copy.num_accepted_tokens - 1, rejected(copy))])
    assert seen.keys() == set(itertools.product(range(3), range(3)))
    assert min(seen.values()) >= 3


def rejected(copy: Copy) -> int:
    return 1 + copy.num_spec - copy.num_accepted_tokens


def test_temporal_states_have_one_to_three_dimensions_within_a_block() -> None:
    seen = percent("temporal_copies", lambda copy: [len(copy.state.block_shape)])
    assert seen.keys() == {1, 2, 3}
    assert min(seen.values()) >= 10


def test_an_accepted_count_that_is_all_stored_rows_is_reached() -> None:
    seen = percent("conv_copies", lambda copy: [copy.num_accepted_tokens == stored_rows(copy)])
    assert 10 <= seen[True] <= 60


def stored_rows(copy: Copy) -> int:
    return copy.state.block_shape[LAYOUTS.index(copy.layout)]


@given(batches() | shuffled_batches())
def test_lengths_of_a_batch_belong_together(batch: Batch) -> None:
    starts, lens = batch.query_start_loc, batch.query_lens
    assert tuple(end - start for start, end in itertools.pairwise(starts)) == lens
    assert batch.num_reqs == len(batch.seq_lens) == len(batch.is_prefilling)
    assert batch.num_actual_tokens == starts[-1] + batch.padded_tokens
    assert all(0 <= query <= length for query, length in zip(lens, batch.seq_lens, strict=True))


@given(batches())
def test_rows_are_decodes_then_short_and_long_extends_then_first_chunks_then_padding(batch: Batch) -> None:
    rows = batch.requests
    decodes = [one for one in rows if not one.prefilling]
    extends = [one for one in rows if one.prefilling and one.num_computed]
    firsts = [one for one in rows if one.prefilling and not one.num_computed]
    extends.sort(key=lambda one: one.query_len)
    assert rows == (*decodes, *extends, *firsts)
    assert batch.query_lens[len(rows) :] == (0,) * batch.padded_rows


@given(batches() | shuffled_batches())
def test_decodes_have_a_prompt_behind_them_and_every_row_has_a_token(batch: Batch) -> None:
    assert all(one.query_len >= 1 for one in batch.requests)
    assert all(one.num_computed >= 1 for one in batch.requests if not one.prefilling)


@given(batches())
def test_a_batch_that_is_called_uniform_is_uniform(batch: Batch) -> None:
    if "uniform speculative decodes" in batch.situations():
        first, *others = batch.requests
        assert first.query_len > 1
        assert {one.query_len for one in others} == {first.query_len}
        assert not any(batch.is_prefilling)


@given(st.integers(0, 3).flatmap(lambda drafts: st.tuples(st.just(drafts), batches(num_spec=drafts))))
def test_a_decode_has_no_more_drafts_than_were_asked_for(drawn: tuple[int, Batch]) -> None:
    drafts, batch = drawn
    assert all(one.query_len <= 1 + drafts for one in batch.requests if not one.prefilling)


@given(batches(padding=False, max_rows=2))
def test_a_batch_without_padding_has_its_requests_and_their_tokens_only(batch: Batch) -> None:
    assert batch.padded_rows == batch.padded_tokens == 0
    assert batch.num_reqs <= 2


@given(block_tables())
def test_physical_blocks_of_a_table_belong_to_one_row_and_one_column(table: BlockTable) -> None:
    physical = [block for row in table.rows for block in row if block != 0]
    assert len(set(physical)) == len(physical)
    assert POISON not in physical
    assert all(0 < block < 2**31 for block in physical) or table.dtype == "int64"


@given(block_tables())
def test_a_row_has_the_running_block_and_the_speculative_ones_and_no_null_among_them(
    table: BlockTable,
) -> None:
    for row, length in zip(table.rows, table.seq_lens, strict=False):
        running = max(0, -(-length // table.block_size) - 1)
        assert len(row) == running + 1 + table.num_speculative_blocks
        assert 0 not in row[max(0, running - 1) :]


@given(block_tables())
def test_a_tensor_is_poison_wherever_no_row_has_a_column(table: BlockTable) -> None:
    tensor = table.tensor()
    own = [len(row) for row in table.rows]
    for row, used, found in zip(table.rows, own, tensor.rows(), strict=True):
        assert found[:used] == row
        assert set(found[used:]) <= {POISON}
    assert tensor.elements is not None
    assert len(tensor.elements) - tensor.elements.count(POISON) == sum(own)


@given(block_tables(rows_per_length=True))
def test_a_table_asked_to_have_a_row_per_length_has(table: BlockTable) -> None:
    assert len(table.rows) == len(table.seq_lens)


@given(conv_copies() | temporal_copies())
def test_an_accepted_count_counts_the_sampled_token_and_at_most_all_drafts(copy: Copy) -> None:
    assert 1 <= copy.num_accepted_tokens <= 1 + copy.num_spec
    assert copy.cur_block_idx + copy.num_accepted_tokens <= len(copy.block_ids)


@given(conv_copies())
def test_an_accepted_count_is_within_the_stored_rows(copy: Copy) -> None:
    assert copy.num_accepted_tokens <= 1 + copy.num_spec <= stored_rows(copy)


@given(conv_copies() | temporal_copies())
def test_blocks_of_a_copy_are_nulls_and_then_physical_ones_of_the_pool(copy: Copy) -> None:
    nulls, physical = copy.block_ids[: copy.cur_block_idx], copy.block_ids[copy.cur_block_idx :]
    assert set(nulls) <= {0}
    assert len(set(physical)) == len(physical) == 1 + copy.num_spec
    assert all(0 < block < copy.state.num_blocks for block in physical)


@given(conv_copies() | temporal_copies())
def test_states_lie_within_their_pages_and_in_memory_that_a_laptop_can_reserve(copy: Copy) -> None:
    tensor = copy.state.tensor()
    assert tensor.offset <= copy.state.padding
    assert tensor.storage_size <= (6 * HUGE_STRIDE if copy.state.padding >= HUGE_STRIDE else 4096)


@given(models())
def test_a_published_model_has_the_published_arguments(model: ShapeArguments) -> None:
    published = {one.name: (one.family, one.arguments) for one in PUBLISHED_MODELS}
    assert not model.published or published[model.published] == (model.family, model.arguments)


@given(models())
def test_ranks_share_heads_and_channels_evenly_and_groups_evenly_or_as_replicas(
    model: ShapeArguments,
) -> None:
    sizes, tp = dict(model.arguments), model.tp_size
    shared = [sizes[name] for name in ("num_heads", "num_k_heads", "num_v_heads") if name in sizes]
    assert all(size % tp == 0 for size in (*shared, sizes.get("intermediate_size", 0)))
    groups = sizes.get("n_groups", tp)
    assert groups % tp == 0 or tp % groups == 0


@given(st.integers(1, 9).flatmap(lambda unit: st.tuples(st.just(unit), lengths_around(unit))))
def test_lengths_around_a_unit_reach_two_beyond_three_of_them(drawn: tuple[int, int]) -> None:
    unit, length = drawn
    assert 0 <= length <= 3 * unit + 2


@given(packed_sequences().flatmap(lambda packed: st.tuples(st.just(packed), integer_vectors(packed.starts))))
def test_integer_vectors_hold_the_same_values_dense_or_spread(drawn: tuple[Packed, Tensor]) -> None:
    packed, tensor = drawn
    assert tensor.values() == packed.starts
    assert tensor.dtype in ("int32", "int64")


ANYTHING = (
    st.one_of([strategy() for strategy in STRATEGIES.values()])
    | decodes()
    | prefills()
    | layouts()
    | integer_vectors((0, 2, 5))
)
_DRAWN = (
    Batch,
    BlockTable,
    Copy,
    ShapeArguments,
    Packed,
    RequestRow,
    BuilderSetup,
    Splitting,
    PaddedState,
    BuildCall,
    StepRequest,
    Tensor,
)
CLASSES = {one.__name__: one for one in _DRAWN}


@given(ANYTHING)
def test_the_repr_of_a_drawn_value_evaluates_to_an_equal_one(value: object) -> None:
    assert eval(repr(value), CLASSES) == value  # noqa: S307 - what a reader pastes into an @example
