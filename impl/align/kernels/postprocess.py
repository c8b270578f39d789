"""The fused postprocess: which accepted states pass a block boundary, their copies, and the accepted counts."""

from typing import NamedTuple

import triton
import triton.language as tl

from .work import LaunchArguments, copy_rows, last_to_finish, request_slots, this_program, tiles_per_request


class RequestValues(NamedTuple):
    """Pointers to the values of requests, by the names of the kernel's parameters without `_ptr`."""

    num_accepted_tokens: tl.tensor
    mamba_state_idx: tl.tensor
    num_scheduled_tokens: tl.tensor
    num_computed_tokens: tl.tensor
    num_draft_tokens: tl.tensor
    idx_mapping: tl.tensor


class ClassifiedRows(NamedTuple):
    """Of batch rows: their numbers, where their values are, which of them exist, and what their step does at a boundary.

    `run`: the running column. `dest`: the column that ends at the last boundary, `bias` tokens after the running state;
    `crosses`: whether the step reaches that boundary.
    """

    rows: tl.tensor
    slots: tl.tensor
    mask: tl.tensor
    run: tl.tensor
    accepted: tl.tensor
    dest: tl.tensor
    bias: tl.tensor
    crosses: tl.tensor


@triton.jit
def needs_copy(classified):
    """Which requests have bytes to move; a column below 0 is none."""
    run, dest = classified.run, classified.dest
    return classified.crosses & (run >= 0) & (dest >= 0) & ((run != dest) | (classified.bias > 0))


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
    """`ClassifiedRows` start.. of the batch, with the `RequestValues`."""
    rows, slots, mask = request_slots(values.idx_mapping, start, num_reqs, HAS_IDX_MAPPING, REQUESTS)
    run = tl.load(values.mamba_state_idx + slots, mask=mask, other=-1)
    accepted = tl.load(values.num_accepted_tokens + slots, mask=mask, other=1)
    computed = tl.load(values.num_computed_tokens + slots, mask=mask, other=0)
    if PRECOMPUTED_NEW_COMPUTED:
        new_computed = computed
        running = computed - accepted + 1
    else:
        scheduled = tl.load(values.num_scheduled_tokens + slots, mask=mask, other=0)
        drafts = tl.load(values.num_draft_tokens + slots, mask=mask, other=0)
        running = computed + scheduled - drafts
        new_computed = running + accepted - 1
    blocks = new_computed // block_size
    bias = blocks * block_size - running
    return ClassifiedRows(rows, slots, mask, run, accepted, blocks - 1, bias, mask & (bias >= 0))


@triton.jit
def reset_counts(
    values, num_reqs, block_size, PRECOMPUTED_NEW_COMPUTED: tl.constexpr, REQUESTS: tl.constexpr
):
    """Set the counts of the requests whose boundary ends their running column to 1, in place."""
    for start in range(0, num_reqs, REQUESTS):
        batch = classify_rows(values, start, num_reqs, block_size, True, PRECOMPUTED_NEW_COMPUTED, REQUESTS)
        tl.store(values.num_accepted_tokens + batch.slots, 1, mask=batch.crosses & (batch.run == batch.dest))


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
    values = RequestValues(
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
        later = classify_rows(
            values,
            start + REQUESTS,
            num_reqs,
            block_size,
            HAS_IDX_MAPPING,
            PRECOMPUTED_NEW_COMPUTED,
            REQUESTS,
        )
        batch = classify_rows(
            values, start, num_reqs, block_size, HAS_IDX_MAPPING, PRECOMPUTED_NEW_COMPUTED, REQUESTS
        )
        stays, later_stays = (
            batch.crosses & (batch.run == batch.dest),
            later.crosses & (later.run == later.dest),
        )
        copies, later_copies = needs_copy(batch), needs_copy(later)
        copying += tl.sum(copies.to(tl.int32) + later_copies.to(tl.int32))
        if HAS_IDX_MAPPING:
            resets += tl.sum(stays.to(tl.int32) + later_stays.to(tl.int32))
        elif program == 0:
            counts_out = num_accepted_tokens_out_ptr
            tl.store(counts_out + batch.slots, tl.where(stays, 1, batch.accepted), mask=batch.mask)
            tl.store(counts_out + later.slots, tl.where(later_stays, 1, later.accepted), mask=later.mask)
        rows, run, dest, bias = batch.rows, batch.run, batch.dest, batch.bias

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
                batch = classify_rows(
                    values, start, num_reqs, block_size, HAS_IDX_MAPPING, PRECOMPUTED_NEW_COMPUTED, REQUESTS
                )
                rows, run, dest, bias = batch.rows, batch.run, batch.dest, batch.bias
                copies = needs_copy(batch)
            ticket, first = copy_rows(
                copies,
                rows,
                run,
                dest,
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

    if HAS_IDX_MAPPING:
        if resets > 0:
            if last_to_finish(programs, counters_ptr):
                reset_counts(values, num_reqs, block_size, PRECOMPUTED_NEW_COMPUTED, REQUESTS)
