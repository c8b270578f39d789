"""What a runner does before and after a step in align mode, as the release has them."""

from typing import Any

from subjects.vllm.align_buffers import as_released, released_functions
from subjects.vllm.align_context import MambaSpecDecodeGPUContext
from subjects.vllm.release import optional

__all__ = [
    "cleanup_mamba_state_idx",
    "postprocess_mamba_align_gpu",
    "postprocess_mamba_all",
    "preprocess_mamba",
    "stage_postprocess_inputs_to_gpu",
]

cleanup_mamba_state_idx = optional("vllm.v1.worker.mamba_utils:cleanup_mamba_state_idx")
stage_postprocess_inputs_to_gpu = optional("vllm.v1.worker.mamba_utils:stage_postprocess_inputs_to_gpu")
_released_preprocess = optional("vllm.v1.worker.mamba_utils:preprocess_mamba")
_released_postprocess_all = optional("vllm.v1.worker.mamba_utils:postprocess_mamba_all")
_released_postprocess = optional("vllm.v1.worker.mamba_utils:postprocess_mamba_align_gpu")


def _context_of(lists: Any) -> Any:
    """The context that belongs to the lists; lists that were made alone get one where there are drafts."""
    if lists.align_ctx is None and lists.mamba_spec.num_speculative_blocks:
        max_num_reqs, config, num_states, make_buffer = lists.for_context
        device = lists.sizes.gpu.device
        lists.align_ctx = MambaSpecDecodeGPUContext.create(
            max_num_reqs, config, num_states, device, make_buffer
        )
    return lists.align_ctx


def preprocess_mamba(
    scheduler_output: Any,
    kv_cache_config: Any,
    cache_config: Any,
    mamba_state_idx: Any,
    input_batch: Any,
    requests: Any,
    forward_context: Any,
    mamba_state_copy_funcs: Any,
    copy_bufs: Any,
) -> None:
    """States are copied through a context where there are drafts; lists alone are for batches without tables."""
    fused = hasattr(input_batch, "block_table")
    _released_preprocess(
        scheduler_output,
        as_released(kv_cache_config),
        cache_config,
        mamba_state_idx,
        input_batch,
        requests,
        forward_context,
        released_functions(kv_cache_config, mamba_state_copy_funcs),
        copy_bufs,
        **({"align_ctx": _context_of(copy_bufs)} if fused else {}),
    )


def _postprocess_align_gpu(*, kv_cache_config: Any, mamba_state_copy_funcs: Any, **others: Any) -> None:
    """Since 0.29 copy functions are given by the type of the layers."""
    config, functions = (
        as_released(kv_cache_config),
        released_functions(kv_cache_config, mamba_state_copy_funcs),
    )
    _released_postprocess(kv_cache_config=config, mamba_state_copy_funcs=functions, **others)


postprocess_mamba_align_gpu = None if _released_postprocess is None else _postprocess_align_gpu


def _postprocess_mamba_all(scheduler_output: Any, kv_cache_config: Any, *others: Any) -> None:
    """Before 0.29 only where all groups with recurrent state are alike."""
    _released_postprocess_all(scheduler_output, as_released(kv_cache_config), *others)


postprocess_mamba_all = None if _released_postprocess_all is None else _postprocess_mamba_all
