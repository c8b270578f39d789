"""The contexts of align mode, as the release has them."""

import dataclasses
from typing import Any

import torch

from subjects.vllm.align_buffers import (
    SEVERAL_SPECS,
    MambaCopyBuffers,
    as_released,
    released_functions,
    state_specs,
)
from subjects.vllm.release import optional

__all__ = [
    "MambaBuffers",
    "MambaSpecDecodeGPUContext",
]

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
            """Since 0.29 a release counts the states by their copy functions."""
            config = as_released(kv_cache_config)
            counted = (
                released_functions(config, (None,) * num_state_types) if SEVERAL_SPECS else num_state_types
            )
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
            """Since 0.29 copy functions are given by the type of the layers."""
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
