"""Differences of vLLM's releases in align mode: their rules, their contract, and what tells their defects apart."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oracle.align.context import CacheGroup, StateSpec, copy_capacity, num_slots
from oracle.align.decisions import Slots, advanced, after_v2_steps, precopy_moves
from oracle.align.memory import Move, StateTensor, state_copy
from oracle.layout import StateGeometry
from oracle.rules import Refused
from statecheck.case.values import Call
from statecheck.subject.profile import DOCUMENTS, Profile

SUBJECT = Path(__file__).parents[2] / "subjects" / "vllm"


def part(name: str) -> ModuleType:
    """A module of the adapter that needs no release; its package does."""
    spec = importlib.util.spec_from_file_location(f"vllm_{name}", SUBJECT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OUTSIDE = part("outside")


def release(*numbers: int) -> Profile:
    profile: Profile = OUTSIDE.profile_of(numbers)
    return profile


def test_tables_are_looked_up_by_slot_since_0_32() -> None:
    assert [release(0, minor, 0).tables_by_slot for minor in (31, 32)] == [False, True]


@pytest.mark.parametrize(
    ("profile", "precopied", "published"),
    [(DOCUMENTS, [0, 1], 0), (release(0, 33, 0), [2, 1], 2)],
    ids=["by row", "by slot"],
)
def test_a_row_s_blocks_are_found_at_its_place_in_the_batch_or_in_its_slot(
    profile: Profile, precopied: list[int], published: int
) -> None:
    """Two rows go from column 0 to column 1, in slots 2 and 1; a request in slot 2 accepts a draft on the boundary of block 0."""
    moves = precopy_moves((2, 1), (9, 1, 1), (9, 0, 0), (0, 0, 0), profile)
    assert [move.row for move in moves] == precopied
    decided = after_v2_steps((2,), (0, 0, 2), (0, 0, 0), (0, 0, 4), 4, profile)
    assert decided[2].move is not None
    assert decided[2].move.row == published


def advance(slot: int, profile: Profile) -> Slots:
    return advanced(Slots((0,), (1,), (7,), (7,)), (slot,), (0, 1), (4,), 4, profile)


def copied(row: tuple[int, ...], profile: Profile) -> Any:
    state = StateTensor("pool", StateGeometry(3, (4,), 1, 4, 0), "temporal")
    return state_copy(state, "SD", row, Move(0, 0, 1), profile)


def test_rows_without_a_slot_and_null_blocks_are_skipped() -> None:
    assert advance(-1, DOCUMENTS).columns == (0,)
    assert copied((0, 2), DOCUMENTS) == ()


@pytest.mark.parametrize(
    ("function", "wrong", "argument"),
    [(advance, -1, r"idx_mapping\[0\]"), *((copied, row, "block_table") for row in ((0, 2), (2, 0), (2,)))],
)
def test_rows_without_a_slot_are_refused_where_the_release_does_not_look(
    function: Any, wrong: Any, argument: str
) -> None:
    with pytest.raises(Refused, match=argument):
        function(wrong, release(0, 29, 0))


GROUPS = (
    CacheGroup(("layer0",), StateSpec(4, ((1, 1), (1,)))),
    CacheGroup(("layer1",), StateSpec(4, ((1, 1),))),
)


@pytest.mark.parametrize(("profile", "slots"), [(DOCUMENTS, 4), (release(0, 29, 0), 3)])
def test_layers_with_fewer_states_leave_slots_unused_in_the_documents_alone(
    profile: Profile, slots: int
) -> None:
    assert num_slots(GROUPS, 2, profile) == slots
    assert copy_capacity(3, GROUPS, 2, profile) == 3 * slots


@pytest.mark.parametrize(
    ("num_reqs", "reasons"), [(0, ["a step that a runner takes has a request"]), (1, [])]
)
def test_a_step_without_requests_is_outside_before_a_context_is_bound(
    num_reqs: int, reasons: list[str]
) -> None:
    buffers = Call("MambaBuffers.create", (("with_postprocess_align", True),), bind="bufs")
    call = Call("postprocess_mamba_align_gpu", (("bufs", buffers), ("num_reqs", num_reqs)))
    assert [rule.reason for rule in OUTSIDE.outside_of((0, 29, 0)) if rule.holds(call)] == reasons
