"""What releases of vLLM do differently in align mode: their rules, their contract, and what tells their defects apart."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oracle import profile
from oracle.align.context import CacheGroup, StateSpec, copy_capacity, num_slots
from oracle.align.decisions import Slots, advanced, after_v2_steps, precopy_moves
from oracle.align.memory import Move, StateTensor, state_copy
from oracle.errors import Refused
from oracle.layout import StateGeometry
from oracle.profile import DOCUMENTS, Profile
from properties.harness.case import Case
from properties.harness.values import (
    Call,
    Expected,
    Let,
    Name,
    Outcome,
    Raised,
    Returned,
    int32,
)
from properties.meta.broken import a_case

SUBJECT = Path(__file__).parents[1] / "subjects" / "vllm"
POSTPROCESS = "MambaSpecDecodeGPUContext.run_fused_postprocess_align"


def part(name: str) -> ModuleType:
    """A module of the adapter that needs no release; its package does."""
    spec = importlib.util.spec_from_file_location(f"vllm_{name}", SUBJECT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OUTSIDE = part("outside_align")
CONDITIONS = part("conditions_align")


@pytest.fixture(autouse=True)
def documents() -> Iterator[None]:
    """Every test begins and ends with the documents' rules."""
    profile.use(DOCUMENTS)
    yield
    profile.use(DOCUMENTS)


def release(*numbers: int) -> Profile:
    found = Profile(**OUTSIDE.align_rules(numbers))
    profile.use(found)
    return found


def test_pointers_are_unsigned_since_0_24() -> None:
    assert release(0, 23, 0).pointer_dtype == "int64"
    assert release(0, 24, 0).pointer_dtype == "uint64"


def test_block_tables_are_by_slot_since_0_32() -> None:
    assert not release(0, 31, 0).tables_by_slot
    assert release(0, 32, 0).tables_by_slot


def test_a_row_s_blocks_are_found_at_its_place_in_the_batch() -> None:
    assert [move.row for move in precopied()] == [0, 1]
    assert published() == 0


def test_a_row_s_blocks_are_found_in_its_slot_where_tables_are_by_slot() -> None:
    release(0, 33, 0)
    assert [move.row for move in precopied()] == [2, 1]
    assert published() == 2


def precopied() -> list[Move]:
    """Both rows go from column 0 to column 1; they have the slots 2 and 1."""
    return precopy_moves((2, 1), (9, 1, 1), (9, 0, 0), (0, 0, 0))


def published() -> int:
    """The table row of a request in slot 2 that accepted a draft on the boundary of block 0."""
    decided = after_v2_steps((2,), (0, 0, 2), (0, 0, 0), (0, 0, 4), 4)
    move = decided[2].move
    assert move is not None
    return move.row


def test_a_row_without_a_slot_is_skipped_by_the_preprocess() -> None:
    assert advance(-1).columns == (0,)


def test_a_row_without_a_slot_is_refused_where_the_release_does_not_look() -> None:
    release(0, 25, 1)
    with pytest.raises(Refused, match=r"idx_mapping\[0\]"):
        advance(-1)


def advance(slot: int) -> Slots:
    return advanced(Slots((0,), (1,), (7,), (7,)), (slot,), (0, 1), (4,), 4)


def test_nothing_is_copied_from_the_null_block() -> None:
    assert copied((0, 2)) == ()


@pytest.mark.parametrize("row", [(0, 2), (2, 0), (2,)])
def test_null_blocks_and_missing_columns_are_refused_where_the_release_does_not_look(
    row: tuple[int, ...],
) -> None:
    release(0, 25, 1)
    with pytest.raises(Refused, match="block_table"):
        copied(row)


def copied(row: tuple[int, ...]) -> Any:
    state = StateTensor("pool", StateGeometry(3, (4,), 1, 4, 0), "temporal")
    return state_copy(state, "SD", row, Move(0, 0, 1))


def test_layers_with_fewer_states_leave_slots_unused() -> None:
    assert num_slots(GROUPS, 2) == 4
    assert copy_capacity(3, GROUPS, 2) == 12


def test_since_0_29_there_is_a_slot_for_each_state() -> None:
    release(0, 29, 0)
    assert num_slots(GROUPS, 2) == 3
    assert copy_capacity(3, GROUPS, 2) == 9


GROUPS = (
    CacheGroup(("layer0",), StateSpec(4, ((1, 1), (1,)))),
    CacheGroup(("layer1",), StateSpec(4, ((1, 1),))),
)


def step(before: tuple[int, ...], after: tuple[int, ...], message: str) -> Case:
    """A case that ends in V2's postprocess, whose rules make `after` of the counts."""
    call = Call(POSTPROCESS, (("num_accepted_tokens_gpu", Name("counts")),), observes=("counts",))
    expected: Expected = Returned(None, after=(("counts", int32(after)),))
    return case((Let("counts", int32(before)), call), expected, message)


def case(steps: tuple[Any, ...], expected: Expected, message: str) -> Case:
    actual: Outcome = Raised("RaceBetweenPrograms", message)
    told = (steps, (expected,), (actual,))
    return a_case(
        property_name="a_property",
        subject="vllm",
        steps=steps,
        expected=told[1],
        actual=told[2],
        message=message,
    )


RACE = "the call = RaceBetweenPrograms: program (0, 0, 0) of postprocess_mamba_fused_kernel stores element [0] of "


def test_a_race_for_the_counts_is_that_of_the_count_in_place() -> None:
    assert CONDITIONS.count_in_place(step((2,), (1,), f"{RACE}`num_accepted_tokens_gpu` at line 232"))


def test_a_race_for_something_else_is_not_that_of_the_count_in_place() -> None:
    assert not CONDITIONS.count_in_place(step((2,), (1,), f"{RACE}`pool0` at line 232"))


def test_wrong_bytes_are_the_count_in_place_where_one_was_reset() -> None:
    assert CONDITIONS.count_in_place(step((2,), (1,), "pool0[4] = 0x00, but should be 0x01"))


def test_wrong_bytes_are_another_defect_where_no_count_was_reset() -> None:
    assert not CONDITIONS.count_in_place(step((2,), (2,), "pool0[4] = 0x00, but should be 0x01"))


def test_a_race_in_a_conv_state_is_the_shift_within_a_block() -> None:
    message = "RaceWithinProgram: program (0, 0, 0) of postprocess_mamba_fused_kernel stores element [1] of `kv_cache[0]`"
    assert CONDITIONS.shift_within_a_block(step((2,), (1,), message))


def test_a_race_of_another_kernel_is_no_shift_within_a_block() -> None:
    message = "RaceWithinProgram: program (0, 0, 0) of precopy_mamba_align_fused_kernel stores element [1] of `kv_cache[0]`"
    assert not CONDITIONS.shift_within_a_block(step((2,), (1,), message))


def test_a_step_without_requests_is_outside_before_a_context_is_bound() -> None:
    assert reasons(0) == ["a step that a runner takes has a request"]


def test_a_step_with_a_request_is_inside() -> None:
    assert reasons(1) == []


def reasons(num_reqs: int) -> list[str]:
    """Why the first postprocess of new buffers is outside."""
    buffers = Call("MambaBuffers.create", (("with_postprocess_align", True),), bind="bufs")
    call = Call("postprocess_mamba_align_gpu", (("bufs", buffers), ("num_reqs", num_reqs)))
    return [one.reason for one in OUTSIDE.outside_of((0, 25, 1)) if one.holds(call)]
