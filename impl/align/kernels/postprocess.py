"""The fused postprocess: which accepted states pass a block boundary, their copies, and the accepted counts."""

import triton
import triton.language as tl

from .work import (
    copy_request,
    last_to_finish,
    next_row,
    request_slots,
    slot_of,
    this_program,
    tiles_per_request,
)


@triton.jit
def boundary(
    num_accepted_tokens_ptr,
    num_scheduled_tokens_ptr,
    num_computed_tokens_ptr,
    num_draft_tokens_ptr,
    slots,
    mask,
    block_size,
    PRECOMPUTED_NEW_COMPUTED: tl.constexpr,
):
    """Per request: accepted count, the boundary behind which to publish as column, its bias, and whether it is due."""
    accepted = tl.load(num_accepted_tokens_ptr + slots, mask=mask, other=1)
    computed = tl.load(num_computed_tokens_ptr + slots, mask=mask, other=0)
    if PRECOMPUTED_NEW_COMPUTED:
        new_computed = computed
        running = computed - accepted + 1
    else:
        scheduled = tl.load(num_scheduled_tokens_ptr + slots, mask=mask, other=0)
        drafts = tl.load(num_draft_tokens_ptr + slots, mask=mask, other=0)
        running = computed + scheduled - drafts
        new_computed = running + accepted - 1
    blocks = new_computed // block_size
    bias = blocks * block_size - running
    return accepted, blocks - 1, bias, mask & (bias >= 0)


@triton.jit
def moves(run, dest, bias, due):
    """Which requests have bytes to move; columns below 0 are nobody's."""
    return due & (run >= 0) & (dest >= 0) & ((run != dest) | (bias > 0))


@triton.jit
def reset_counts(
    num_accepted_tokens_ptr,
    mamba_state_idx_ptr,
    num_computed_tokens_ptr,
    idx_mapping_ptr,
    num_reqs,
    block_size,
    REQUESTS: tl.constexpr,
):
    """Set the counts of the requests whose boundary ends their running column to 1, in place."""
    for start in range(0, num_reqs, REQUESTS):
        _rows, slots, mask = request_slots(idx_mapping_ptr, start, num_reqs, True, REQUESTS)
        run = tl.load(mamba_state_idx_ptr + slots, mask=mask, other=-1)
        _count, dest, _bias, due = boundary(
            num_accepted_tokens_ptr,
            None,
            num_computed_tokens_ptr,
            None,
            slots,
            mask,
            block_size,
            True,
        )
        tl.store(num_accepted_tokens_ptr + slots, 1, mask=due & (run == dest))


@triton.jit(
    do_not_specialize=["block_table_stride_req", "num_reqs", "block_size", "num_tiles", "block_table_width"],
    do_not_specialize_on_alignment=[
        "num_accepted_tokens_ptr",
        "mamba_state_idx_ptr",
        "num_scheduled_tokens_ptr",
        "num_computed_tokens_ptr",
        "num_draft_tokens_ptr",
        "num_accepted_tokens_out_ptr",
        "idx_mapping_ptr",
    ],
)
def postprocess_mamba_fused_kernel(
    num_accepted_tokens_ptr,
    mamba_state_idx_ptr,
    num_scheduled_tokens_ptr,
    num_computed_tokens_ptr,
    num_draft_tokens_ptr,
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
    num_accepted_tokens_out_ptr,
    idx_mapping_ptr,
    num_reqs,
    block_size,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    HAS_IDX_MAPPING: tl.constexpr = False,
    PRECOMPUTED_NEW_COMPUTED: tl.constexpr = False,
    tiles_ptr=None,
    num_tiles=0,
    counters_ptr=None,
    block_table_width=2147483647,
    REQUESTS: tl.constexpr = 64,
):
    """Copy what a boundary needs, for every request and state, and reset the counts of those that end on one.

    The parameters up to PRECOMPUTED_NEW_COMPUTED are the documented ones, block_size at run time. Grid: any; see
    `work`. Without a mapping counts go to num_accepted_tokens_out_ptr, all num_reqs of them, which is other memory
    than num_accepted_tokens_ptr. With one they are reset in place, by the last program to finish: every program has
    read all counts by then. Source: document 4, `postprocess_mamba_fused_kernel`.
    """
    tl.static_assert(not HAS_IDX_MAPPING or counters_ptr is not None, "counts in place need counters_ptr")
    program, programs = this_program()
    copying = 0
    resets = 0
    for start in range(0, num_reqs, REQUESTS):
        rows, slots, mask = request_slots(idx_mapping_ptr, start, num_reqs, HAS_IDX_MAPPING, REQUESTS)
        run = tl.load(mamba_state_idx_ptr + slots, mask=mask, other=-1)
        accepted, dest, bias, due = boundary(
            num_accepted_tokens_ptr,
            num_scheduled_tokens_ptr,
            num_computed_tokens_ptr,
            num_draft_tokens_ptr,
            slots,
            mask,
            block_size,
            PRECOMPUTED_NEW_COMPUTED,
        )
        stays = due & (run == dest)
        copying += tl.sum(moves(run, dest, bias, due).to(tl.int32))
        if HAS_IDX_MAPPING:
            resets += tl.sum(stays.to(tl.int32))
        elif program == 0:
            tl.store(num_accepted_tokens_out_ptr + slots, tl.where(stays, 1, accepted), mask=mask)

    count = tiles_per_request(num_tiles, tiles_ptr)
    tickets = copying * count
    if program < tickets:
        ticket = program
        first = 0
        for start in range(0, num_reqs, REQUESTS):
            rows, slots, mask = request_slots(idx_mapping_ptr, start, num_reqs, HAS_IDX_MAPPING, REQUESTS)
            run = tl.load(mamba_state_idx_ptr + slots, mask=mask, other=-1)
            accepted, dest, bias, due = boundary(
                num_accepted_tokens_ptr,
                num_scheduled_tokens_ptr,
                num_computed_tokens_ptr,
                num_draft_tokens_ptr,
                slots,
                mask,
                block_size,
                PRECOMPUTED_NEW_COMPUTED,
            )
            copies = moves(run, dest, bias, due)
            row = next_row(copies, rows, -1)
            while row < num_reqs:
                slot = slot_of(idx_mapping_ptr, row, HAS_IDX_MAPPING)
                _count, column, shift, _due = boundary(
                    num_accepted_tokens_ptr,
                    num_scheduled_tokens_ptr,
                    num_computed_tokens_ptr,
                    num_draft_tokens_ptr,
                    slot,
                    row >= 0,
                    block_size,
                    PRECOMPUTED_NEW_COMPUTED,
                )
                ticket = copy_request(
                    ticket,
                    first,
                    tickets,
                    programs,
                    row,
                    tl.load(mamba_state_idx_ptr + slot),
                    column,
                    shift,
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
                    tiles_ptr,
                    count,
                    counters_ptr,
                    block_table_width,
                    COPY_BLOCK_SIZE,
                    CONV_STATE_DIM_FIRST,
                )
                first += count
                row = next_row(copies, rows, row)

    if HAS_IDX_MAPPING:
        if resets > 0:
            if last_to_finish(programs, counters_ptr):
                reset_counts(
                    num_accepted_tokens_ptr,
                    mamba_state_idx_ptr,
                    num_computed_tokens_ptr,
                    idx_mapping_ptr,
                    num_reqs,
                    block_size,
                    REQUESTS,
                )
