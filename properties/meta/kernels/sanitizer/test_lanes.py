"""Lanes of one program that touch each other's bytes need a barrier between."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from properties.harness.kernels.orders.schedule import program_schedule
from properties.sanitizer import RaceWithinProgram, sanitize

pytestmark = pytest.mark.usefixtures("executed")


@triton.jit
def shift_kernel(data_ptr, distance, BARRIER: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    data = tl.load(data_ptr + lanes + distance)
    if BARRIER:
        tl.debug_barrier()
    tl.store(data_ptr + lanes, data)


@triton.jit
def read_back_kernel(data_ptr, out_ptr, distance, BARRIER: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    tl.store(data_ptr + lanes, lanes)
    if BARRIER:
        tl.debug_barrier()
    tl.store(out_ptr + lanes, tl.load(data_ptr + (lanes + distance) % SIZE))


@triton.jit
def scalar_kernel(data_ptr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A scalar is read by every lane, and stored by any."""
    first = tl.load(data_ptr)
    if WIDE:
        tl.store(data_ptr + tl.arange(0, 4), first + 1)
    else:
        tl.store(data_ptr, first + 1)
        tl.store(data_ptr, tl.load(data_ptr) + 1)


@triton.jit
def scatter_kernel(places_ptr, values_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    tl.store(out_ptr + tl.load(places_ptr + lanes), tl.load(values_ptr + lanes))


@triton.jit
def masked_kernel(data_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first half moves onto the second: no lane that is active meets another."""
    lanes = tl.arange(0, SIZE)
    half = lanes < SIZE // 2
    tl.store(data_ptr + lanes + SIZE // 2, tl.load(data_ptr + lanes, mask=half), mask=half)


@triton.jit
def rows_kernel(data_ptr, rows, BARRIER: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Every row moves one up, row after row: what one step stores the next has read."""
    lanes = tl.arange(0, SIZE)
    for row in range(rows):
        source = data_ptr + (row + 1) * SIZE + lanes
        tl.store(source - SIZE, tl.load(source))
        if BARRIER:
            tl.debug_barrier()


@triton.jit
def turned_kernel(data_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    square = data_ptr + lanes[:, None] * SIZE + lanes[None, :]
    tl.store(square, tl.trans(tl.load(square)))
    tl.store(tl.trans(square), tl.load(square))


@triton.jit
def arrive_kernel(counts_ptr, out_ptr, BARRIER: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    tl.atomic_add(counts_ptr + lanes % 2, 1)
    if BARRIER:
        tl.debug_barrier()
    tl.store(out_ptr + lanes, tl.load(counts_ptr + lanes % 2))


@triton.jit
def total_kernel(data_ptr, out_ptr, SUM: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The total takes the place of the first number: every lane has read its own by then."""
    data = tl.load(data_ptr + tl.arange(0, SIZE))
    total = 0
    if SUM:
        total = tl.sum(data)
    tl.store(data_ptr, total)
    tl.store(out_ptr + tl.arange(0, SIZE), data)


@triton.jit
def counted_kernel(data_ptr, count_ptr, COUNT: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(data_ptr, 1)
    if COUNT:
        tl.atomic_add(count_ptr, 1)
    tl.store(count_ptr + 1 + tl.arange(0, SIZE), tl.load(data_ptr + tl.arange(0, SIZE)))


def numbers(size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.int32)


def found(kernel: Any, *arguments: Any, schedule: str = "", **constexprs: Any) -> str:
    with program_schedule(schedule), sanitize():
        try:
            kernel[(1,)](*arguments, **constexprs)
        except RaceWithinProgram as finding:
            return str(finding)
    return ""


@pytest.mark.parametrize("schedule", ["", "reversed", "interleaved:1"])
def test_an_overlapping_move_without_a_barrier_is_found(schedule: str) -> None:
    words = found(shift_kernel, numbers(9), 1, BARRIER=False, SIZE=8, schedule=schedule)
    assert "stores element [1] of `data_ptr`" in words
    assert "looks right here and goes wrong on a GPU" in words


@pytest.mark.parametrize("schedule", ["", "reversed", "interleaved:1"])
def test_an_overlapping_move_with_a_barrier_is_right(schedule: str) -> None:
    assert not found(shift_kernel, numbers(9), 1, BARRIER=True, SIZE=8, schedule=schedule)


@pytest.mark.parametrize("distance", [0, 8, 9])
def test_a_move_that_does_not_overlap_or_stays_needs_no_barrier(distance: int) -> None:
    assert not found(shift_kernel, numbers(20), distance, BARRIER=False, SIZE=8)


@pytest.mark.parametrize(
    ("distance", "barrier", "races"), [(0, False, False), (1, False, True), (1, True, False)]
)
def test_what_another_lane_stored_is_read_behind_a_barrier_only(
    distance: int, barrier: bool, races: bool
) -> None:
    assert bool(found(read_back_kernel, numbers(8), numbers(8), distance, BARRIER=barrier, SIZE=8)) is races


def test_a_scalar_and_a_tile_are_different_lanes_and_two_scalars_the_same() -> None:
    assert found(scalar_kernel, numbers(4), WIDE=True)
    assert not found(scalar_kernel, numbers(4), WIDE=False)


def test_two_lanes_that_store_different_values_at_one_place_are_found() -> None:
    places = torch.tensor([3, 1, 3, 0], dtype=torch.int32)
    words = found(scatter_kernel, places, numbers(4), numbers(4), SIZE=4)
    assert "stores element [3] of `out_ptr`" in words
    assert "different values" in words


def test_two_lanes_that_store_the_same_value_at_one_place_do_no_harm() -> None:
    places = torch.tensor([3, 1, 3, 0], dtype=torch.int32)
    assert not found(scatter_kernel, places, torch.ones(4, dtype=torch.int32), numbers(4), SIZE=4)


def test_lanes_that_are_masked_out_meet_nobody() -> None:
    assert not found(masked_kernel, numbers(8), SIZE=8)


def test_every_step_of_a_loop_is_compared_with_those_before() -> None:
    assert not found(rows_kernel, numbers(24), 5, BARRIER=False, SIZE=4)
    assert not found(rows_kernel, numbers(24), 5, BARRIER=True, SIZE=4)


def test_the_lanes_of_a_turned_tile_are_others() -> None:
    assert "of `data_ptr`" in found(turned_kernel, numbers(16), SIZE=4)


def test_what_lanes_change_atomically_others_read_behind_a_barrier_only() -> None:
    assert found(arrive_kernel, numbers(2), numbers(4), BARRIER=False, SIZE=4)
    assert not found(arrive_kernel, numbers(2), numbers(4), BARRIER=True, SIZE=4)


def test_a_total_is_there_once_every_lane_has_read() -> None:
    assert not found(total_kernel, numbers(8), numbers(8), SUM=True, SIZE=8)
    assert found(total_kernel, numbers(8), numbers(8), SUM=False, SIZE=8)


@triton.jit
def unused_kernel(data_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Loads what nobody needs: no compiler keeps that, for a GPU either."""
    tl.load(data_ptr + SIZE + tl.arange(0, SIZE))
    tl.store(data_ptr, 0)


def test_a_load_whose_value_nobody_uses_is_not_made() -> None:
    with sanitize():
        unused_kernel[(1,)](numbers(8), SIZE=8)


def test_an_atomic_of_one_element_is_a_barrier() -> None:
    assert not found(counted_kernel, numbers(8), numbers(9), COUNT=True, SIZE=8)
    assert found(counted_kernel, numbers(8), numbers(9), COUNT=False, SIZE=8)
