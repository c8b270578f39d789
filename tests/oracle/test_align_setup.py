"""What is known of a cache before a step, what is staged for it, and lists of pointers, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oracle.align import buffers, context, pointers, runner
from oracle.align.context import CacheGroup, StateMetadata, StateSpec, StateView, TableView
from oracle.align.memory import Move, Place, StateTensor
from oracle.align.pointers import Entry
from oracle.align.runner import Forgotten, RunnerRequest, Staged
from oracle.layout import StateGeometry
from oracle.variants import Variants
from tests.oracle.worked import CONV, STATES, TEMPORAL, case, refused

# Buffers.


@pytest.mark.parametrize(
    ("argument", "size", "dtype", "with_numpy"),
    [
        case("a-row", "", (3,), "int32", True),
        case("no-row", "", (0,), "int32", True),
        case("without-numpy", "", (2, 3), "bfloat16", False),
        case("no-dimension", "size", (), "int32", True),
        case("a-negative-length", "size[1]", (2, -1), "int32", True),
        *(case(one, "dtype", (3,), one, True) for one in ("bfloat16", "float8_e4m3fn", "float8_e5m2")),
    ],
)
def test_a_buffer_has_dimensions_and_a_type_of_numpy(
    argument: str, size: tuple[int, ...], dtype: str, with_numpy: bool
) -> None:
    with refused(argument):
        buffers.require_buffer(size, dtype, with_numpy)


@pytest.mark.parametrize(("rows", "elements"), [(None, 24), (0, 0), (2, 12), (4, 24)])
def test_rows_of_a_buffer_have_all_its_other_dimensions(rows: int | None, elements: int) -> None:
    assert buffers.copied_elements((4, 2, 3), rows) == elements


def test_only_rows_that_a_buffer_has_are_copied_and_the_others_stay() -> None:
    for rows in (-1, 5):
        with refused("n"):
            buffers.copied_elements((4, 2, 3), rows)
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


def test_there_are_groups_with_states() -> None:
    with pytest.raises(ValueError, match="with mamba layers"):
        context.mamba_groups(GROUPS[:1])


@pytest.mark.parametrize(
    ("spare", "types", "slots"), [(True, 2, 6), (False, 2, 5), (False, 1, 3), (False, 3, 5)]
)
def test_a_context_has_slots_for_each_layer_with_states(spare: bool, types: int, slots: int) -> None:
    profile = Variants(spare_state_slots=spare)
    assert context.num_slots(GROUPS, types, profile) == slots
    assert context.copy_capacity(4, GROUPS, types, profile) == 4 * slots


@pytest.mark.parametrize(
    ("argument", "shapes", "layout", "drafts"),
    [
        case("just-rows", "", ((3, 2), (1, 1)), "SD", 2),
        case("too-few-rows", "shapes[0]", ((2, 3), (1, 1)), "SD", 2),
        case("just-rows-last", "", ((2, 3), (1, 1)), "DS", 2),
        case("too-few-rows-last", "shapes[0]", ((3, 2), (1, 1)), "DS", 2),
        case("one-state", "shapes[0]", ((2, 2),), "SD", 2),
        case("a-second-window", "shapes[1]", ((3, 2), (2, 2), (1,)), "SD", 2),
        case("no-window", "", ((2, 2, 2), (1,)), "SD", 2),
        case("a-block-of-drafts", "", ((9, 1), (1,)), "SD", 3),
        case("more-drafts-than-a-block", "num_speculative_blocks", ((9, 1), (1,)), "SD", 4),
    ],
)
def test_a_cache_has_rows_and_blocks_for_the_tokens_of_a_step(
    argument: str, shapes: tuple[tuple[int, ...], ...], layout: str, drafts: int
) -> None:
    groups = (GROUPS[0], CacheGroup(("c",), StateSpec(4, shapes, drafts)))
    with refused(argument):
        context.require_context(1, 1, groups, layout)


@pytest.mark.parametrize(
    ("argument", "tables"),
    [
        case("one-column", "", [((2, 1), (8, 5))]),
        case("gaps", "block_tables[0]", [((1, 2), (8, 5))]),
        case("alike", "", [((2, 3), (8, 1)), ((4, 3), (8, 1))]),
    ],
)
def test_tables_are_alike_and_without_gaps(argument: str, tables: list[tuple[tuple[int, ...], ...]]) -> None:
    views = [TableView("int32", shape, strides) for shape, strides in tables]
    with refused(argument):
        context.require_tables(views, len(views))


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


def with_view(view: StateView, at: int = 0) -> dict[str, tuple[StateView, ...]]:
    return LAYERS | {"c": (*VIEWS[:at], view, *VIEWS[at + 1 :])}


@pytest.mark.parametrize(
    ("argument", "view", "at"),
    [
        ("", StateView((9, 4), (15, 1), 4), 1),
        ("", StateView((9, 1, 4), (15, 9, 1), 4), 1),
        ("forward_context['c'].kv_cache[0]", StateView((9, 3, 2), (30, 4, 1), 2), 0),
    ],
)
def test_blocks_of_states_have_no_gaps(argument: str, view: StateView, at: int) -> None:
    with refused(argument):
        bound(with_view(view, at))


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


@pytest.mark.parametrize(
    ("argument", "columns", "blocks"),
    [
        case("source-past-the-blocks", "src_col", (3, 0, 0), (1, 2, 3)),
        case("target-past-the-blocks", "dst_col", (0, 3, 0), (1, 2, 3)),
        case("a-null-draft", "block_ids[2]", (1, 0, 1), (1, 2, 0)),
        case("no-block-of-the-pool", "block_ids[2]", (0, 2, 1), (1, 2, 12)),
    ],
)
def test_a_copy_of_columns_that_a_request_does_not_have_is_not_listed(
    argument: str, columns: tuple[int, int, int], blocks: tuple[int, ...]
) -> None:
    with refused(argument):
        pointers.entries([CONV], "SD", [blocks], *columns)


def test_the_last_block_of_the_pool_and_the_last_column_are_listed() -> None:
    assert pointers.entries([TEMPORAL], "SD", [(11, 1)], 0, 1, 1)[0].size == 1


def test_entries_are_listed_as_long_as_there_is_room_and_copied_where_they_have_bytes() -> None:
    pointers.require_capacity(1, 3, 4)
    with refused("bufs.offset"):
        pointers.require_capacity(2, 3, 4)
    listed = [Entry(Place("p", at), Place("p", at + 2), size) for at, size in ((0, 1), (1, 0), (5, -1))]
    listed.append(Entry(Place("unknown", 0), Place("p", 0), 0))
    assert pointers.memory_after({"p": b"abcdefgh"}, listed) == {"p": b"abadefgh"}


def test_lists_are_as_long_as_the_sources() -> None:
    pointers.require_lists((2, 2, 2))
    for lengths, argument in (((2, 1, 2), "dst_ptrs"), ((2, 2, 3), "sizes")):
        with refused(argument):
            pointers.require_lists(lengths)


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


def test_no_request_ran_in_a_column_below_none() -> None:
    assert runner.previous_column({"a": -1}, "a", 8, 4) == -1
    with refused("mamba_state_idx['a']"):
        runner.previous_column({"a": -2}, "a", 8, 4)


def test_copies_are_listed_for_columns_and_blocks_that_a_request_has() -> None:
    plan = runner.StepPlan({}, (), (Move(1, 1, 0, 1),))
    requests = {"b": RunnerRequest(((1, 2, 3),), 0)}
    runner.require_blocks(plan, ["a", "b"], requests, STATES)
    assert runner.listed(plan, ["a", "b"], requests, STATES, "SD")[1].source == Place("pool", 24 + 5)
    for blocks, argument in (((1, 2), "block_ids"), ((1, 2, 0), "block_ids[2]"), ((0, 2, 3), "block_ids[0]")):
        with refused(argument):
            runner.require_blocks(plan, ["a", "b"], {"b": RunnerRequest((blocks,), 0)}, STATES)


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
    for column in (-1, most + 1):
        with refused("mamba_state_idx['a']"):
            runner.staged_columns({"a": column}, ["a"])
    for number, room in ((-1, 2), (3, 2), (4, 9)):
        with refused("num_reqs"):
            runner.staged_rows(["a", "b", "c"], number, room)
