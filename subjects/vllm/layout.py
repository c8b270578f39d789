"""Layouts of the conv state, and what a copy of a state moves, as the release has them."""

from subjects.vllm.release import optional

__all__ = [
    "ConvStateLayoutType",
    "MambaCopySpec",
    "MambaStateCopyFunc",
    "get_conv_copy_spec",
    "get_conv_state_layout",
    "get_temporal_copy_spec",
    "is_conv_state_dim_first",
]

MambaCopySpec = optional("vllm.model_executor.layers.mamba.mamba_utils:MambaCopySpec")
MambaStateCopyFunc = optional("vllm.model_executor.layers.mamba.mamba_utils:MambaStateCopyFunc")
get_conv_copy_spec = optional("vllm.model_executor.layers.mamba.mamba_utils:get_conv_copy_spec")
get_temporal_copy_spec = optional("vllm.model_executor.layers.mamba.mamba_utils:get_temporal_copy_spec")
ConvStateLayoutType = optional("vllm.model_executor.layers.mamba.mamba_utils:ConvStateLayoutType")
get_conv_state_layout = optional("vllm.model_executor.layers.mamba.mamba_utils:get_conv_state_layout")
is_conv_state_dim_first = optional("vllm.model_executor.layers.mamba.mamba_utils:is_conv_state_dim_first")
