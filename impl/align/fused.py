"""The launches of a context's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..checks import int_at_least, refuse
from .kernels.memcpy import batch_memcpy_kernel
from .kernels.postprocess import postprocess_mamba_fused_kernel
from .kernels.preprocess import precopy_mamba_align_fused_kernel
from .launch import BoundLaunch, check_vectors, copy_block_size, launch_options, num_programs

_MEMCPY_PARTS = 64

_MOVES = ("mamba_state_idx_ptr", "src_col_ptr", "token_bias_ptr")
_COUNTS = ("num_accepted_tokens_ptr", "mamba_state_idx_ptr")

if TYPE_CHECKING:
    from .context import MambaSpecDecodeGPUContext


def rows_to_launch(
    ctx: MambaSpecDecodeGPUContext, num_reqs: int, vectors: Mapping[str, torch.Tensor], function: str
) -> int:
    """`num_reqs`, or 0 before the context is initialised. Unless it is 0 every vector fits.

    Raises ValueError naming `num_reqs` or the vector that does not fit.
    """
    capacity = ctx.num_accepted_tokens_out.size(0)
    count = int_at_least("num_reqs", num_reqs, 0, function)
    if count > capacity:
        refuse("num_reqs", count, f"<= {capacity}, max_num_reqs", function)
    if count == 0 or not ctx.is_initialized:
        return 0
    check_vectors(vectors, count, ctx.counters.device, function)
    return count


def bound_launches(ctx: MambaSpecDecodeGPUContext) -> dict[str, BoundLaunch]:
    """By driver the launch that it makes, which is called with the number of requests and the driver's vectors.

    V1 has values by batch row, and its counts go to the context's output; V2 has values by slot, and its counts change
    in place.
    """
    device, block_size = ctx.counters.device, {"block_size": ctx.block_size}
    copying = _copying(ctx)
    by_slot = copying | {"HAS_IDX_MAPPING": True}
    return {
        "run_fused_postprocess": BoundLaunch(
            postprocess_mamba_fused_kernel,
            device,
            (*_COUNTS, "num_scheduled_tokens_ptr", "num_computed_tokens_ptr", "num_draft_tokens_ptr"),
            copying | block_size | {"num_accepted_tokens_out_ptr": ctx.num_accepted_tokens_out},
        ),
        "run_fused_postprocess_align": BoundLaunch(
            postprocess_mamba_fused_kernel,
            device,
            (*_COUNTS, "num_computed_tokens_ptr", "idx_mapping_ptr"),
            by_slot | block_size | {"PRECOMPUTED_NEW_COMPUTED": True},
        ),
        "run_fused_precopy": BoundLaunch(
            precopy_mamba_align_fused_kernel, device, (*_MOVES, "idx_mapping_ptr"), by_slot
        ),
        "run_precopy_rows": BoundLaunch(precopy_mamba_align_fused_kernel, device, _MOVES, copying),
    }


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


def _copying(ctx: MambaSpecDecodeGPUContext) -> dict[str, Any]:
    """What every launch of the context is handed, by parameter.

    The tiles say all that the vectors of the states do, which are left out: each costs the host time.
    """
    return {
        "block_table_stride_req": ctx.block_table_stride_req,
        "COPY_BLOCK_SIZE": copy_block_size(ctx.counters.device),
        "CONV_STATE_DIM_FIRST": ctx.conv_state_dim_first,
        "HAS_IDX_MAPPING": False,
        "tiles_ptr": ctx.tiles,
        "num_tiles": ctx.tiles.size(0),
        "counters_ptr": ctx.counters,
        "block_table_width": ctx.block_table_width,
    }
