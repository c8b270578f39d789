"""Published hybrid models: the recurrent-state arguments of their configurations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedModel:
    """A published configuration, as far as its recurrent state goes.

    Args:
        source: the repository on Hugging Face and the fields of its config.json.
        family: the method of `MambaStateShapeCalculator` that its layers use.
        arguments: what that method takes beside the number of ranks and of speculative tokens.
    """

    name: str
    source: str
    family: str
    arguments: tuple[tuple[str, int], ...]


PUBLISHED_MODELS = (
    PublishedModel(
        name="Qwen3-Next-80B-A3B",
        source="Qwen/Qwen3-Next-80B-A3B-Instruct, config.json: linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim, linear_conv_kernel_dim",
        family="gated_delta_net_state_shape",
        arguments=(
            ("num_k_heads", 16),
            ("num_v_heads", 32),
            ("head_k_dim", 128),
            ("head_v_dim", 128),
            ("conv_kernel_size", 4),
        ),
    ),
    PublishedModel(
        name="Nemotron-H-8B",
        source="nvidia/Nemotron-H-8B-Base-8K, config.json: mamba_num_heads, mamba_head_dim, n_groups, ssm_state_size, conv_kernel; intermediate_size = mamba_num_heads * mamba_head_dim",
        family="mamba2_state_shape",
        arguments=(
            ("intermediate_size", 8192),
            ("n_groups", 8),
            ("num_heads", 128),
            ("head_dim", 64),
            ("state_size", 128),
            ("conv_kernel", 4),
        ),
    ),
    PublishedModel(
        name="Granite-4.0-H-Small",
        source="ibm-granite/granite-4.0-h-small, config.json: mamba_n_heads, mamba_d_head, mamba_n_groups, mamba_d_state, mamba_d_conv; intermediate_size = mamba_expand * hidden_size",
        family="mamba2_state_shape",
        arguments=(
            ("intermediate_size", 8192),
            ("n_groups", 1),
            ("num_heads", 128),
            ("head_dim", 64),
            ("state_size", 128),
            ("conv_kernel", 4),
        ),
    ),
    PublishedModel(
        name="Falcon-H1-7B",
        source="tiiuae/Falcon-H1-7B-Instruct, config.json: mamba_d_ssm, mamba_n_heads, mamba_d_head, mamba_n_groups, mamba_d_state, mamba_d_conv",
        family="mamba2_state_shape",
        arguments=(
            ("intermediate_size", 3072),
            ("n_groups", 1),
            ("num_heads", 24),
            ("head_dim", 128),
            ("state_size", 256),
            ("conv_kernel", 4),
        ),
    ),
    PublishedModel(
        name="Bamba-9B",
        source="ibm-fms/Bamba-9B, config.json: mamba_n_heads, mamba_d_head, mamba_n_groups, mamba_d_state, mamba_d_conv; intermediate_size = mamba_expand * hidden_size",
        family="mamba2_state_shape",
        arguments=(
            ("intermediate_size", 8192),
            ("n_groups", 1),
            ("num_heads", 128),
            ("head_dim", 64),
            ("state_size", 128),
            ("conv_kernel", 4),
        ),
    ),
    PublishedModel(
        name="Jamba-v0.1",
        source="ai21labs/Jamba-v0.1, config.json: mamba_d_state, mamba_d_conv; intermediate_size = mamba_expand * hidden_size",
        family="mamba1_state_shape",
        arguments=(("intermediate_size", 8192), ("state_size", 16), ("conv_kernel", 4)),
    ),
    PublishedModel(
        name="Kimi-Linear-48B-A3B",
        source="moonshotai/Kimi-Linear-48B-A3B-Instruct, config.json, linear_attn_config: num_heads, head_dim, short_conv_kernel_size",
        family="kda_state_shape",
        arguments=(("num_heads", 32), ("head_dim", 128), ("conv_kernel_size", 4)),
    ),
    PublishedModel(
        name="LFM2-1.2B",
        source="LiquidAI/LFM2-1.2B, config.json: conv_dim, conv_L_cache",
        family="short_conv_state_shape",
        arguments=(("intermediate_size", 2048), ("conv_kernel", 3)),
    ),
    PublishedModel(
        name="MiniMax-Text-01",
        source="MiniMaxAI/MiniMax-Text-01, config.json: num_attention_heads, head_dim",
        family="linear_attention_state_shape",
        arguments=(("num_heads", 64), ("head_dim", 128)),
    ),
)
"""Nine published models, every family at least once."""
