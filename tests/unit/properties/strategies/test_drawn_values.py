"""Drawn values belong together: values, whatever situations they are in, are ones that the documents allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given

from properties.strategies import batch as batch_strategies
from properties.strategies import builders, chunks, layout, shapes
from properties.strategies.align import batches as align_batches
from properties.strategies.align import cache as align_cache
from properties.strategies.align import pointers, requests, sessions
from properties.strategies.align import runner as align_runner
from properties.strategies.align import setup as align_setup
from properties.strategies.align.batches import (
    BatchAfterForward,
    BatchBeforeForward,
    batches_after_forward,
    batches_before_forward,
    far_batches_after_forward,
)
from properties.strategies.align.cache import Cache
from properties.strategies.align.pointers import runs
from properties.strategies.align.runner import runner_steps
from properties.strategies.align.sessions import histories
from properties.strategies.align.setup import Setup, setups
from properties.strategies.batch import (
    POISON,
    Batch,
    BlockTable,
    batches,
    block_tables,
    decodes,
    prefills,
    shuffled_batches,
    splittings,
)
from properties.strategies.chunks import packed_sequences, vector_forms
from properties.strategies.layout import HUGE_STRIDE, Copy, conv_copies, layouts, temporal_copies
from properties.strategies.shapes import models
from statecheck.case.values import View

# Stateless functions and builders.


@given(batches())
def test_rows_are_decodes_then_short_and_long_extends_then_first_chunks_then_padding(batch: Batch) -> None:
    rows = batch.requests
    decodes = [row for row in rows if not row.prefilling]
    extends = [row for row in rows if row.prefilling and row.num_computed]
    firsts = [row for row in rows if row.prefilling and not row.num_computed]
    extends.sort(key=lambda row: row.query_len)
    assert rows == (*decodes, *extends, *firsts)
    assert batch.query_lens[len(rows) :] == (0,) * batch.padded_rows


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


# Align mode.


@given(setups())
def test_a_page_has_room_for_its_states_at_multiples_of_their_item_sizes(setup: Setup) -> None:
    pages = setup.pages()
    for group, pools in zip(setup.groups, setup.pool_names, strict=True):
        for pool in pools:
            end = 0
            for state, offset in zip(group.states, group.offsets, strict=True):
                assert offset % state.itemsize == pages[pool] % state.itemsize == 0
                assert offset >= end
                end = offset + state.nbytes
            assert end <= pages[pool]


@given(setups())
def test_drafts_have_room_in_a_block_and_in_every_conv_state(setup: Setup) -> None:
    assert 1 + setup.num_spec <= setup.block_size < 2**28
    for group in setup.groups:
        for kind, state in zip(setup.kinds, group.states, strict=False):
            assert state.kind == kind
            if kind == "conv":
                assert state.shape[0 if setup.layout == "SD" else 1] > setup.num_spec


@given(batches_after_forward() | batches_before_forward())
def test_tables_name_the_blocks_that_requests_own_in_the_rows_where_these_are(
    batch: BatchAfterForward | BatchBeforeForward,
) -> None:
    cache = batch.cache
    for group in range(cache.num_groups):
        rows = cache.table(group).rows()
        for row, request in enumerate(batch.row_order):
            for column in cache.columns[request]:
                assert rows[row][column] == cache.block(group, request, column) > 0


@given(batches_after_forward(), batches_after_forward())
def test_contents_depend_on_whose_block_it_is_and_not_on_its_label(
    batch: BatchAfterForward, other: BatchAfterForward
) -> None:
    shuffle = 1 + other.filling.shuffle
    filling = replace(batch.filling, seed=1)
    plain, two = (
        replace(batch, filling=filling).cache,
        replace(batch, filling=replace(filling, shuffle=shuffle)).cache,
    )
    assert plain.states(memory(plain)) == two.states(memory(two))


def memory(cache: Cache) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for step in cache.steps():
        name, value = getattr(step, "name", ""), getattr(step, "value", None)
        if name in cache.setup.pools and not isinstance(value, View):
            found[name] = value
    return found


ANYTHING = (
    packed_sequences()
    | shuffled_batches()
    | splittings()
    | block_tables()
    | conv_copies()
    | temporal_copies()
    | models()
    | builders.setups()
    | builders.setups().flatmap(builders.steps)
    | decodes()
    | prefills()
    | layouts()
    | vector_forms()
)
ALIGN = (
    batches_after_forward(flawed=True)
    | batches_before_forward(flawed=True)
    | far_batches_after_forward()
    | runner_steps()
    | histories()
    | runs()
)
MODULES = (
    align_batches,
    align_cache,
    align_runner,
    align_setup,
    batch_strategies,
    builders,
    chunks,
    layout,
    pointers,
    requests,
    sessions,
    shapes,
)
CLASSES = {name: kind for module in MODULES for name, kind in vars(module).items() if isinstance(kind, type)}


@given(ANYTHING | ALIGN)
def test_the_repr_of_a_drawn_value_evaluates_to_an_equal_one(value: object) -> None:
    assert eval(repr(value), CLASSES) == value  # noqa: S307 - what a reader pastes into an @example
