"""The launches of a context's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..bound import BoundLaunch
from ..checks import int_at_least, refuse
from .kernels.memcpy import batch_memcpy_kernel
from .kernels.postprocess import postprocess_mamba_fused_kernel
from .kernels.preprocess import precopy_mamba_align_fused_kernel
from .launch import VectorLaunch, copy_block_size, launch_options, num_programs

_MEMCPY_PARTS = 64

_COUNTS = {"num_accepted_tokens_ptr": "num_accepted_tokens_gpu"}
_MAPPING = {"idx_mapping_ptr": "idx_mapping"}

if TYPE_CHECKING:
    from .context import MambaSpecDecodeGPUContext


def rows_to_launch(ctx: MambaSpecDecodeGPUContext, num_reqs: int, function: str) -> int:
    """`num_reqs`, or 0 before the context is initialised.

    Raises ValueError naming `num_reqs` if there is no room for as many.
    """
    capacity = ctx.num_accepted_tokens_out.size(0)
    count = int_at_least("num_reqs", num_reqs, 0, function)
    if count > capacity:
        refuse("num_reqs", count, f"<= {capacity}, max_num_reqs", function)
    return count if ctx.is_initialized else 0


def bound_launches(ctx: MambaSpecDecodeGPUContext) -> dict[str, VectorLaunch]:
    """By driver the launch that it makes, which is called with the number of requests and the driver's vectors.

    V1 has values by batch row, and its counts go to the context's output; V2 has values by slot, and its counts change
    in place.
    """
    copying = _copying(ctx)
    by_slot = copying | {"HAS_IDX_MAPPING": True}
    counted = {"block_size": ctx.block_size}
    v1 = copying | counted | {"num_accepted_tokens_out_ptr": ctx.num_accepted_tokens_out}
    v2 = by_slot | counted | {"PRECOMPUTED_NEW_COMPUTED": True}
    postprocess, precopy = postprocess_mamba_fused_kernel, precopy_mamba_align_fused_kernel
    step = {
        "mamba_state_idx_ptr": "mamba_state_idx_gpu",
        "num_scheduled_tokens_ptr": "num_scheduled_tokens_gpu",
        "num_computed_tokens_ptr": "num_computed_tokens_gpu",
        "num_draft_tokens_ptr": "num_draft_tokens_gpu",
    }
    after = {"mamba_state_idx_ptr": "state_idx_gpu", "num_computed_tokens_ptr": "new_num_computed_tokens_gpu"}
    moves = {
        "mamba_state_idx_ptr": "state_idx_gpu",
        "src_col_ptr": "src_col_gpu",
        "token_bias_ptr": "token_bias_gpu",
    }
    rows = {name: f"moves[{row}]" for row, name in enumerate(moves)}
    drivers = {
        "run_fused_postprocess": (postprocess, _COUNTS | step, v1),
        "run_fused_postprocess_align": (postprocess, _COUNTS | after | _MAPPING, v2),
        "run_fused_precopy": (precopy, moves | _MAPPING, by_slot),
        "run_precopy_rows": (precopy, rows, copying),
    }
    device = ctx.counters.device
    grid, options = (num_programs(device), 1, 1), launch_options()
    return {
        driver: VectorLaunch(
            driver,
            device,
            tuple(vectors.values()),
            BoundLaunch(kernel, device, grid, (*vectors, "num_reqs"), constant, options),
        )
        for driver, (kernel, vectors, constant) in drivers.items()
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
