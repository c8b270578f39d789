"""Warps of a program: what one of them stores before another one has loaded it shows, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from properties.harness.execution.example import Bench, Falsified
from properties.harness.execution.port import InProcess
from properties.harness.execution.registry import load_properties
from properties.harness.execution.variants import Variant, broken_subject
from properties.harness.kernels.orders.schedule import program_schedule
from properties.meta.toy_kernels import move_kernel

pytestmark = pytest.mark.usefixtures("executed")

SEEDS = range(12)


@triton.jit
def reset_kernel(count_ptr, seen_ptr, SIZE: tl.constexpr, BARRIER: tl.constexpr):  # type: ignore[no-untyped-def]
    """Every lane writes down a count that is then reset."""
    count = tl.load(count_ptr)
    if BARRIER:
        tl.debug_barrier()
    tl.store(count_ptr, 1)
    tl.store(seen_ptr + tl.arange(0, SIZE), tl.zeros((SIZE,), tl.int32) + count)


@triton.jit
def in_place_kernel(data_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Every lane changes its own element."""
    lanes = tl.arange(0, SIZE)
    for _ in range(3):
        tl.store(data_ptr + lanes, tl.load(data_ptr + lanes) * 2 + 1)


@triton.jit
def normalise_kernel(data_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A reduction between the loads and the stores keeps them apart."""
    lanes = tl.arange(0, SIZE)
    data = tl.load(data_ptr + lanes)
    tl.store(data_ptr + (SIZE - 1) - lanes, tl.sum(data) - data)


@triton.jit
def ticket_kernel(counter_ptr, seen_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A program draws twice; all of its lanes are told the same."""
    lanes = tl.arange(0, SIZE)
    for draw in range(2):
        ticket = tl.atomic_add(counter_ptr, 1)
        tl.store(
            seen_ptr + (tl.program_id(0) * 2 + draw) * SIZE + lanes, tl.zeros((SIZE,), tl.int32) + ticket
        )


@triton.jit
def ticket_then_turn_kernel(counter_ptr, data_ptr, seen_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Who has drawn for all of them still waits at the barriers that follow."""
    lanes = tl.arange(0, SIZE)
    ticket = tl.atomic_add(counter_ptr, 1)
    tl.debug_barrier()
    tl.store(data_ptr + lanes, lanes + ticket)
    tl.debug_barrier()
    tl.store(seen_ptr + lanes, tl.load(data_ptr + (SIZE - 1) - lanes))


@triton.jit
def at_odds_kernel(flag_ptr, counter_ptr):  # type: ignore[no-untyped-def]
    """Warps that see the flag as it was go another way than those that do not."""
    flag = tl.load(flag_ptr)
    tl.store(flag_ptr, 1)
    if flag == 1:
        tl.atomic_add(counter_ptr, 1)


def after(schedule: str, kernel: Any, grid: int, *tensors: torch.Tensor, **constants: Any) -> list[list[int]]:
    """What the tensors hold after a launch."""
    with program_schedule(schedule):
        kernel[(grid,)](*tensors, **constants)
    return [tensor.tolist() for tensor in tensors]


def moved(schedule: str, shift: int, *, barrier: bool) -> list[int]:
    data = torch.arange(24, dtype=torch.int32)
    with program_schedule(schedule):
        move_kernel[(1,)](data, shift, SIZE=16, BARRIER=barrier)
    return data.tolist()


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


RIGHT = [*range(3, 19), *range(16, 24)]


def test_an_overlapping_move_without_a_barrier_goes_wrong() -> None:
    assert moved("", 3, barrier=False) == RIGHT
    assert sum(moved(f"warps:{seed}", 3, barrier=False) != RIGHT for seed in SEEDS) > 3


@pytest.mark.parametrize("seed", SEEDS)
def test_with_a_barrier_the_same_move_is_right(seed: int) -> None:
    assert moved(f"warps:{seed}", 3, barrier=True) == RIGHT


@pytest.mark.parametrize("seed", SEEDS)
def test_a_move_between_places_that_share_nothing_is_right(seed: int) -> None:
    data = torch.arange(32, dtype=torch.int32)
    with program_schedule(f"warps:{seed}"):
        move_kernel[(1,)](data, 16, SIZE=16, BARRIER=False)
    assert data.tolist() == [*range(16, 32), *range(16, 32)]


def resets(schedule: str, *, barrier: bool) -> list[list[int]]:
    return after(schedule, reset_kernel, 1, numbers(5), numbers(*range(8)), SIZE=8, BARRIER=barrier)


def test_a_count_that_is_reset_before_every_warp_has_read_it_is_seen_reset() -> None:
    assert resets("", barrier=False) == [[1], [5] * 8]
    assert any(1 in resets(f"warps:{seed}", barrier=False)[1] for seed in SEEDS)
    assert all(resets(f"warps:{seed}", barrier=True) == [[1], [5] * 8] for seed in SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_lanes_do_to_their_own_elements_is_right(seed: int) -> None:
    assert after(f"warps:{seed}", in_place_kernel, 1, torch.arange(8), SIZE=8) == [
        [8 * x + 7 for x in range(8)]
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reduction_waits_for_the_loads_of_all_warps(seed: int) -> None:
    (found,) = after(f"warps:{seed}", normalise_kernel, 1, torch.arange(8), SIZE=8)
    assert found == [28 - x for x in reversed(range(8))]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_atomic_operation_happens_once_and_everybody_is_told(seed: int) -> None:
    counter, seen = after(f"warps:{seed}", ticket_kernel, 3, numbers(0), numbers(*[9] * 48), SIZE=8)
    assert counter == [6]
    assert seen == [ticket for ticket in range(6) for _ in range(8)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_warp_waits_at_barriers_behind_its_atomic_operation(seed: int) -> None:
    tensors = numbers(1), numbers(*[9] * 8), numbers(*[9] * 8)
    _, _, seen = after(f"warps:{seed}", ticket_then_turn_kernel, 1, *tensors, SIZE=8)
    assert seen == [8 - lane for lane in range(8)]


def test_warps_that_go_different_ways_are_told_so() -> None:
    caught = []
    for seed in SEEDS:
        try:
            after(f"warps:{seed}", at_odds_kernel, 1, numbers(0), numbers(0))
        except RuntimeError as error:
            caught.append(str(error))
    assert caught
    assert all("an atomic operation that the first one leaves out" in one for one in caught)


_WITHOUT_BARRIER = Variant(
    "moves_without_a_barrier",
    "align/kernels/copies.py",
    "still have to read what this store overwrites.\n        tl.debug_barrier()\n",
    "still have to read what this store overwrites.\n",
)


@pytest.mark.slow
def test_a_move_of_the_implementation_without_its_barrier_is_found_by_its_bytes(tmp_path: Path) -> None:
    tested = load_properties()["no_order_of_programs_shows_in_copied_runs"]
    with broken_subject(_WITHOUT_BARRIER, tmp_path) as subject:
        bench = Bench(subject, InProcess(subject, "cpu"))
        with pytest.raises(Falsified) as caught:
            tested.explore(bench, seed=1, max_examples=400)
    assert any(call.schedule.startswith("warps") for call in caught.value.case.calls)
