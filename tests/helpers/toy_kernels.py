"""Kernels of a few lines, on which several tests of the harness watch memory and orders."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_kernel(in_ptr, out_ptr, count, SIZE: tl.constexpr, MASKED: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    mask = places < count
    if MASKED:
        tl.store(out_ptr + places, tl.load(in_ptr + places, mask=mask), mask=mask)
    else:
        tl.store(out_ptr + places, tl.load(in_ptr + places))


@triton.jit
def poke_kernel(out_ptr, place):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + place, 1)


@triton.jit
def move_kernel(data_ptr, shift, SIZE: tl.constexpr, BARRIER: tl.constexpr):  # type: ignore[no-untyped-def]
    """Moves SIZE elements to the front, where others of them still have to be read."""
    lanes = tl.arange(0, SIZE)
    data = tl.load(data_ptr + shift + lanes)
    if BARRIER:
        tl.debug_barrier()
    tl.store(data_ptr + lanes, data)
