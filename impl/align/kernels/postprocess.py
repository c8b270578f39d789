"""The fused postprocess: which accepted states pass a block boundary, their copies, and the accepted counts."""

import triton
import triton.language as tl

from .work import copy_rows, last_to_finish, request_slots, this_program, tiles_per_request


@triton.jit
def boundary(values, slots, mask, block_size, PRECOMPUTED_NEW_COMPUTED: tl.constexpr):
    """Per request: accepted count, the column whose end is the last boundary, its bias, and whether it is crossed."""
    num_accepted_tokens_ptr, _, num_scheduled_tokens_ptr, num_computed_tokens_ptr, num_draft_tokens_ptr, _ = (
        values
    )
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
def needs_copy(run, dest, bias, crosses):
    """Which requests have bytes to move; a column below 0 is none."""
    return crosses & (run >= 0) & (dest >= 0) & ((run != dest) | (bias > 0))


@triton.jit
def classify_rows(
    values,
    start,
    num_reqs,
    block_size,
    HAS_IDX_MAPPING: tl.constexpr,
    PRECOMPUTED_NEW_COMPUTED: tl.constexpr,
    REQUESTS: tl.constexpr,
):
    """Batch rows start.., where their values are, their running columns, and what `boundary` says of them.

    `values`: pointers to accepted counts, running columns, scheduled, computed and draft tokens, and the mapping.
    """
    _, mamba_state_idx_ptr, _, _, _, idx_mapping_ptr = values
    rows, slots, mask = request_slots(idx_mapping_ptr, start, num_reqs, HAS_IDX_MAPPING, REQUESTS)
    run = tl.load(mamba_state_idx_ptr + slots, mask=mask, other=-1)
    accepted, dest, bias, crosses = boundary(values, slots, mask, block_size, PRECOMPUTED_NEW_COMPUTED)
    return rows, slots, mask, run, accepted, dest, bias, crosses


@triton.jit
def reset_counts(
    values, num_reqs, block_size, PRECOMPUTED_NEW_COMPUTED: tl.constexpr, REQUESTS: tl.constexpr
):
    """Set the counts of the requests whose boundary ends their running column to 1, in place."""
    for start in range(0, num_reqs, REQUESTS):
        _rows, slots, _mask, run, _count, dest, _bias, crosses = classify_rows(
            values, start, num_reqs, block_size, True, PRECOMPUTED_NEW_COMPUTED, REQUESTS
        )
        tl.store(values[0] + slots, 1, mask=crosses & (run == dest))


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
    REQUESTS: tl.constexpr = 32,
):
    """Copy what a boundary needs, for every request and state, and reset the counts of those that end on one.

    The parameters up to PRECOMPUTED_NEW_COMPUTED are the documented ones, block_size at run time. Grid: any; see
    `work`. Without a mapping counts go to num_accepted_tokens_out_ptr, all num_reqs of them, which is other memory
    than num_accepted_tokens_ptr. With one they are reset in place, by the last program to finish: every program has
    read all counts by then. Source: document 4, `postprocess_mamba_fused_kernel`.
    """
    tl.static_assert(not HAS_IDX_MAPPING or counters_ptr is not None, "counts in place need counters_ptr")
    program, programs = this_program()
    values = (
        num_accepted_tokens_ptr,
        mamba_state_idx_ptr,
        num_scheduled_tokens_ptr,
        num_computed_tokens_ptr,
        num_draft_tokens_ptr,
        idx_mapping_ptr,
    )
    copying = 0
    resets = 0
    # The lanes of a warp, so that to add them up takes no other warp.
    rows = tl.arange(0, REQUESTS)
    run, dest, bias, copies = rows, rows, rows, rows < 0
    for start in range(0, num_reqs, 2 * REQUESTS):
        # Two at a time, so that the second need not wait for the values of the first.
        _rows, slots_b, mask_b, run_b, accepted_b, dest_b, bias_b, crosses_b = classify_rows(
            values,
            start + REQUESTS,
            num_reqs,
            block_size,
            HAS_IDX_MAPPING,
            PRECOMPUTED_NEW_COMPUTED,
            REQUESTS,
        )
        rows, slots, mask, run, accepted, dest, bias, crosses = classify_rows(
            values, start, num_reqs, block_size, HAS_IDX_MAPPING, PRECOMPUTED_NEW_COMPUTED, REQUESTS
        )
        stays, stays_b = crosses & (run == dest), crosses_b & (run_b == dest_b)
        copies, copies_b = needs_copy(run, dest, bias, crosses), needs_copy(run_b, dest_b, bias_b, crosses_b)
        copying += tl.sum(copies.to(tl.int32) + copies_b.to(tl.int32))
        if HAS_IDX_MAPPING:
            resets += tl.sum(stays.to(tl.int32) + stays_b.to(tl.int32))
        elif program == 0:
            tl.store(num_accepted_tokens_out_ptr + slots, tl.where(stays, 1, accepted), mask=mask)
            tl.store(num_accepted_tokens_out_ptr + slots_b, tl.where(stays_b, 1, accepted_b), mask=mask_b)

    count = tiles_per_request(num_tiles, tiles_ptr)
    tickets = copying * count
    if program < tickets:
        ticket = program
        first = 0
        for start in range(0, num_reqs, REQUESTS):
            # Of so few requests all values are still in registers.
            if num_reqs > REQUESTS:
                rows, slots, mask, run, accepted, dest, bias, crosses = classify_rows(
                    values, start, num_reqs, block_size, HAS_IDX_MAPPING, PRECOMPUTED_NEW_COMPUTED, REQUESTS
                )
                copies = needs_copy(run, dest, bias, crosses)
            ticket, first = copy_rows(
                copies,
                rows,
                (run, dest, bias),
                (ticket, first, tickets, programs),
                num_reqs,
                (
                    state_base_addrs_ptr,
                    state_block_strides_ptr,
                    state_elem_sizes_ptr,
                    state_inner_sizes_ptr,
                    state_conv_widths_ptr,
                    state_group_indices_ptr,
                    state_dim_row_count_ptr,
                    state_dim_row_stride_ptr,
                ),
                (block_table_ptrs_ptr, block_table_stride_req, block_table_width),
                (tiles_ptr, count, counters_ptr),
                COPY_BLOCK_SIZE,
                CONV_STATE_DIM_FIRST,
            )

    if HAS_IDX_MAPPING:
        if resets > 0:
            if last_to_finish(programs, counters_ptr):
                reset_counts(values, num_reqs, block_size, PRECOMPUTED_NEW_COMPUTED, REQUESTS)
