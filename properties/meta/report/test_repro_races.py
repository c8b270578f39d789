"""The small tracer that scripts contain: what two programs, or two lanes, cannot agree on, and what lies in no tensor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl

from properties.harness.report.repro.races import touches_told
from properties.meta.toy_kernels import move_kernel

pytestmark = pytest.mark.usefixtures("executed")


@pytest.fixture(autouse=True)
def _in_the_interpreter() -> Iterator[None]:
    """Where scripts run their kernels."""
    from properties.harness.kernels.launch import interpreting

    with interpreting():
        yield


@triton.jit
def reset_kernel(count_ptr, seen_ptr, ATOMIC: tl.constexpr):  # type: ignore[no-untyped-def]
    """Every program writes down a count that the first one resets."""
    program = tl.program_id(0)
    tl.store(seen_ptr + program, tl.load(count_ptr))
    if program == 0:
        if ATOMIC:
            tl.atomic_xchg(count_ptr, 1)
        else:
            tl.store(count_ptr, 1)


@triton.jit
def last_kernel(data_ptr, out_ptr, size, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copies so many of SIZE elements."""
    lanes = tl.arange(0, SIZE)
    tl.store(out_ptr + lanes, tl.load(data_ptr + lanes, mask=lanes < size, other=7))


def told_of_reset(programs: int, *, atomic: bool = False) -> list[str]:
    told: list[str] = []
    count, seen = torch.ones(1, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    with touches_told(told.append, strays=False):
        reset_kernel[(programs,)](count, seen, ATOMIC=atomic)
    return told


def told_of_move(shift: int, *, barrier: bool = False) -> list[str]:
    told: list[str] = []
    with touches_told(told.append, strays=False):
        move_kernel[(1,)](torch.arange(16, dtype=torch.uint8), shift, SIZE=8, BARRIER=barrier)
    return told


def told_of_last(size: int) -> tuple[list[str], list[int]]:
    told: list[str] = []
    data, out = torch.arange(4), torch.zeros(8, dtype=torch.int64)
    with touches_told(told.append, strays=True):
        last_kernel[(1,)](data, out, size, SIZE=8)
    return told, out.tolist()


def test_two_programs_of_which_one_stores_are_told_with_both_lines_though_no_byte_differs() -> None:
    (told,) = told_of_reset(2)
    assert told.startswith(
        "program (1, 0, 0) of reset_kernel loads byte 0 of a tensor int32[1] at test_repro_races.py:"
    )
    assert "; program (0, 0, 0) stores it at test_repro_races.py:" in told


def test_one_program_alone_races_with_nobody() -> None:
    assert told_of_reset(1) == []


def test_a_launch_with_atomics_is_left_alone() -> None:
    assert told_of_reset(2, atomic=True) == []


def test_two_lanes_without_a_barrier_between_are_told_with_both_lines() -> None:
    (told,) = told_of_move(1)
    assert told.startswith(
        "program (0, 0, 0) of move_kernel stores byte 1 of a tensor uint8[16] at toy_kernels.py:"
    )
    assert told.endswith("with no barrier between")


@pytest.mark.parametrize(("shift", "barrier"), [(0, False), (8, False), (1, True)])
def test_lanes_that_keep_to_their_own_bytes_or_meet_at_a_barrier_are_in_order(
    shift: int, barrier: bool
) -> None:
    assert told_of_move(shift, barrier=barrier) == []


def test_an_access_outside_every_tensor_is_told_by_the_nearest_and_not_made() -> None:
    told, out = told_of_last(5)
    assert told[0].startswith(
        "program (0, 0, 0) of last_kernel loads byte 1 behind a tensor int64[4] at test_repro"
    )
    assert out == [0, 1, 2, 3, 7, 7, 7, 7]


def test_accesses_within_tensors_are_no_strays() -> None:
    assert told_of_last(4) == ([], [0, 1, 2, 3, 7, 7, 7, 7])


def test_the_interpreter_is_as_it_was_afterwards() -> None:
    from triton.runtime import interpreter

    # The first launch of a process leaves its grid behind.
    move_kernel[(1,)](torch.arange(16, dtype=torch.uint8), 1, SIZE=8, BARRIER=False)
    before = dict(vars(interpreter.interpreter_builder)), interpreter.GridExecutor.__call__
    told_of_move(1)
    assert (dict(vars(interpreter.interpreter_builder)), interpreter.GridExecutor.__call__) == before
