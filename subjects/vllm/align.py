"""Align mode (document 4), as the release has it: buffers and lists of pointers, contexts, kernels, and what a runner does around a step."""

import dataclasses
from typing import Any

import torch
from triton.runtime.jit import KernelInterface

from subjects.vllm.release import optional

__all__ = [
    "MambaBuffers",
    "MambaCopyBuffers",
    "MambaSpecDecodeGPUContext",
    "collect_mamba_copy_meta",
    "get_mamba_groups",
    "postprocess_mamba_align_gpu",
    "postprocess_mamba_all",
    "postprocess_mamba_fused_kernel",
    "precopy_mamba_align_fused_kernel",
    "preprocess_mamba",
    "preprocess_mamba_align_fused_kernel",
]


_GroupSpec = optional("vllm.v1.kv_cache_interface:MambaSpec")
_ReleasedCopyBuffers: Any = optional("vllm.v1.worker.mamba_utils:MambaCopyBuffers")
_released_collect = optional("vllm.v1.worker.mamba_utils:collect_mamba_copy_meta")
_released_groups = optional("vllm.v1.worker.mamba_utils:get_mamba_groups")


def state_specs(config: Any) -> list[Any]:
    """The specifications of the groups with recurrent state."""
    specs = [group.kv_cache_spec for group in config.kv_cache_groups]
    return [spec for spec in specs if isinstance(spec, _GroupSpec)]


def as_released(config: Any) -> Any:
    """The cache, with a type of its own for layers that keep only the first of the states: copy functions are found by it."""
    return dataclasses.replace(
        config, kv_cache_groups=[_typed_group(group) for group in config.kv_cache_groups]
    )


def _typed_group(group: Any) -> Any:
    spec = group.kv_cache_spec
    if not isinstance(spec, _GroupSpec):
        return group
    kind = f"layers of {len(spec.shapes)} states"
    return dataclasses.replace(group, kv_cache_spec=dataclasses.replace(spec, mamba_type=kind))


def released_functions(config: Any, functions: Any) -> Any:
    """The copy functions as the release takes them: by the type of the layers."""
    return {spec.mamba_type: functions[: len(spec.shapes)] for spec in state_specs(as_released(config))}


def get_mamba_groups(kv_cache_config: Any) -> tuple[list[int], Any]:
    """All groups, of which the release returns those of each specification."""
    found = _released_groups(as_released(kv_cache_config))
    return sorted({group for groups in found.values() for group in groups}), next(iter(found))


class MambaCopyBuffers(_ReleasedCopyBuffers):
    """Lists of pointers, whose copy functions the release takes by the type of the layers."""

    @classmethod
    def create(cls, max_num_reqs: int, kv_cache_config: Any, copy_funcs: Any, make_buffer: Any) -> Any:
        functions = released_functions(kv_cache_config, copy_funcs)
        made = super().create(max_num_reqs, as_released(kv_cache_config), functions, make_buffer)
        # What a context for the same copies is made of.
        made.for_context = (max_num_reqs, kv_cache_config, len(copy_funcs), make_buffer)
        made.align_ctx = None
        return made


def collect_mamba_copy_meta(
    bufs: Any,
    kv_cache_config: Any,
    copy_funcs: Any,
    group_ids: Any,
    src_col: int,
    dst_col: int,
    bias: int,
    req_state: Any,
    forward_context: Any,
) -> None:
    """With the copy functions by the type of the layers."""
    config, functions = as_released(kv_cache_config), released_functions(kv_cache_config, copy_funcs)
    _released_collect(bufs, config, functions, group_ids, src_col, dst_col, bias, req_state, forward_context)


_ReleasedContext: Any = optional("vllm.v1.worker.mamba_utils:MambaSpecDecodeGPUContext")
_ReleasedBuffers: Any = optional("vllm.v1.worker.mamba_utils:MambaBuffers")
MambaSpecDecodeGPUContext: Any = None
MambaBuffers: Any = None


def _mamba_layers(config: Any) -> list[str]:
    groups = [group for group in config.kv_cache_groups if group.kv_cache_spec in state_specs(config)]
    return [name for group in groups for name in group.layer_names]


if _ReleasedContext is not None:

    @dataclasses.dataclass(kw_only=True)
    class MambaSpecDecodeGPUContext(_ReleasedContext):  # type: ignore[no-redef]
        """The release's context with the documents' fields and arguments."""

        num_layers: int = 0
        num_state_types: int = 0

        @classmethod
        def create(
            cls,
            max_num_reqs: int,
            kv_cache_config: Any,
            num_state_types: int,
            device: torch.device,
            make_buffer: Any,
        ) -> Any:
            """The release counts the states by their copy functions."""
            config = as_released(kv_cache_config)
            counted = released_functions(config, (None,) * num_state_types)
            made = super().create(max_num_reqs, config, counted, device, make_buffer)
            made.num_layers, made.num_state_types = len(_mamba_layers(config)), num_state_types
            return made

        def initialize_from_forward_context(
            self,
            kv_cache_config: Any,
            forward_context: Any,
            mamba_state_copy_funcs: Any,
            block_tables: Any,
        ) -> None:
            """With the copy functions by the type of the layers."""
            config, functions = kv_cache_config, mamba_state_copy_funcs
            # The release's own functions hand over what they were given, which is converted already.
            if not isinstance(functions, dict):
                config, functions = as_released(config), released_functions(config, functions)
            super().initialize_from_forward_context(config, forward_context, functions, block_tables)

    @dataclasses.dataclass
    class MambaBuffers(_ReleasedBuffers):  # type: ignore[no-redef]
        """The release's buffers, whose lists know the context that copies go through."""

        @classmethod
        def create(
            cls,
            max_num_reqs: int,
            kv_cache_config: Any,
            copy_funcs: Any,
            make_buffer: Any,
            device: torch.device,
            with_postprocess_align: bool,
        ) -> Any:
            lists = MambaCopyBuffers.create(max_num_reqs, kv_cache_config, copy_funcs, make_buffer)
            context = None
            if with_postprocess_align:
                size = (max_num_reqs, kv_cache_config, len(copy_funcs))
                context = MambaSpecDecodeGPUContext.create(*size, device, make_buffer)
            lists.align_ctx = context
            return cls(preprocess=lists, postprocess_align=context)


class AsDocumented(KernelInterface):
    """A kernel that is launched with the document's arguments: those that a release does not have yet are left out.

    A launch over more states than are described, as where layers keep only the first states, ends with the last.
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


postprocess_mamba_fused_kernel = as_documented("postprocess_mamba_fused_kernel")
precopy_mamba_align_fused_kernel = as_documented("precopy_mamba_align_fused_kernel")
preprocess_mamba_align_fused_kernel = as_documented("preprocess_mamba_align_fused_kernel")


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
    """With the copy functions by the type of the layers."""
    config, functions = (
        as_released(kv_cache_config),
        released_functions(kv_cache_config, mamba_state_copy_funcs),
    )
    _released_postprocess(kv_cache_config=config, mamba_state_copy_funcs=functions, **others)


postprocess_mamba_align_gpu = None if _released_postprocess is None else _postprocess_align_gpu


def _postprocess_mamba_all(scheduler_output: Any, kv_cache_config: Any, *others: Any) -> None:
    """Gone since 0.32."""
    _released_postprocess_all(scheduler_output, as_released(kv_cache_config), *others)


postprocess_mamba_all = None if _released_postprocess_all is None else _postprocess_mamba_all
