"""Kernels that take the context of a GPU with them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from examples.sanitizer.kernel_pair import KernelPair, Launch, LaunchMemory

_FILLER = tl.constexpr(2147483647)


@triton.jit
def clear_listed_broken(pool_ptr, ids_ptr, stride, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    block = tl.load(ids_ptr + tl.program_id(0)).to(tl.int64)
    lanes = tl.arange(0, SIZE)
    tl.store(pool_ptr + block * stride + lanes, 0, mask=lanes < tl.where(block >= 0, SIZE, 0))


@triton.jit
def clear_listed_intact(pool_ptr, ids_ptr, stride, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    block = tl.load(ids_ptr + tl.program_id(0)).to(tl.int64)
    lanes = tl.arange(0, SIZE)
    tl.store(pool_ptr + block * stride + lanes, 0, mask=lanes < tl.where(block != _FILLER, SIZE, 0))


def far_address() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        pool = memory.put("pool", torch.int32, [7] * 3 * 1024).view(3, 1024)
        ids = memory.put("ids", torch.int32, [1, _FILLER.value, 2])
        return Launch((3,), (pool, ids, 1024), {"SIZE": 4})

    return KernelPair(
        "far_address",
        "a filler of the table, 2^31 - 1, is taken for a block: its address is terabytes away",
        clear_listed_broken,
        clear_listed_intact,
        lay_out,
        lambda: {"pool": [7] * 1024 + [0] * 4 + [7] * 1020 + [0] * 4 + [7] * 1020},
        finding="OutsideView",
    )


@triton.jit
def write_records_broken(records_ptr, lens_ptr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    length, place = tl.load(lens_ptr + row), records_ptr + row * 9 + 1
    tl.store(place.to(tl.pointer_type(tl.int64), bitcast=True), length)


@triton.jit
def write_records_intact(records_ptr, lens_ptr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    length, place = tl.load(lens_ptr + row), records_ptr + row * 9 + 1
    tl.store(place + tl.arange(0, 8), (length >> (8 * tl.arange(0, 8))).to(tl.uint8))


def odd_address() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        records = memory.put("records", torch.uint8, [255] * 27)
        return Launch((3,), (records, memory.put("lens", torch.int64, [1, 256, 1 << 40])))

    return KernelPair(
        "odd_address",
        "a 64-bit number is stored behind a tag of one byte: a GPU takes aligned addresses only",
        write_records_broken,
        write_records_intact,
        lay_out,
        lambda: {"records": [b for n in (1, 256, 1 << 40) for b in (255, *n.to_bytes(8, "little"))]},
        finding="Misaligned",
    )


PAIRS = (far_address(), odd_address())
