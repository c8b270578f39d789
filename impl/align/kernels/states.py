"""One state of one layer, copied from one block-table column of a request to another."""

import triton
import triton.language as tl

from .copies import copy_run, shift_channels, slide_rows


@triton.jit
def block_id(table, column, width):
    """The physical block of a column, or the null block 0 for a column that the table does not have."""
    inside = (column >= 0) & (column < width)
    return tl.load(table + tl.where(inside, column, 0), mask=inside, other=0).to(tl.int64)


@triton.jit
def block_ids(table, src_col, dst_col, token_bias, width, table_width):
    """The blocks to copy from and to, in the request's row of the block table: 0 where there is none."""
    src = tl.where((width > 0) | (src_col < 0), src_col, src_col + token_bias)
    return block_id(table, src, table_width), block_id(table, dst_col, table_width)


@triton.jit
def copy_tile(
    base,
    stride,
    width,
    row_bytes,
    elem,
    first,
    end,
    src_block,
    dst_block,
    token_bias,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    LANES: tl.constexpr,
):
    """Copy what belongs to bytes first..end of a block: the tiles of a block share no byte and make up all of it.

    `base`: address of block 0; `stride`: bytes between blocks; `width`: conv rows, 0 for a temporal state; `row_bytes`:
    bytes of a conv row (SD) or channel (DS); `elem`: bytes of an element. Tiles need not wait for each other: a
    move onto the same block is cut across its rows or between its channels.
    """
    src = base + src_block * stride
    dst = base + dst_block * stride
    shift = tl.where(width > 0, token_bias, 0).to(tl.int64)

    if (src_block > 0) & (dst_block > 0):
        if CONV_STATE_DIM_FIRST and shift > 0:
            # Twice the lanes of a copy by words, since elements are smaller; more than 1,024 would cost all paths registers.
            FEW: tl.constexpr = min(2 * LANES, 1024)
            if elem == 2:
                shift_channels(src, dst, shift, width, first // row_bytes, end // row_bytes, tl.int16, FEW)
            elif elem == 4:
                shift_channels(src, dst, shift, width, first // row_bytes, end // row_bytes, tl.int32, FEW)
            else:
                shift_channels(
                    src, dst, shift * elem, row_bytes, first // row_bytes, end // row_bytes, tl.uint8, FEW
                )
        elif src_block != dst_block:
            skipped = shift * row_bytes
            last = tl.minimum(end, tl.where(shift > 0, width * row_bytes - skipped, end))
            if first < last:
                copy_run(src + skipped + first, dst + first, last - first, LANES)
        # The same block without a shift holds what it should.
        elif shift > 0:
            left = column(first, width, row_bytes)
            right = column(end, width, row_bytes)
            if left < right:
                slide_rows(src, shift, width, row_bytes, left, right, LANES)


@triton.jit
def column(byte, rows, row_bytes):
    """The column of every row at which the part ends that ends at this byte of the block; a multiple of 16 inside."""
    return tl.where(byte == rows * row_bytes, row_bytes, byte // rows // 16 * 16)


@triton.jit
def _copy_mamba_state_block(
    state_idx,
    bt_row_idx,
    src_col,
    dst_col,
    token_bias,
    block_table_ptrs_ptr,
    block_table_stride_req,
    state_base_addrs_ptr,
    state_block_strides_ptr,
    state_elem_sizes_ptr,
    state_inner_sizes_ptr,
    state_conv_widths_ptr,
    state_group_indices_ptr,
    state_dim_row_count_ptr,
    state_dim_row_stride_ptr,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    block_table_width=2147483647,
):
    """Copy one state of one request from one column to another; what may not be touched is not.

    Temporal: the block of column src_col + token_bias. Conv: rows token_bias.. of the block of src_col, which
    become rows 0.. of the destination's; its last rows keep their bytes. A column outside the table and the null
    block (id 0) mean that nothing is copied. Source: document 4, `_copy_mamba_state_block`.
    """
    elem = tl.load(state_elem_sizes_ptr + state_idx).to(tl.int64)
    inner = tl.load(state_inner_sizes_ptr + state_idx)
    width = tl.load(state_conv_widths_ptr + state_idx).to(tl.int64)
    group = tl.load(state_group_indices_ptr + state_idx)
    row_bytes = inner * elem
    size = row_bytes * tl.maximum(width, 1)
    if CONV_STATE_DIM_FIRST and width > 0:
        row_bytes = tl.load(state_dim_row_stride_ptr + state_idx)
        size = row_bytes * tl.load(state_dim_row_count_ptr + state_idx)
    table = tl.load(block_table_ptrs_ptr + group).to(tl.pointer_type(tl.int32))
    table += tl.cast(bt_row_idx, tl.int64) * block_table_stride_req
    src_block, dst_block = block_ids(table, src_col, dst_col, token_bias, width, block_table_width)
    copy_tile(
        tl.load(state_base_addrs_ptr + state_idx),
        tl.load(state_block_strides_ptr + state_idx),
        width,
        row_bytes,
        elem,
        tl.zeros([], tl.int64),
        size,
        src_block,
        dst_block,
        token_bias,
        CONV_STATE_DIM_FIRST,
        COPY_BLOCK_SIZE // 8,
    )
