"""Align mode: states are copied between a request's blocks, so that full ones hold the state at their end."""

from .buffers import CpuGpuBuffer, MambaCopyBuffers
from .context import MambaSpecDecodeGPUContext
from .groups import get_mamba_groups
from .kernels.memcpy import batch_memcpy_kernel
from .kernels.postprocess import postprocess_mamba_fused_kernel
from .kernels.preprocess import precopy_mamba_align_fused_kernel, preprocess_mamba_align_fused_kernel
from .memcpy import batch_memcpy, collect_mamba_copy_meta, do_mamba_copy_block
from .moves import cleanup_mamba_state_idx
from .runner import MambaBuffers, postprocess_mamba_align_gpu, postprocess_mamba_all, preprocess_mamba
from .staging import (
    stage_mamba_state_idx_to_gpu,
    stage_postprocess_inputs_to_gpu,
    stage_postprocess_metadata_to_gpu,
)

__all__ = [
    "CpuGpuBuffer",
    "MambaBuffers",
    "MambaCopyBuffers",
    "MambaSpecDecodeGPUContext",
    "batch_memcpy",
    "batch_memcpy_kernel",
    "cleanup_mamba_state_idx",
    "collect_mamba_copy_meta",
    "do_mamba_copy_block",
    "get_mamba_groups",
    "postprocess_mamba_align_gpu",
    "postprocess_mamba_all",
    "postprocess_mamba_fused_kernel",
    "precopy_mamba_align_fused_kernel",
    "preprocess_mamba",
    "preprocess_mamba_align_fused_kernel",
    "stage_mamba_state_idx_to_gpu",
    "stage_postprocess_inputs_to_gpu",
    "stage_postprocess_metadata_to_gpu",
]
