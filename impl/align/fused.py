"""The launches of a context's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..checks import int_at_least, refuse
from .kernels.memcpy import batch_memcpy_kernel
from .kernels.postprocess import postprocess_mamba_fused_kernel
from .kernels.preprocess import precopy_mamba_align_fused_kernel
from .launch import check_vector, copy_block_size, launch_options, num_programs
from .states import STATE_FIELDS

_MEMCPY_PARTS = 64

if TYPE_CHECKING:
    from .context import MambaSpecDecodeGPUContext


def has_work(
    ctx: MambaSpecDecodeGPUContext, num_reqs: int, vectors: Mapping[str, torch.Tensor], function: str
) -> bool:
    """Whether there is something to look at. Then every vector fits, or ValueError names the one that does not."""
    capacity = ctx.num_accepted_tokens_out.size(0)
    count = int_at_least("num_reqs", num_reqs, 0, function)
    if count > capacity:
        refuse("num_reqs", count, f"<= {capacity}, max_num_reqs", function)
    if count == 0 or not ctx.is_initialized:
        return False
    for name, vector in vectors.items():
        check_vector(name, vector, count, ctx.counters.device, function)
    return True


def launch_postprocess(
    ctx: MambaSpecDecodeGPUContext,
    num_reqs: int,
    num_accepted_tokens: torch.Tensor,
    mamba_state_idx: torch.Tensor,
    num_scheduled_tokens: torch.Tensor,
    num_computed_tokens: torch.Tensor,
    num_draft_tokens: torch.Tensor,
) -> None:
    """V1: values by batch row; counts go to the context's output."""
    postprocess_mamba_fused_kernel[(num_programs(ctx.counters.device),)](
        num_accepted_tokens,
        mamba_state_idx,
        num_scheduled_tokens,
        num_computed_tokens,
        num_draft_tokens,
        *_states(ctx),
        ctx.num_accepted_tokens_out,
        None,
        num_reqs,
        ctx.block_size,
        **_copying(ctx),
    )


def launch_postprocess_align(
    ctx: MambaSpecDecodeGPUContext,
    num_reqs: int,
    num_accepted_tokens: torch.Tensor,
    state_idx: torch.Tensor,
    new_num_computed_tokens: torch.Tensor,
    idx_mapping: torch.Tensor,
) -> None:
    """V2: values by slot; counts change in place."""
    postprocess_mamba_fused_kernel[(num_programs(ctx.counters.device),)](
        num_accepted_tokens,
        state_idx,
        None,
        new_num_computed_tokens,
        None,
        *_states(ctx),
        None,
        idx_mapping,
        num_reqs,
        ctx.block_size,
        HAS_IDX_MAPPING=True,
        PRECOMPUTED_NEW_COMPUTED=True,
        **_copying(ctx),
    )


def launch_precopy(
    ctx: MambaSpecDecodeGPUContext,
    num_reqs: int,
    dst_col: torch.Tensor,
    src_col: torch.Tensor,
    token_bias: torch.Tensor,
    idx_mapping: torch.Tensor | None,
) -> None:
    """Values by slot, or by batch row without a mapping."""
    precopy_mamba_align_fused_kernel[(num_programs(ctx.counters.device),)](
        dst_col,
        src_col,
        token_bias,
        *_states(ctx),
        idx_mapping,
        num_reqs,
        HAS_IDX_MAPPING=idx_mapping is not None,
        **_copying(ctx),
    )


def launch_batch_memcpy(src_ptrs: torch.Tensor, dst_ptrs: torch.Tensor, sizes: torch.Tensor) -> None:
    """One launch for all entries: three vectors of one length >= 1 on one device."""
    entries, device = sizes.numel(), sizes.device
    # On a GPU there is work for every program, so that the machine can hand it out itself.
    parts = _MEMCPY_PARTS if sizes.is_cuda else 2
    grid = (entries * parts if sizes.is_cuda else num_programs(device),)
    batch_memcpy_kernel[grid](
        src_ptrs,
        dst_ptrs,
        sizes,
        BLOCK_SIZE=copy_block_size(device),
        num_entries=entries,
        num_parts=parts,
        **launch_options(),
    )


def _states(ctx: MambaSpecDecodeGPUContext) -> tuple[torch.Tensor | int, ...]:
    vectors = (getattr(ctx, name) for name in STATE_FIELDS)
    return ctx.block_table_ptrs, ctx.block_table_stride_req, *vectors


def _copying(ctx: MambaSpecDecodeGPUContext) -> dict[str, Any]:
    return {
        "COPY_BLOCK_SIZE": copy_block_size(ctx.counters.device),
        "CONV_STATE_DIM_FIRST": ctx.conv_state_dim_first,
        "tiles_ptr": ctx.tiles,
        "num_tiles": ctx.tiles.size(0),
        "counters_ptr": ctx.counters,
        "block_table_width": ctx.block_table_width,
        **launch_options(),
    }
