"""Kernels that stay in their views and read or compute the wrong contents."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from examples.sanitizer.kernel_pair import KernelPair, Launch, LaunchMemory


@triton.jit
def initial_states_broken(pool_ptr, ids_ptr, computed_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, lanes = tl.program_id(0), tl.arange(0, SIZE)
    has_state = lanes < tl.where(tl.load(computed_ptr + row) >= 0, SIZE, 0)
    block = tl.load(ids_ptr + row)
    tl.store(out_ptr + row * SIZE + lanes, tl.load(pool_ptr + block * SIZE + lanes, mask=has_state, other=0))


@triton.jit
def initial_states_intact(pool_ptr, ids_ptr, computed_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, lanes = tl.program_id(0), tl.arange(0, SIZE)
    has_state = lanes < tl.where(tl.load(computed_ptr + row) > 0, SIZE, 0)
    block = tl.load(ids_ptr + row)
    tl.store(out_ptr + row * SIZE + lanes, tl.load(pool_ptr + block * SIZE + lanes, mask=has_state, other=0))


def unwritten_row() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        pool = memory.blank("pool", torch.float32, 4, 4)
        memory.note("unwritten", pool[2])
        for block in (0, 1, 3):
            pool[block].fill_(block)
        ids = memory.put("ids", torch.int32, [2, 3])
        computed = memory.put("computed", torch.int32, [0, 5])
        out = memory.blank("out", torch.float32, 2, 4)
        return Launch((2,), (pool, ids, computed, out), {"SIZE": 4})

    return KernelPair(
        "unwritten_row",
        "a request without computed tokens (`>=` for `>`) starts from a block that has not been written",
        initial_states_broken,
        initial_states_intact,
        lay_out,
        lambda: {"out": [0.0] * 4 + [3.0] * 4},
        finding="UnwrittenRead",
    )


@triton.jit
def read_columns_broken(pool_ptr, table_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, lanes = tl.program_id(0), tl.arange(0, SIZE)
    block = tl.load(table_ptr + 2 * row)
    tl.store(out_ptr + row * SIZE + lanes, tl.load(pool_ptr + block * SIZE + lanes))


@triton.jit
def read_columns_intact(pool_ptr, table_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, lanes = tl.program_id(0), tl.arange(0, SIZE)
    block = tl.load(table_ptr + 2 * row + 1)
    tl.store(out_ptr + row * SIZE + lanes, tl.load(pool_ptr + block * SIZE + lanes))


def stale_block() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        pool = memory.put("pool", torch.int32, [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8]).view(3, 4)
        table = memory.put("table", torch.int32, [0, 0, 1, 2]).view(2, 2)
        memory.note("own", pool[1], "request 7", "it ran there until its state was copied to block 2")
        memory.note("free", pool[1], "the block before the last one of request 7 went back to the pool")
        return Launch((2,), (pool, table, memory.blank("out", torch.int32, 2, 4)), {"SIZE": 4})

    return KernelPair(
        "stale_block",
        "the column before is read: its block went back to the pool, and still holds what it held",
        read_columns_broken,
        read_columns_intact,
        lay_out,
        lambda: {"out": list(range(1, 9))},
        finding="FreedBlock",
    )


@triton.jit
def write_back_broken(pool_ptr, table_ptr, state_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, lanes = tl.program_id(0), tl.arange(0, SIZE)
    runs = lanes < tl.where(tl.load(table_ptr + 2 * row + 1) >= 0, SIZE, 0)
    state = tl.load(state_ptr + row * SIZE + lanes)
    tl.store(pool_ptr + tl.load(table_ptr + 2 * row) * SIZE + lanes, state, mask=runs)


@triton.jit
def write_back_intact(pool_ptr, table_ptr, state_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, lanes = tl.program_id(0), tl.arange(0, SIZE)
    runs = lanes < tl.where(tl.load(table_ptr + 2 * row + 1) > 0, SIZE, 0)
    state = tl.load(state_ptr + row * SIZE + lanes)
    tl.store(pool_ptr + tl.load(table_ptr + 2 * row) * SIZE + lanes, state, mask=runs)


def late_write_back() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        pool = memory.put("pool", torch.int32, range(1, 13)).view(3, 4)
        table = memory.put("table", torch.int32, [1, 0, 2, 5]).view(2, 2)
        states = memory.put("states", torch.int32, range(101, 109))
        memory.note("free", pool[1], "request 0 has ended, and no other one has been given its block yet")
        return Launch((2,), (pool, table, states), {"SIZE": 4})

    return KernelPair(
        "late_write_back",
        "a request that runs no token any more (`>=` for `>`) stores its state into a block that it gave back",
        write_back_broken,
        write_back_intact,
        lay_out,
        lambda: {"pool": [*range(1, 9), *range(105, 109)]},
        finding="FreedBlock",
    )


PAIRS = (
    unwritten_row(),
    stale_block(),
    late_write_back(),
)
