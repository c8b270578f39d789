"""Lanes of one program that touch each other's bytes need a barrier between."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from tests.unit.kernels.watching import found, numbers

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


@triton.jit
def unused_kernel(data_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Loads what is not used: no compiler keeps that, for a GPU either."""
    tl.load(data_ptr + SIZE + tl.arange(0, SIZE))
    tl.store(data_ptr, 0)


WITHOUT, WITH = {"BARRIER": False}, {"BARRIER": True}
STORED_TWICE = torch.tensor([3, 1, 3, 0], dtype=torch.int32)
LAUNCHES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], str]] = {
    "an overlapping move": (shift_kernel, (9, 1), WITHOUT | {"SIZE": 8}, "stores element [1] of `data_ptr`"),
    "an overlapping move with a barrier": (shift_kernel, (9, 1), WITH | {"SIZE": 8}, ""),
    **{
        f"a move by {distance}": (shift_kernel, (20, distance), WITHOUT | {"SIZE": 8}, "")
        for distance in (0, 8, 9)
    },
    "reads its own element": (read_back_kernel, (8, 8, 0), WITHOUT | {"SIZE": 8}, ""),
    "reads what another lane stored": (read_back_kernel, (8, 8, 1), WITHOUT | {"SIZE": 8}, "another lane"),
    "reads it behind a barrier": (read_back_kernel, (8, 8, 1), WITH | {"SIZE": 8}, ""),
    "a scalar and a tile": (scalar_kernel, (4,), {"WIDE": True}, "another lane"),
    "two scalars": (scalar_kernel, (4,), {"WIDE": False}, ""),
    "different values at one place": (
        scatter_kernel, (STORED_TWICE, 4, 4), {"SIZE": 4}, "with different values",
    ),
    "the same value at one place": (
        scatter_kernel, (STORED_TWICE, torch.ones(4, dtype=torch.int32), 4), {"SIZE": 4}, "",
    ),
    "different values of bfloat16 at one place": (
        scatter_kernel, (STORED_TWICE, *torch.arange(1, 9).bfloat16().split(4)), {"SIZE": 4}, "with different values",
    ),
    "masked lanes": (masked_kernel, (8,), {"SIZE": 8}, ""),
    "row after row": (rows_kernel, (24, 5), WITHOUT | {"SIZE": 4}, ""),
    "row after row with barriers": (rows_kernel, (24, 5), WITH | {"SIZE": 4}, ""),
    "a turned tile": (turned_kernel, (16,), {"SIZE": 4}, "of `data_ptr`"),
    "loads beside atomics": (arrive_kernel, (2, 4), WITHOUT | {"SIZE": 4}, "another lane"),
    "loads behind atomics": (arrive_kernel, (2, 4), WITH | {"SIZE": 4}, ""),
    "a total is there once every lane has read": (total_kernel, (8, 8), {"SUM": True, "SIZE": 8}, ""),
    "a store that waits for no lane": (total_kernel, (8, 8), {"SUM": False, "SIZE": 8}, "another lane"),
    "a load whose value is not used": (unused_kernel, (8,), {"SIZE": 8}, ""),
    "an atomic of one element is a barrier": (counted_kernel, (8, 9), {"COUNT": True, "SIZE": 8}, ""),
    "no barrier": (counted_kernel, (8, 9), {"COUNT": False, "SIZE": 8}, "another lane"),
}  # fmt: skip
"""Kernel, arguments (sizes of tensors, of those named *_ptr), constants, and a part of what is found."""


@pytest.mark.parametrize("schedule", ["", "reversed", "switches:1>1,1>0,2>2"])
@pytest.mark.parametrize("name", LAUNCHES)
def test_lanes_that_touch_each_other_s_bytes_need_a_barrier(name: str, schedule: str) -> None:
    kernel, given, constants, words = LAUNCHES[name]
    arguments = [
        numbers(value) if isinstance(value, int) and parameter.endswith("_ptr") else value
        for parameter, value in zip(kernel.arg_names, given, strict=False)
    ]
    race = found(kernel, 1, *arguments, schedule=schedule, **constants)
    assert (race.startswith("RaceWithinProgram") and words in race) if words else not race
