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
def tile_kernel(in_ptr, out_ptr, OPERATION: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    places = lanes[:, None] * SIZE + lanes[None, :]
    tile = tl.load(in_ptr + places)
    if OPERATION == "sum":
        tile = tl.broadcast_to(tl.sum(tile, 0)[None, :], (SIZE, SIZE))
    elif OPERATION == "max":
        tile = tl.broadcast_to(tl.max(tile, 1)[:, None], (SIZE, SIZE))
    elif OPERATION == "argmax":
        tile = tl.broadcast_to(tl.argmax(tile, 1)[:, None], (SIZE, SIZE))
    elif OPERATION == "cumsum":
        tile = tl.cumsum(tile, 1)
    elif OPERATION == "cumsum backwards":
        tile = tl.cumsum(tile, 0, reverse=True)
    elif OPERATION == "cumprod":
        tile = tl.cumprod(tile, 0)
    elif OPERATION == "all":
        tile += tl.sum(tile)
    tl.store(out_ptr + places, tile)
