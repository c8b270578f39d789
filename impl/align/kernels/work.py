"""How the programs of one launch share out its work.

The work is every tile of every state of every request that copies: `num_tiles` tiles per request, the same for all
of them. All programs find the same requests, in the same order, and number the tiles through; a ticket is such a
number. A program's first ticket is its own number, its second as many further on as there are programs, and further
ones come from a counter, so that tiles are begun in their order, which memory rewards, however fast each program is.
So a launch has as many programs as keep the machine busy, and a launch without work ends after it has looked at the
requests.

`counters` (int32[2], 0 before and after a launch) holds the tickets drawn and the programs that are done. All programs
begin together, and would queue at the counter: so a first tile costs no draw. Every further tile costs one, so that the
number drawn tells which draw is the last, and who has it clears the counter. Launches that share counters must come one
after the other. Without a list of tiles a program takes every ticket that is congruent to its number modulo the number of
programs.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .states import _copy_mamba_state_block, block_ids, copy_tile
from .tickets import next_ticket


class LaunchArguments(NamedTuple):
    """The arguments of a launch that all of its copies read; each is described at the kernels and at `_copy_mamba_state_block`.

    `tiles_ptr`: int64 [num_tiles, 8], or None; see `copy_request` for the columns. `num_tiles`: tiles per request.
    """

    block_table_ptrs_ptr: tl.tensor
    block_table_stride_req: tl.tensor
    block_table_width: tl.tensor
    state_base_addrs_ptr: tl.tensor
    state_block_strides_ptr: tl.tensor
    state_elem_sizes_ptr: tl.tensor
    state_inner_sizes_ptr: tl.tensor
    state_conv_widths_ptr: tl.tensor
    state_group_indices_ptr: tl.tensor
    state_dim_row_count_ptr: tl.tensor
    state_dim_row_stride_ptr: tl.tensor
    tiles_ptr: tl.tensor
    num_tiles: tl.tensor
    counters_ptr: tl.tensor


@triton.jit
def this_program():
    """This program's number and how many there are, whatever the shape of the grid."""
    program = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
    return program, tl.num_programs(0) * tl.num_programs(1)


@triton.jit
def last_to_finish(programs, counters_ptr):
    """Whether every other program of the launch has called this; clears the count of those that have."""
    # What the warps of this program have read comes before its arrival.
    tl.debug_barrier()
    # Acquire and release, Triton's default: what a program read before it arrived is read before the last one writes.
    # Tickets in `tickets` order no other access, so they are drawn relaxed.
    last = tl.atomic_add(counters_ptr + 1, 1) == programs - 1
    if last:
        tl.store(counters_ptr + 1, 0)
    return last


@triton.jit
def request_slots(idx_mapping_ptr, start, num_reqs, HAS_IDX_MAPPING: tl.constexpr, REQUESTS: tl.constexpr):
    """Batch rows start.., where their per-request values are, and which of them there are."""
    rows = start + tl.arange(0, REQUESTS)
    mask = rows < num_reqs
    slots = rows
    if HAS_IDX_MAPPING:
        slots = tl.load(idx_mapping_ptr + rows, mask=mask, other=-1).to(tl.int32)
        mask = mask & (slots >= 0)
    return rows, slots, mask


@triton.jit
def tiles_per_request(num_tiles, tiles_ptr):
    """Without a list of tiles a state is one tile, and the second axis of the grid says how many states there are."""
    if tiles_ptr is None:
        return tl.num_programs(1)
    else:
        return num_tiles


@triton.jit
def next_row(chosen, rows, after):
    """The first chosen row behind `after`, or a number that no row reaches."""
    return tl.min(tl.where(chosen & (rows > after), rows, 2147483647))


@triton.jit
def at_row(values, rows, row):
    """The value of one row, of a vector that this program has."""
    return tl.sum(tl.where(rows == row, values, 0))


@triton.jit
def copy_rows(
    chosen,
    rows,
    src_col,
    dst_col,
    token_bias,
    ticket,
    first,
    tickets,
    programs,
    num_reqs,
    launch,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
):
    """Copy this program's tiles of the chosen rows; returns its next ticket, and the first ticket after these rows.

    `src_col`, `dst_col`, `token_bias`: of every row the column to copy from, the column to copy to, and the bias.
    `ticket`: this program's next one. `first`: the first ticket of the first chosen row. `launch`: `LaunchArguments`.
    """
    row = next_row(chosen, rows, -1)
    while row < num_reqs:
        ticket = copy_request(
            row,
            at_row(src_col, rows, row),
            at_row(dst_col, rows, row),
            at_row(token_bias, rows, row),
            ticket,
            first,
            tickets,
            programs,
            launch,
            COPY_BLOCK_SIZE,
            CONV_STATE_DIM_FIRST,
        )
        first += launch.num_tiles
        row = next_row(chosen, rows, row)
    return ticket, first


@triton.jit
def copy_request(
    row,
    src_col,
    dst_col,
    token_bias,
    ticket,
    first,
    tickets,
    programs,
    launch,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
):
    """Copy this program's tiles of one request, whose tickets begin at `first`; returns its next ticket."""
    while ticket < first + launch.num_tiles:
        tile = ticket - first
        if launch.tiles_ptr is None:
            _copy_mamba_state_block(
                tile,
                row,
                src_col,
                dst_col,
                token_bias,
                launch.block_table_ptrs_ptr,
                launch.block_table_stride_req,
                launch.state_base_addrs_ptr,
                launch.state_block_strides_ptr,
                launch.state_elem_sizes_ptr,
                launch.state_inner_sizes_ptr,
                launch.state_conv_widths_ptr,
                launch.state_group_indices_ptr,
                launch.state_dim_row_count_ptr,
                launch.state_dim_row_stride_ptr,
                COPY_BLOCK_SIZE,
                CONV_STATE_DIM_FIRST,
                launch.block_table_width,
            )
            ticket += programs
        else:
            entry = launch.tiles_ptr + tile.to(tl.int64) * 8
            width = tl.load(entry + 3)
            request_table = tl.load(entry + 2).to(tl.pointer_type(tl.int32))
            request_table += tl.cast(row, tl.int64) * launch.block_table_stride_req
            src_block, dst_block = block_ids(
                request_table, src_col, dst_col, token_bias, width, launch.block_table_width
            )
            # Drawn while the block ids are on their way.
            ticket = next_ticket(ticket, programs, tickets, launch.counters_ptr)
            copy_tile(
                tl.load(entry),
                tl.load(entry + 1),
                width,
                tl.load(entry + 4),
                tl.load(entry + 5),
                tl.load(entry + 6),
                tl.load(entry + 7),
                src_block,
                dst_block,
                token_bias,
                CONV_STATE_DIM_FIRST,
                COPY_BLOCK_SIZE // 8,
            )
    return ticket
