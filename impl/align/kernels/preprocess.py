"""The fused kernels that come before the forward: decide which column a request runs in, and bring its state there."""

import triton
import triton.language as tl

from .work import LaunchArguments, copy_rows, request_slots, this_program, tiles_per_request


@triton.jit
def leaves(src_col, dst_col):
    """Which requests go to another column and have a state to copy; a column below 0 is none."""
    return (src_col >= 0) & (dst_col >= 0) & (src_col != dst_col)


@triton.jit
def sources(
    mamba_state_idx_ptr,
    src_col_ptr,
    token_bias_ptr,
    idx_mapping_ptr,
    start,
    num_reqs,
    HAS_IDX_MAPPING: tl.constexpr,
    REQUESTS: tl.constexpr,
):
    """Batch rows start.., their columns to copy from and to, and their biases."""
    rows, slots, mask = request_slots(idx_mapping_ptr, start, num_reqs, HAS_IDX_MAPPING, REQUESTS)
    src_col = tl.load(src_col_ptr + slots, mask=mask, other=-1)
    dst_col = tl.load(mamba_state_idx_ptr + slots, mask=mask, other=-1)
    return rows, src_col, dst_col, tl.load(token_bias_ptr + slots, mask=mask, other=0)


@triton.jit(
    do_not_specialize=["block_table_stride_req", "num_reqs", "num_tiles", "block_table_width"],
    do_not_specialize_on_alignment=[
        "mamba_state_idx_ptr",
        "src_col_ptr",
        "token_bias_ptr",
        "idx_mapping_ptr",
    ],
)
def precopy_mamba_align_fused_kernel(
    mamba_state_idx_ptr,
    src_col_ptr,
    token_bias_ptr,
    block_table_ptrs_ptr,
    block_table_stride_req: tl.int64,
    state_base_addrs_ptr,
    state_block_strides_ptr,
    state_elem_sizes_ptr,
    state_inner_sizes_ptr,
    state_conv_widths_ptr,
    state_group_indices_ptr,
    state_dim_row_count_ptr,
    state_dim_row_stride_ptr,
    idx_mapping_ptr,
    num_reqs,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    HAS_IDX_MAPPING: tl.constexpr = True,
    tiles_ptr=None,
    num_tiles=0,
    counters_ptr=None,
    block_table_width=2147483647,
    REQUESTS: tl.constexpr = 32,
):
    """Copy each request's state from the column it ran in to the one it is going to run in, where they differ.

    The parameters up to CONV_STATE_DIM_FIRST are the documented ones. Grid: any; see `work`. Per-request values are
    read at idx_mapping[row] (-1 skips the row), or at the row itself without HAS_IDX_MAPPING; the block table is
    read at the row. Source: document 4, `precopy_mamba_align_fused_kernel`.
    """
    program, programs = this_program()
    copying = 0
    # The lanes of a warp, so that to add them up takes no other warp.
    rows = tl.arange(0, REQUESTS)
    src_col, dst_col, bias, copies = rows, rows, rows, rows < 0
    for start in range(0, num_reqs, 2 * REQUESTS):
        # Two at a time, so that the second need not wait for the values of the first.
        _rows, src_col_b, dst_col_b, _bias = sources(
            mamba_state_idx_ptr,
            src_col_ptr,
            token_bias_ptr,
            idx_mapping_ptr,
            start + REQUESTS,
            num_reqs,
            HAS_IDX_MAPPING,
            REQUESTS,
        )
        rows, src_col, dst_col, bias = sources(
            mamba_state_idx_ptr,
            src_col_ptr,
            token_bias_ptr,
            idx_mapping_ptr,
            start,
            num_reqs,
            HAS_IDX_MAPPING,
            REQUESTS,
        )
        copies = leaves(src_col, dst_col)
        copying += tl.sum(copies.to(tl.int32) + leaves(src_col_b, dst_col_b).to(tl.int32))

    launch = LaunchArguments(
        block_table_ptrs_ptr,
        block_table_stride_req,
        block_table_width,
        state_base_addrs_ptr,
        state_block_strides_ptr,
        state_elem_sizes_ptr,
        state_inner_sizes_ptr,
        state_conv_widths_ptr,
        state_group_indices_ptr,
        state_dim_row_count_ptr,
        state_dim_row_stride_ptr,
        tiles_ptr,
        tiles_per_request(num_tiles, tiles_ptr),
        counters_ptr,
    )
    tickets = copying * launch.num_tiles
    if program < tickets:
        ticket = program
        first = 0
        for start in range(0, num_reqs, REQUESTS):
            # Of so few requests all values are still in registers.
            if num_reqs > REQUESTS:
                rows, src_col, dst_col, bias = sources(
                    mamba_state_idx_ptr,
                    src_col_ptr,
                    token_bias_ptr,
                    idx_mapping_ptr,
                    start,
                    num_reqs,
                    HAS_IDX_MAPPING,
                    REQUESTS,
                )
                copies = leaves(src_col, dst_col)
            ticket, first = copy_rows(
                copies,
                rows,
                src_col,
                dst_col,
                bias,
                ticket,
                first,
                tickets,
                programs,
                num_reqs,
                launch,
                COPY_BLOCK_SIZE,
                CONV_STATE_DIM_FIRST,
            )


@triton.jit(
    do_not_specialize=["num_reqs", "MAMBA_BLOCK_SIZE"],
    do_not_specialize_on_alignment=[
        "idx_mapping_ptr",
        "state_idx_ptr",
        "num_computed_tokens_ptr",
        "query_start_loc_ptr",
        "num_accepted_tokens_ptr",
        "src_col_ptr",
        "src_off_ptr",
    ],
)
def preprocess_mamba_align_fused_kernel(
    idx_mapping_ptr,
    state_idx_ptr,
    num_computed_tokens_ptr,
    query_start_loc_ptr,
    num_accepted_tokens_ptr,
    src_col_ptr,
    src_off_ptr,
    num_reqs,
    BLOCK_SIZE: tl.constexpr,
    MAMBA_BLOCK_SIZE,
):
    """Per request: remember column and bias as the source of the copy, then go to the column of this step.

    A request that leaves a column gets an accepted count of 1, because its state is going to be brought to the
    front of the new one. Rows mapped to -1 are skipped; slots are unique. BLOCK_SIZE: rows per program, grid
    (ceil(num_reqs / BLOCK_SIZE),); MAMBA_BLOCK_SIZE: tokens per block, at run time.
    Source: document 4, `preprocess_mamba_align_fused_kernel`.
    """
    start = tl.program_id(0) * BLOCK_SIZE
    rows, slots, mask = request_slots(idx_mapping_ptr, start, num_reqs, True, BLOCK_SIZE)
    column = tl.load(state_idx_ptr + slots, mask=mask, other=-1)
    accepted = tl.load(num_accepted_tokens_ptr + slots, mask=mask, other=1)
    tl.store(src_col_ptr + slots, column, mask=mask)
    tl.store(src_off_ptr + slots, tl.maximum(accepted - 1, 0), mask=mask)

    computed = tl.load(num_computed_tokens_ptr + slots, mask=mask, other=0)
    begin = tl.load(query_start_loc_ptr + rows, mask=mask, other=0)
    end = tl.load(query_start_loc_ptr + rows + 1, mask=mask, other=0)
    next_column = (computed + (end - begin) + (MAMBA_BLOCK_SIZE - 1)) // MAMBA_BLOCK_SIZE - 1
    tl.store(state_idx_ptr + slots, next_column, mask=mask)
    tl.store(num_accepted_tokens_ptr + slots, 1, mask=mask & (column >= 0) & (column != next_column))
