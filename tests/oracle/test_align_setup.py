"""Slots of a release's context, lists of pointers and staged values, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oracle.align import context, pointers, runner
from oracle.align.context import CacheGroup, StateSpec
from oracle.align.memory import Move, Place
from oracle.align.pointers import Entry
from oracle.align.runner import RunnerRequest, Staged, StepPlan
from oracle.variants import Variants
from tests.oracle.worked import STATES, TEMPORAL

SPEC = StateSpec(4, ((3, 2), (2, 2)), 2)
GROUPS = (
    CacheGroup(("a", "b")),
    CacheGroup(("c", "d"), SPEC),
    CacheGroup(("e",), replace(SPEC, shapes=((5,),))),
)


@pytest.mark.parametrize(
    ("spare", "types", "slots"), [(True, 2, 6), (False, 2, 5), (False, 1, 3), (False, 3, 5)]
)
def test_a_context_has_slots_for_each_layer_with_states(spare: bool, types: int, slots: int) -> None:
    profile = Variants(spare_state_slots=spare)
    assert context.num_slots(GROUPS, types, profile) == slots
    assert context.copy_capacity(4, GROUPS, types, profile) == 4 * slots


def test_a_state_that_is_moved_to_the_front_of_its_own_column_is_listed() -> None:
    listed = [
        Entry(Place("pool", source), Place("pool", target), size)
        for source, target, size in [(16 + 1, 16, 4), (24 + 5, 16 + 5, 1)]
    ]
    assert list(pointers.entries(STATES, "SD", [(1, 2, 3)], 1, 1, 1)) == listed
    assert pointers.entries(STATES, "SD", [(1, 2, 3)], 1, 1, 0) == ()


def test_the_last_block_of_the_pool_and_the_last_column_are_listed() -> None:
    assert pointers.entries([TEMPORAL], "SD", [(11, 1)], 0, 1, 1)[0].size == 1


def test_copies_need_the_columns_that_they_reach_and_no_others() -> None:
    plan = StepPlan({}, (), (Move(1, 1, 0, 1),))
    runner.require_blocks(plan, ["a", "b"], {"b": RunnerRequest(((1, 2, 3),), 0)}, STATES)


def test_rows_of_a_batch_are_staged_with_numbers_of_31_bits() -> None:
    most = 2**31 - 1
    found = runner.staged(["a", "b"], {"a": most, "b": 0}, {"a": 1, "b": 3}, {"b": (7, 8)}, {"a": 0, "b": 9})
    assert found == Staged((most, 0), (1, 3), (0, 9), (0, 2))
