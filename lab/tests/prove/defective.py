"""A subject whose preprocess kernel goes to the wrong column, overflows, and reads behind the starts of its rows."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def preprocess_mamba_align_fused_kernel(  # type: ignore[no-untyped-def]
    idx_mapping_ptr,
    state_idx_ptr,
    num_computed_tokens_ptr,
    query_start_loc_ptr,
    num_accepted_tokens_ptr,
    src_col_ptr,
    src_off_ptr,
    num_reqs,
    BLOCK_SIZE: tl.constexpr,
    MAMBA_BLOCK_SIZE: tl.constexpr,
):
    """Goes to the column behind the last token's where that ends a block."""
    rows = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = rows < num_reqs
    slots = tl.load(idx_mapping_ptr + rows, mask=mask, other=-1)
    mask = mask & (slots >= 0)
    column = tl.load(state_idx_ptr + slots, mask=mask, other=-1)
    accepted = tl.load(num_accepted_tokens_ptr + slots, mask=mask, other=1)
    tl.store(src_col_ptr + slots, column, mask=mask)
    tl.store(src_off_ptr + slots, tl.maximum(accepted - 1, 0), mask=mask)
    computed = tl.load(num_computed_tokens_ptr + slots, mask=mask, other=0)
    begin = tl.load(query_start_loc_ptr + rows, mask=mask, other=0)
    end = tl.load(query_start_loc_ptr + rows + 1, mask=mask, other=0)
    # Right but for the last token of a block, and only while twice the tokens are an int32.
    following = (2 * (computed + end - begin)) // MAMBA_BLOCK_SIZE // 2
    tl.store(state_idx_ptr + slots, following, mask=mask)
    # The start of the row behind the next one.
    spare = tl.load(query_start_loc_ptr + rows + 2, mask=mask & (following == 5), other=0)
    moves = (column >= 0) & (column != following) & (spare >= -1)
    tl.store(num_accepted_tokens_ptr + slots, 1, mask=mask & moves)
