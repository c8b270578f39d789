"""The Triton kernels of align mode, as the release has them."""

from typing import Any

from triton.runtime.jit import KernelInterface

from subjects.vllm.release import optional

__all__ = [
    "_copy_mamba_state_block",
    "batch_memcpy_kernel",
    "postprocess_mamba_fused_kernel",
    "precopy_mamba_align_fused_kernel",
    "preprocess_mamba_align_fused_kernel",
]


class AsDocumented(KernelInterface):
    """A kernel that is launched with the document's arguments: those that a release does not have yet are left out.

    A launch over more states than are described, as since 0.29 where layers keep only the first states, ends with the last.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def run(self, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        known = {name: value for name, value in keywords.items() if name in self.kernel.arg_names}
        states = keywords.get("state_base_addrs_ptr")
        if states is not None:
            grid = (grid[0], min(grid[1], states.shape[0]), *grid[2:])
        return self.kernel.run(*arguments, grid=grid, warmup=warmup, **known)


def as_documented(name: str) -> Any:
    """The kernel of that name, or None."""
    kernel = optional(f"vllm.v1.worker.mamba_utils:{name}")
    return None if kernel is None else AsDocumented(kernel)


batch_memcpy_kernel = optional("vllm.v1.worker.mamba_utils:batch_memcpy_kernel")
_copy_mamba_state_block = optional("vllm.v1.worker.mamba_utils:_copy_mamba_state_block")
postprocess_mamba_fused_kernel = as_documented("postprocess_mamba_fused_kernel")
precopy_mamba_align_fused_kernel = as_documented("precopy_mamba_align_fused_kernel")
preprocess_mamba_align_fused_kernel = as_documented("preprocess_mamba_align_fused_kernel")
