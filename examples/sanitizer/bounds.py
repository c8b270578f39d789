"""Kernels that leave the view they were given."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from examples.sanitizer.kernel_pair import KernelPair, Launch, LaunchMemory


@triton.jit
def clear_block_broken(conv_ptr, block, size, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, TILE)
    tl.store(conv_ptr + block * size + lanes, 0, mask=lanes <= size)


@triton.jit
def clear_block_intact(conv_ptr, block, size, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, TILE)
    tl.store(conv_ptr + block * size + lanes, 0, mask=lanes < size)


def one_past_the_end() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        layer = memory.put("layer", torch.int32, range(1, 17))
        conv = memory.note("register", layer[:12], "conv")
        memory.note("register", layer[12:], "ssm")
        return Launch((1,), (conv, 1, 6), {"TILE": 8})

    return KernelPair(
        "one_past_the_end",
        "`<=` for `<`: clearing the last conv block clears the first element of the state behind it",
        clear_block_broken,
        clear_block_intact,
        lay_out,
        lambda: {"layer": [*range(1, 7), *[0] * 6, *range(13, 17)]},
        finding="OutsideView",
    )


@triton.jit
def gather_rows_broken(pool_ptr, ids_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, lanes = tl.program_id(0), tl.arange(0, SIZE)
    block = tl.load(ids_ptr + row).to(tl.int64)
    held = lanes < SIZE
    state = tl.load(pool_ptr + block * SIZE + lanes, mask=held, other=0)
    tl.store(out_ptr + row * SIZE + lanes, state)


@triton.jit
def gather_rows_intact(pool_ptr, ids_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, lanes = tl.program_id(0), tl.arange(0, SIZE)
    block = tl.load(ids_ptr + row).to(tl.int64)
    held = lanes < tl.where(block >= 0, SIZE, 0)
    state = tl.load(pool_ptr + block * SIZE + lanes, mask=held, other=0)
    tl.store(out_ptr + row * SIZE + lanes, state)


def padding_id() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        pool = memory.put("pool", torch.int32, range(1, 13)).view(3, 4)
        ids = memory.put("ids", torch.int32, [2, -1, 0])
        return Launch((3,), (pool, ids, memory.blank("out", torch.int32, 3, 4)), {"SIZE": 4})

    return KernelPair(
        "padding_id",
        "the id -1 of a padded row is taken for a block: row -1 of the pool is read",
        gather_rows_broken,
        gather_rows_intact,
        lay_out,
        lambda: {"out": [9, 10, 11, 12, 0, 0, 0, 0, 1, 2, 3, 4]},
        finding="OutsideView",
    )


@triton.jit
def copy_block_broken(  # type: ignore[no-untyped-def]
    src_ptr, src_stride, dst_ptr, dst_stride, block, SIZE: tl.constexpr
):
    lanes = tl.arange(0, SIZE)
    state = tl.load(src_ptr + block * dst_stride + lanes)
    tl.store(dst_ptr + block * src_stride + lanes, state)


@triton.jit
def copy_block_intact(  # type: ignore[no-untyped-def]
    src_ptr, src_stride, dst_ptr, dst_stride, block, SIZE: tl.constexpr
):
    lanes = tl.arange(0, SIZE)
    state = tl.load(src_ptr + block * src_stride + lanes)
    tl.store(dst_ptr + block * dst_stride + lanes, state)


def wrong_stride() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        padded = memory.put("padded", torch.int32, range(1, 19)).as_strided((3, 4), (6, 1))
        packed = memory.put("packed", torch.int32, [0] * 12).view(3, 4)
        return Launch((1,), (padded, 6, packed, 4, 1), {"SIZE": 4})

    return KernelPair(
        "wrong_stride",
        "a copy between a padded and a packed pool uses each stride for the other pool",
        copy_block_broken,
        copy_block_intact,
        lay_out,
        lambda: {"packed": [0, 0, 0, 0, 7, 8, 9, 10, 0, 0, 0, 0]},
        finding="OutsideView",
    )


@triton.jit
def clear_blocks_broken(pool_ptr, ids_ptr, stride, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    block = tl.load(ids_ptr + tl.program_id(0))
    tl.store(pool_ptr + block * stride + tl.arange(0, SIZE), 0)


@triton.jit
def clear_blocks_intact(pool_ptr, ids_ptr, stride, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    block = tl.load(ids_ptr + tl.program_id(0)).to(tl.int64)
    tl.store(pool_ptr + block * stride + tl.arange(0, SIZE), 0)


def int32_overflow() -> KernelPair:
    stride = 1 << 30

    def lay_out(memory: LaunchMemory) -> Launch:
        pool = torch.empty(2 * stride + 8, dtype=torch.int8).as_strided((3, 8), (stride, 1))
        for block in range(3):
            memory.tensors[f"block {block}"] = pool[block].fill_(7)
        ids = memory.put("ids", torch.int32, [0, 2])
        return Launch((2,), (pool, ids, stride), {"SIZE": 8})

    return KernelPair(
        "int32_overflow",
        "block_id * stride in 32 bits: block 2 of a pool with a stride of 2^30 lies at -2^31",
        clear_blocks_broken,
        clear_blocks_intact,
        lay_out,
        lambda: {"block 0": [0] * 8, "block 2": [0] * 8},
        finding="OverflowedOffset",
    )


@triton.jit
def copy_counts_broken(in_ptr, out_ptr, size, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    counts = tl.load(in_ptr + at, mask=at < size)
    tl.store(out_ptr + at, counts)


@triton.jit
def copy_counts_intact(in_ptr, out_ptr, size, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    counts = tl.load(in_ptr + at, mask=at < size)
    tl.store(out_ptr + at, counts, mask=at < size)


def missing_mask() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        counts = memory.put("counts", torch.int32, range(1, 14))
        return Launch((2,), (counts, memory.blank("out", torch.int32, 13), 13), {"TILE": 8})

    return KernelPair(
        "missing_mask",
        "the tail is masked where it is loaded and not where it is stored",
        copy_counts_broken,
        copy_counts_intact,
        lay_out,
        lambda: {"out": list(range(1, 14))},
        finding="OutsideView",
    )


@triton.jit
def clear_page_broken(pool_ptr, page, nbytes, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, TILE)
    tl.store(pool_ptr + tl.program_id(0) * page + lanes, 0, mask=lanes < nbytes)


@triton.jit
def clear_page_intact(pool_ptr, page, nbytes, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, TILE)
    tl.store(pool_ptr + tl.program_id(0) * page + lanes, 0, mask=lanes < nbytes // 4)


def bytes_for_elements() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        storage = memory.put("storage", torch.int32, range(1, 25))
        conv = memory.note("register", storage.as_strided((2, 3), (12, 1)), "conv")
        memory.note("register", storage[3:].as_strided((2, 9), (12, 1)), "ssm")
        return Launch((2,), (conv, 12, 12), {"TILE": 16})

    return KernelPair(
        "bytes_for_elements",
        "a size in bytes counts elements: the conv part of a page is cleared together with the ssm part behind it",
        clear_page_broken,
        clear_page_intact,
        lay_out,
        lambda: {"storage": [0, 0, 0, *range(4, 13), 0, 0, 0, *range(16, 25)]},
        finding="OutsideView",
    )


@triton.jit
def clear_states_broken(addresses_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    entry = addresses_ptr + 2 * tl.program_id(0)
    state = tl.load(entry + 1).to(tl.pointer_type(tl.int32))
    tl.store(state + tl.arange(0, SIZE), 0)


@triton.jit
def clear_states_intact(addresses_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    entry = addresses_ptr + 2 * tl.program_id(0)
    state = tl.load(entry).to(tl.pointer_type(tl.int32))
    tl.store(state + tl.arange(0, SIZE), 0)


def end_for_start() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        states = [memory.put(name, torch.int32, [7] * 4) for name in ("conv", "ssm")]
        for state, name in zip(states, ("conv", "ssm"), strict=True):
            memory.note("register", state, name)
        ends = [address for one in states for address in (one.data_ptr(), one.data_ptr() + 16)]
        return Launch((2,), (memory.put("addresses", torch.int64, ends),), {"SIZE": 4})

    return KernelPair(
        "end_for_start",
        "of a table of addresses, start and end of each state, the wrong entry is taken: one past the state",
        clear_states_broken,
        clear_states_intact,
        lay_out,
        lambda: {"conv": [0] * 4, "ssm": [0] * 4},
        finding="OutsideView",
    )


PAIRS = (
    one_past_the_end(),
    padding_id(),
    wrong_stride(),
    int32_overflow(),
    missing_mask(),
    bytes_for_elements(),
    end_for_start(),
)
