"""Metadata of a cache before a step, staged values, and lists of pointers, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oracle.align import buffers, context, pointers, runner
from oracle.align.context import CacheGroup, StateMetadata, StateSpec, StateView
from oracle.align.memory import Move, Place, StateTensor
from oracle.align.pointers import Entry
from oracle.align.runner import Forgotten, RunnerRequest, Staged
from oracle.layout import StateGeometry
from oracle.variants import Variants
from tests.oracle.worked import STATES, TEMPORAL, case, refused

# Buffers.


@pytest.mark.parametrize(("rows", "elements"), [(None, 24), (0, 0), (2, 12), (4, 24)])
def test_rows_of_a_buffer_have_all_its_other_dimensions(rows: int | None, elements: int) -> None:
    assert buffers.copied_elements((4, 2, 3), rows) == elements


def test_only_rows_that_a_buffer_has_are_copied_and_the_others_stay() -> None:
    assert buffers.overwritten((1, 2, 3), (9,)) == (9, 2, 3)


# Groups and their states.

SPEC = StateSpec(4, ((3, 2), (2, 2)), 2)
GROUPS = (
    CacheGroup(("a", "b")),
    CacheGroup(("c", "d"), SPEC),
    CacheGroup(("e",), replace(SPEC, shapes=((5,),))),
)


def test_groups_with_states_are_those_that_have_a_specification() -> None:
    assert context.mamba_groups(GROUPS) == ((1, 2), SPEC)


@pytest.mark.parametrize(
    ("spare", "types", "slots"), [(True, 2, 6), (False, 2, 5), (False, 1, 3), (False, 3, 5)]
)
def test_a_context_has_slots_for_each_layer_with_states(spare: bool, types: int, slots: int) -> None:
    profile = Variants(spare_state_slots=spare)
    assert context.num_slots(GROUPS, types, profile) == slots
    assert context.copy_capacity(4, GROUPS, types, profile) == 4 * slots


# A page of 60 bytes: three rows of two channels of two bytes, then two by two numbers of four bytes.
CONV_VIEW = StateView((9, 3, 2), (30, 2, 1), 2, "pool")
STATE_VIEW = StateView((9, 2, 2), (15, 2, 1), 4, "pool", 12)
VIEWS = (CONV_VIEW, STATE_VIEW)
LAYERS = {"c": VIEWS, "d": VIEWS[:1], "e": VIEWS}


def bound(layers: Any = LAYERS, layout: str = "SD", kinds: Any = ("conv", "temporal"), types: int = 2) -> Any:
    return context.bound_states(GROUPS, layers, kinds, types, layout)


def test_states_are_bound_by_group_layer_and_state() -> None:
    windows = [StateTensor("pool", StateGeometry(9, (3, 2), 2, 60), "conv", group) for group in (0, 1)]
    states = [StateTensor("pool", StateGeometry(9, (2, 2), 4, 60, 12), "temporal", group) for group in (0, 1)]
    assert bound() == (windows[0], states[0], windows[0], windows[1], states[1])


def test_a_context_describes_states_by_bytes_and_rows() -> None:
    window, state = bound()[3:]
    turned = replace(window, geometry=replace(window.geometry, block_shape=(2, 3)))
    assert context.metadata([window, state], "SD", 3) == (
        StateMetadata(60, 2, 2, 3, 1),
        StateMetadata(60, 4, 4, 0, 1),
        StateMetadata(),
    )
    assert context.metadata([turned], "DS", 1) == (StateMetadata(60, 2, 1, 3, 1, 2, 6),)


# Lists of pointers.


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        case("stays", (1, 1, 0), []),
        case("goes-on", (0, 1, 0), [(8, 16, 5), (8 + 5, 16 + 5, 1)]),
        case("with-a-bias", (0, 1, 2), [(8 + 2, 16, 3), (24 + 5, 16 + 5, 1)]),
        case("to-the-front", (1, 1, 1), [(16 + 1, 16, 4), (24 + 5, 16 + 5, 1)]),
    ],
)
def test_a_copy_is_listed_with_an_entry_for_each_state(
    columns: tuple[int, int, int], expected: list[tuple[int, int, int]]
) -> None:
    listed = [Entry(Place("pool", source), Place("pool", target), size) for source, target, size in expected]
    assert list(pointers.entries(STATES, "SD", [(1, 2, 3)], *columns)) == listed


def test_the_last_block_of_the_pool_and_the_last_column_are_listed() -> None:
    assert pointers.entries([TEMPORAL], "SD", [(11, 1)], 0, 1, 1)[0].size == 1


def test_entries_are_listed_while_there_is_room_and_copied_where_they_have_bytes() -> None:
    pointers.require_capacity(1, 3, 4)
    with refused("bufs.offset"):
        pointers.require_capacity(2, 3, 4)
    listed = [Entry(Place("p", at), Place("p", at + 2), size) for at, size in ((0, 1), (1, 0), (5, -1))]
    listed.append(Entry(Place("unknown", 0), Place("p", 0), 0))
    assert pointers.memory_after({"p": b"abcdefgh"}, listed) == {"p": b"abadefgh"}


# The runner.


def test_a_step_moves_the_rows_that_change_their_column() -> None:
    # Column 0 to 1 with two accepted; no state yet; stays; not remembered, so that it ran where its last token is.
    computed, scheduled = {"a": 3, "b": 0, "c": 5, "d": 4}, {"a": 2, "b": 3, "c": 1, "d": 3}
    requests = {name: RunnerRequest(((1, 2, 3),), count) for name, count in computed.items()}
    remembered = {"a": 0, "c": 1, "d": 7, "gone": 4}
    plan = runner.preprocess(
        remembered,
        Forgotten(("gone",), None, ("d",)),
        list("abcd"),
        [2, 1, 2, 1],
        scheduled,
        requests,
        4,
        2,
        4,
    )
    assert plan.state_idx == {"a": 1, "b": 0, "c": 1, "d": 1}
    assert plan.moves == (Move(0, 0, 1, 1), Move(3, 0, 1, 0))
    assert plan.counts == (1, 1, 2, 1)


def test_finished_preempted_and_resumed_requests_are_forgotten() -> None:
    columns = dict(zip("abcd", range(4), strict=True))
    assert runner.cleaned(columns, Forgotten("a", "b", "c")) == {"d": 3}
    assert runner.cleaned(columns, Forgotten()) == columns


def test_copies_are_listed_for_columns_and_blocks_that_a_request_has() -> None:
    plan = runner.StepPlan({}, (), (Move(1, 1, 0, 1),))
    requests = {"b": RunnerRequest(((1, 2, 3),), 0)}
    runner.require_blocks(plan, ["a", "b"], requests, STATES)
    assert runner.listed(plan, ["a", "b"], requests, STATES, "SD")[1].source == Place("pool", 24 + 5)


def test_lists_and_tables_copy_the_same() -> None:
    plan = runner.StepPlan({}, (), (Move(1, 0, 1, 1), Move(0, 1, 0)))
    tables, memory = [((1, 2), (3, 4))], {"pool": bytes(range(96))}
    requests = {name: RunnerRequest((blocks,), 0) for name, blocks in zip("ab", tables[0], strict=True)}
    by_lists: dict[str, Any] = runner.copied_by_lists(memory, plan, ["a", "b"], requests, STATES, "SD")
    assert by_lists == runner.copied_by_tables(memory, plan, STATES, "SD", tables, Variants())
    assert by_lists["pool"][8:14] == bytes(range(16, 22))
    assert by_lists["pool"][32:36] == bytes(range(25, 29))


def test_rows_of_a_batch_are_staged_with_numbers_of_31_bits() -> None:
    most = 2**31 - 1
    rows = runner.staged_rows(["a", "b", "c"], 2, 2)
    drafts, computed = {"b": (7, 8)}, {"a": 0, "b": 9}
    found = runner.staged(rows, {"a": most, "b": 0, "c": -9}, {"a": 1, "b": 3}, drafts, computed)
    assert found == Staged((most, 0), (1, 3), (0, 9), (0, 2))
    assert runner.staged_rows(["a"], 0, 1) == []
