"""Kernels whose result depends on who comes first. In a CPU's plain order most of them look right."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from examples.sanitizer.kernel_pair import KernelPair, Launch, LaunchMemory


@triton.jit
def shift_accepted_broken(accepted_ptr, out_ptr):  # type: ignore[no-untyped-def]
    row, tile, tiles = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    accepted = tl.load(accepted_ptr + row)
    tl.store(out_ptr + row * tiles + tile, 10 * tile + accepted)
    if tile == tiles - 1:
        tl.store(accepted_ptr + row, 1)


@triton.jit
def shift_accepted_intact(accepted_ptr, out_ptr):  # type: ignore[no-untyped-def]
    row, tile, tiles = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    accepted = tl.load(accepted_ptr + tl.num_programs(0) + row)
    tl.store(out_ptr + row * tiles + tile, 10 * tile + accepted)
    if tile == tiles - 1:
        tl.store(accepted_ptr + row, 1)


def accepted_in_place() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        accepted = memory.put("accepted", torch.int32, [3, 5, 3, 5]).view(2, 2)
        return Launch((2, 4), (accepted, memory.blank("out", torch.int32, 2, 4)))

    return KernelPair(
        "accepted_in_place",
        "the accepted count of a request is reset in place by its last tile, while sibling tiles read it; the other "
        "twin reads the counts of the step's start, row 1",
        shift_accepted_broken,
        shift_accepted_intact,
        lay_out,
        lambda: {"accepted": [1, 1, 3, 5], "out": [3, 13, 23, 33, 5, 15, 25, 35]},
        finding="RaceBetweenPrograms",
    )


@triton.jit
def store_blocks_broken(src_ptr, ids_ptr, pool_ptr, ROWS: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, rows, lanes = tl.program_id(0), tl.arange(0, ROWS), tl.arange(0, SIZE)
    block = tl.load(ids_ptr + row)
    again = (tl.load(ids_ptr + rows) == block) & (rows == row + 1)
    last = lanes < tl.where(tl.sum(again.to(tl.int32)) == 0, SIZE, 0)
    state = tl.load(src_ptr + row * SIZE + lanes)
    tl.store(pool_ptr + block * SIZE + lanes, state, mask=last)


@triton.jit
def store_blocks_intact(src_ptr, ids_ptr, pool_ptr, ROWS: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, rows, lanes = tl.program_id(0), tl.arange(0, ROWS), tl.arange(0, SIZE)
    block = tl.load(ids_ptr + row)
    again = (tl.load(ids_ptr + rows) == block) & (rows > row)
    last = lanes < tl.where(tl.sum(again.to(tl.int32)) == 0, SIZE, 0)
    state = tl.load(src_ptr + row * SIZE + lanes)
    tl.store(pool_ptr + block * SIZE + lanes, state, mask=last)


def same_block_twice() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        states = memory.put("states", torch.int32, range(1, 17))
        ids = memory.put("ids", torch.int32, [1, 0, 1, 2])
        pool = memory.put("pool", torch.int32, [0] * 16)
        return Launch((4,), (states, ids, pool), {"ROWS": 4, "SIZE": 4})

    return KernelPair(
        "same_block_twice",
        "two rows name the same block and the last has to win, but a row looks for a successor in the next row only",
        store_blocks_broken,
        store_blocks_intact,
        lay_out,
        lambda: {"pool": [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0, 0, 0, 0]},
        finding="RaceBetweenPrograms",
    )


@triton.jit
def scatter_counts_broken(counts_ptr, slots_ptr, out_ptr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.arange(0, ROWS)
    mine = tl.load(slots_ptr + rows)[:, None]
    again = (mine == tl.load(slots_ptr + rows)[None, :]) & (rows[None, :] == rows[:, None] + 1)
    last = tl.sum(again.to(tl.int32), 1) == 0
    tl.store(out_ptr + tl.load(slots_ptr + rows), tl.load(counts_ptr + rows), mask=last)


@triton.jit
def scatter_counts_intact(counts_ptr, slots_ptr, out_ptr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.arange(0, ROWS)
    mine = tl.load(slots_ptr + rows)[:, None]
    again = (mine == tl.load(slots_ptr + rows)[None, :]) & (rows[None, :] > rows[:, None])
    last = tl.sum(again.to(tl.int32), 1) == 0
    tl.store(out_ptr + tl.load(slots_ptr + rows), tl.load(counts_ptr + rows), mask=last)


def same_slot_twice() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        counts = memory.put("counts", torch.int32, range(1, 9))
        slots = memory.put("slots", torch.int32, [3, 0, 3, 1, 2, 5, 5, 4])
        return Launch((1,), (counts, slots, memory.put("out", torch.int32, [0] * 6)), {"ROWS": 8})

    return KernelPair(
        "same_slot_twice",
        "the same within one tile: two lanes of one store hold different counts for slot 3",
        scatter_counts_broken,
        scatter_counts_intact,
        lay_out,
        lambda: {"out": [2, 4, 5, 3, 8, 7]},
        finding="RaceWithinProgram",
    )


_WINDOW = 4096


@triton.jit
def shift_window_broken(window_ptr, size, by, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, TILE)
    kept = tl.load(window_ptr + lanes + by, mask=lanes < size - by)
    tl.store(window_ptr + lanes, kept, mask=lanes < size - by)


@triton.jit
def shift_window_intact(window_ptr, size, by, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, TILE)
    kept = tl.load(window_ptr + lanes + by, mask=lanes < size - by)
    tl.debug_barrier()
    tl.store(window_ptr + lanes, kept, mask=lanes < size - by)


def overlapping_move() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        window = memory.put("window", torch.int32, range(_WINDOW))
        return Launch((1,), (window, _WINDOW, 5), {"TILE": _WINDOW})

    return KernelPair(
        "overlapping_move",
        "a conv window moves onto itself without a barrier between its loads and its stores",
        shift_window_broken,
        shift_window_intact,
        lay_out,
        lambda: {"window": [*range(5, _WINDOW), *range(_WINDOW - 5, _WINDOW)]},
        finding="RaceWithinProgram",
    )


@triton.jit
def count_tokens_broken(lens_ptr, total_ptr):  # type: ignore[no-untyped-def]
    tokens = tl.load(lens_ptr + tl.program_id(0))
    tl.store(total_ptr, tl.load(total_ptr) + tokens)


@triton.jit
def count_tokens_intact(lens_ptr, total_ptr):  # type: ignore[no-untyped-def]
    tokens = tl.load(lens_ptr + tl.program_id(0))
    tl.atomic_add(total_ptr, tokens)


def lost_update() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        lens = memory.put("lens", torch.int32, range(1, 65))
        return Launch((64,), (lens, memory.put("total", torch.int32, [0])))

    return KernelPair(
        "lost_update",
        "programs add to a total by a load and a store",
        count_tokens_broken,
        count_tokens_intact,
        lay_out,
        lambda: {"total": [sum(range(1, 65))]},
        finding="RaceBetweenPrograms",
    )


@triton.jit
def sum_by_the_last_broken(in_ptr, parts_ptr, arrived_ptr, out_ptr, TILE: tl.constexpr, TILES: tl.constexpr):  # type: ignore[no-untyped-def]
    tile = tl.program_id(0)
    tl.store(parts_ptr + tile, tl.sum(tl.load(in_ptr + tile * TILE + tl.arange(0, TILE))))
    tl.debug_barrier()
    if tl.atomic_add(arrived_ptr, 1, sem="relaxed") == TILES - 1:
        tl.store(out_ptr, tl.sum(tl.load(parts_ptr + tl.arange(0, TILES))))
        tl.store(arrived_ptr, 0)


@triton.jit
def sum_by_the_last_intact(in_ptr, parts_ptr, arrived_ptr, out_ptr, TILE: tl.constexpr, TILES: tl.constexpr):  # type: ignore[no-untyped-def]
    tile = tl.program_id(0)
    tl.store(parts_ptr + tile, tl.sum(tl.load(in_ptr + tile * TILE + tl.arange(0, TILE))))
    tl.debug_barrier()
    if tl.atomic_add(arrived_ptr, 1, sem="acq_rel") == TILES - 1:
        tl.store(out_ptr, tl.sum(tl.load(parts_ptr + tl.arange(0, TILES))))
        tl.store(arrived_ptr, 0)


def last_block_unordered() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        tiles = memory.put("tiles", torch.int32, range(128))
        parts = memory.put("parts", torch.int32, [0] * 16)
        arrived, out = memory.put("arrived", torch.int32, [0]), memory.put("out", torch.int32, [0])
        return Launch((16,), (tiles, parts, arrived, out), {"TILE": 8, "TILES": 16})

    return KernelPair(
        "last_block_unordered",
        "the last program to arrive adds up what the others have stored, but a relaxed atomic orders none of it",
        sum_by_the_last_broken,
        sum_by_the_last_intact,
        lay_out,
        lambda: {"parts": [sum(range(8 * i, 8 * i + 8)) for i in range(16)], "out": [sum(range(128))]},
        finding="RaceBetweenPrograms",
    )


@triton.jit
def drain_drafts_broken(drafts_ptr, out_ptr, TILE: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, tile = tl.program_id(0), tl.program_id(1)
    at = row * SIZE + tile * TILE + tl.arange(0, TILE)
    tl.store(out_ptr + at, tl.load(drafts_ptr + at))
    tl.debug_barrier()
    if tile == tl.num_programs(1) - 1:
        tl.store(drafts_ptr + row * SIZE + tl.arange(0, SIZE), 0)


@triton.jit
def drain_drafts_intact(drafts_ptr, out_ptr, TILE: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, tile = tl.program_id(0), tl.program_id(1)
    at = row * SIZE + tile * TILE + tl.arange(0, TILE)
    tl.store(out_ptr + at, tl.load(drafts_ptr + at))
    tl.debug_barrier()
    tl.store(drafts_ptr + at, 0)


def cleared_while_read() -> KernelPair:
    def lay_out(memory: LaunchMemory) -> Launch:
        drafts = memory.put("drafts", torch.int32, range(1, 33)).view(2, 16)
        return Launch((2, 4), (drafts, memory.blank("out", torch.int32, 2, 16)), {"TILE": 4, "SIZE": 16})

    return KernelPair(
        "cleared_while_read",
        "the last tile clears the whole draft block, of which sibling tiles may still have to read theirs",
        drain_drafts_broken,
        drain_drafts_intact,
        lay_out,
        lambda: {"drafts": [0] * 32, "out": list(range(1, 33))},
        finding="RaceBetweenPrograms",
    )


PAIRS = (
    accepted_in_place(),
    same_block_twice(),
    same_slot_twice(),
    overlapping_move(),
    lost_update(),
    last_block_unordered(),
    cleared_while_read(),
)
