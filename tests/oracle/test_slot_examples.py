"""Slots of states, worked by hand on pools of a few bytes."""

from __future__ import annotations

from typing import Any

import pytest

from oracle.slots import (
    EntryMove,
    StateView,
    accepted_states,
    cleared_slots,
    copied_slots,
    last_accepted,
    moved,
    slots_of_rows,
    tracked_slots,
)
from tests.oracle.worked import refused

# Two layers of three slots; a state has two elements of one byte.
CONV = StateView("conv", 1, (2, 3, 2), (6, 2, 1), 0)
# One layer of three slots; a state has one element of two bytes.
TEMPORAL = StateView("temporal", 2, (1, 3, 1), (3, 1, 1), 0)
MEMORY = {"conv": bytes(range(1, 13)), "temporal": bytes(range(21, 27))}


def held(conv: list[int] | None = None, temporal: list[int] | None = None) -> dict[str, bytes]:
    """The pools with other bytes."""
    return {
        "conv": MEMORY["conv"] if conv is None else bytes(conv),
        "temporal": MEMORY["temporal"] if temporal is None else bytes(temporal),
    }


def test_an_entry_begins_where_its_strides_and_its_offset_say() -> None:
    view = StateView("pool", 4, (2, 3, 2, 2), (50, 10, 3, 1), 7)
    # Element 7 + 50 + 2 * 10 = 77 is the first one.
    assert list(view.entry(1, 2)) == [308, 312, 320, 324]
    assert list(view.entry(0, 0, 1)) == [40, 44]
    assert list(CONV.entry(1, 2)) == [10, 11]


def test_all_sources_are_read_before_a_target_is_written() -> None:
    moves = [EntryMove(CONV, (0, 0), CONV, (0, 1)), EntryMove(CONV, (0, 1), CONV, (0, 0))]
    assert moved(MEMORY, moves) == held([3, 4, 1, 2, *range(5, 13)])


def test_an_element_may_move_between_pools_as_it_is() -> None:
    wide = StateView("wide", 2, (1, 2, 1), (2, 1, 1), 0)
    memory = {**MEMORY, "wide": bytes(4)}
    after = moved(memory, [EntryMove(TEMPORAL, (0, 2), wide, (0, 1))])
    assert after == {**MEMORY, "wide": bytes([0, 0, 25, 26])}


def test_two_moves_with_one_target_are_refused() -> None:
    with refused("targets"):
        moved(MEMORY, [EntryMove(CONV, (0, 0), CONV, (0, 2)), EntryMove(CONV, (0, 1), CONV, (0, 2))])


def test_a_copy_is_of_each_layer_of_each_state() -> None:
    after = copied_slots(MEMORY, [CONV, TEMPORAL], [0], [2])
    assert after == held([1, 2, 3, 4, 1, 2, 7, 8, 9, 10, 7, 8], [21, 22, 23, 24, 21, 22])
    assert copied_slots(MEMORY, [TEMPORAL], [0, 0], [1, 2]) == held(temporal=[21, 22] * 3)


def test_a_slot_that_is_source_and_target_is_refused() -> None:
    with refused("targets"):
        copied_slots(MEMORY, [CONV], [0, 1], [1, 2])
    with refused("targets"):
        copied_slots(MEMORY, [CONV], [0, 1], [2, 2])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"sources": [0], "mask": [True], "targets": [2]}, [21, 22, 23, 24, 21, 22]),
        ({"sources": [0], "mask": [False], "targets": [2]}, [21, 22, 23, 24, 25, 26]),
        ({"sources": [-1], "mask": [True], "targets": [1]}, [21, 22, 23, 24, 25, 26]),
        ({"sources": [2], "mask": [True], "targets": [-1]}, [21, 22, 23, 24, 25, 26]),
        ({"sources": [2], "mask": [True], "targets": [0]}, [25, 26, 23, 24, 25, 26]),
        ({"sources": [0, 1], "mask": [False, True], "targets": [1, 2]}, [21, 22, 23, 24, 23, 24]),
    ],
)
def test_a_row_at_a_boundary_keeps_its_state_in_another_slot(given: dict[str, Any], kept: list[int]) -> None:
    assert tracked_slots(MEMORY, [TEMPORAL], **given) == held(temporal=kept)


def test_a_row_without_a_slot_copies_nothing_from_in_front_of_the_first_slot() -> None:
    behind = StateView("temporal", 2, (1, 2, 1), (2, 1, 1), 1)
    assert tracked_slots(MEMORY, [behind], [-1], [True], [1]) == MEMORY


def test_cleared_slots_hold_zeros_in_each_layer() -> None:
    after = cleared_slots(MEMORY, [CONV, TEMPORAL], [1, 2])
    assert after == held([1, 2, 0, 0, 0, 0, 7, 8, 0, 0, 0, 0], [21, 22, 0, 0, 0, 0])
    assert cleared_slots(MEMORY, [CONV, TEMPORAL], []) == MEMORY


# After each of two drafts of two rows: one layer, one element of two bytes.
STEPS = StateView("steps", 2, (1, 2, 2, 1), (4, 2, 1, 1), 0)
VERIFIED = {"temporal": MEMORY["temporal"], "steps": bytes(range(31, 39))}


@pytest.mark.parametrize(
    ("slots", "drafts", "kept"),
    [
        ([0, 2], [1, 0], [33, 34, 23, 24, 35, 36]),
        ([0, 2], [-1, 1], [21, 22, 23, 24, 37, 38]),
        ([-1, 0], [0, 1], [37, 38, 23, 24, 25, 26]),
    ],
)
def test_a_slot_holds_the_state_after_its_last_accepted_draft(
    slots: list[int], drafts: list[int], kept: list[int]
) -> None:
    after = accepted_states(VERIFIED, [TEMPORAL], [STEPS], [(slots, drafts)])
    assert after == {"temporal": bytes(kept), "steps": VERIFIED["steps"]}


def test_slots_that_keep_a_boundary_are_written_as_well() -> None:
    after = accepted_states(VERIFIED, [TEMPORAL], [STEPS], [([0, 1], [0, 0]), ([2], [1])])
    assert after["temporal"] == bytes([31, 32, 35, 36, 33, 34])


def test_each_layer_has_its_own_steps() -> None:
    states = StateView("pool", 1, (2, 2, 1), (2, 1, 1), 0)
    steps = StateView("steps", 1, (2, 1, 2, 1), (2, 2, 1, 1), 0)
    memory = {"pool": bytes(4), "steps": bytes([1, 2, 3, 4])}
    after = accepted_states(memory, [states], [steps], [([1], [1])])
    assert after["pool"] == bytes([0, 2, 0, 4])


def test_the_last_accepted_draft_is_counted_within_its_row() -> None:
    accepted, counts = [[0, 2], [3, 4, 5]], [2, 1]
    assert last_accepted(accepted, counts, None, 3, 4) == ([2, 0], None)
    assert last_accepted([[0, 1, 2], [3, 5]], [3, 2], None, 3, 4) == ([2, 2], None)


@pytest.mark.parametrize(
    ("before", "count", "kept"),
    [(0, 3, -1), (1, 3, 2), (2, 3, 1), (3, 3, 0), (4, 3, -1), (3, 1, 0), (2, 1, -1), (6, 2, 1)],
)
def test_the_draft_at_a_boundary_is_the_one_that_ends_there(before: int, count: int, kept: int) -> None:
    # Boundaries are multiples of 4; the second row has the drafts 3, 4, 5 of all.
    found = last_accepted([[0, 1, 2], [3, 4, 5]], [1, count], [0, before], 3, 4)
    assert found == ([0, count - 1], [-1, kept])


def test_a_step_over_several_boundaries_keeps_the_last_one() -> None:
    assert last_accepted([[0, 1, 2, 3, 4]], [5], [3], 5, 2) == ([4], [4])


def test_rows_of_padding_have_no_slot() -> None:
    assert slots_of_rows([2, 0, 9], [10, 11, 12], 2) == ([12, 10, -1], [2, 0, 0])
    assert slots_of_rows([1, 2], [10, 11, 12], 2) == ([11, 12], [1, 2])
    assert slots_of_rows([5, 7], [10], 0) == ([-1, -1], [0, 0])
