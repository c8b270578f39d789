"""Small kernels, and in which kinds of orders of programs they may leave something else than in row-major order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl

from statecheck.case.values import Switch, schedule_text
from statecheck.kernels.orders import program_schedule


@triton.jit
def arrivals_kernel(order_ptr, next_ptr):  # type: ignore[no-untyped-def]
    """Every program writes down the number under which it came."""
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(order_ptr + program, tl.atomic_add(next_ptr, 1))


@triton.jit
def row_reset_kernel(count_ptr, seen_ptr):  # type: ignore[no-untyped-def]
    """Every program of a row reads the row's count, which the first of them resets."""
    row, column = tl.program_id(0), tl.program_id(1)
    count = tl.load(count_ptr + row)
    if column == 0:
        tl.store(count_ptr + row, 1)
    tl.store(seen_ptr + row * tl.num_programs(1) + column, count)


@triton.jit
def sum_kernel(in_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each program reads a block and writes its own element."""
    program = tl.program_id(0)
    total = tl.zeros((), tl.int32)
    for i in range(SIZE):
        total += tl.load(in_ptr + program * SIZE + i)
    tl.store(out_ptr + program, total)


@triton.jit
def lost_update_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    """Add one in two accesses."""
    tl.store(sum_ptr, tl.load(sum_ptr) + 1)


@triton.jit
def counted(sum_ptr):  # type: ignore[no-untyped-def]
    return tl.atomic_add(sum_ptr, 1)


@triton.jit
def atomic_kernel(sum_ptr):  # type: ignore[no-untyped-def]
    """The same in one, and in a function that the kernel calls."""
    counted(sum_ptr)


@triton.jit
def index_kernel(scratch_ptr, seen_ptr):  # type: ignore[no-untyped-def]
    """A program's ids must not change while others run."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.load(scratch_ptr)
    place = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2) + tl.program_id(2)
    tl.store(seen_ptr + place, (x * 100 + y) * 100 + z + 1)


@triton.jit
def lock_kernel(lock_ptr, sum_ptr):  # type: ignore[no-untyped-def]
    """Add one in two accesses, under a lock: a program that waits must not keep the lock's holder from going on."""
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(sum_ptr, tl.load(sum_ptr) + 1)
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def ticket_kernel(counter_ptr, seen_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A program draws twice, once for all of its lanes."""
    lanes = tl.arange(0, SIZE)
    for draw in range(2):
        ticket = tl.atomic_add(counter_ptr, 1)
        tl.store(
            seen_ptr + (tl.program_id(0) * 2 + draw) * SIZE + lanes, tl.zeros((SIZE,), tl.int32) + ticket
        )


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def span(size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.int32)


def drawn_switches(seed: int) -> str:
    """A schedule of one to six switches, the same for the same seed."""
    numbers = random.Random(seed)
    drawn = [Switch(numbers.randrange(8), numbers.randrange(10)) for _ in range(numbers.randint(1, 6))]
    return schedule_text([drawn])


WHOLE = ("reversed", "switches:0>1", "switches:0>2", "switches:0>3")
INTERLEAVED = (
    *map(drawn_switches, range(24)),
    *("switches:", "switches:1>1", "switches:0>5,2>1,1>9,0>3", "switches:1>7,1>6,1>5,1>4,1>3,1>2"),
)
KINDS = {"whole": WHOLE, "interleaved": INTERLEAVED}
ALL = (*WHOLE, *INTERLEAVED)


@dataclass(frozen=True)
class Toy:
    """A launch.

    Args:
        tensors: makes its arguments; `left` is what the last of them holds after row-major order.
        differs: the kinds of orders of which some leave something else; the others never do.
    """

    kernel: Any
    grid: tuple[int, ...]
    tensors: Callable[[], tuple[torch.Tensor, ...]]
    left: list[int]
    differs: frozenset[str] = frozenset()
    constants: dict[str, Any] = field(default_factory=dict)
    scalars: tuple[int, ...] = ()

    def after(self, schedule: str) -> list[int]:
        """The contents of the last tensor after a launch in an order."""
        tensors = self.tensors()
        with program_schedule(schedule):
            self.kernel[self.grid](*tensors, *self.scalars, **self.constants)
        found: list[int] = tensors[-1].flatten().tolist()
        return found


_BY_PROGRAMS = frozenset({"whole", "interleaved"})
_INDICES = [(x * 100 + y) * 100 + z + 1 for x in range(2) for y in range(3) for z in range(4)]
TOYS = {
    "a race that whole programs show": Toy(
        row_reset_kernel, (2, 4), lambda: (numbers(3, 5), zeros(8)), [3, 1, 1, 1, 5, 1, 1, 1], _BY_PROGRAMS
    ),
    "a race that interleavings alone show": Toy(
        lost_update_kernel, (10,), lambda: (zeros(1),), [10], frozenset({"interleaved"})
    ),
    "atomics": Toy(atomic_kernel, (10,), lambda: (zeros(1),), [10]),
    "a lock": Toy(lock_kernel, (4,), lambda: (zeros(1), zeros(1)), [4]),
    "elements of their own": Toy(
        sum_kernel,
        (20,),
        lambda: (span(60), zeros(20)),
        span(60).reshape(20, 3).sum(1).tolist(),
        constants={"SIZE": 3},
    ),
    "ids": Toy(index_kernel, (2, 3, 4), lambda: (zeros(1), zeros(24)), _INDICES),
    "draws for all lanes": Toy(
        ticket_kernel,
        (3,),
        lambda: (zeros(1), zeros(48)),
        [ticket for ticket in range(6) for _ in range(8)],
        _BY_PROGRAMS,
        {"SIZE": 8},
    ),
}
