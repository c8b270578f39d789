"""Published hybrid models: the recurrent-state arguments of their configurations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .checks import int_at_least, refuse
from .shapes import MambaStateShapeCalculator

StateShapes = tuple[tuple[int, ...], ...]
StateFamily = Literal[
    "linear_attention_state_shape",
    "mamba1_state_shape",
    "mamba2_state_shape",
    "short_conv_state_shape",
    "gated_delta_net_state_shape",
    "kda_state_shape",
]

_CALCULATORS: dict[StateFamily, Callable[..., StateShapes]] = {
    "linear_attention_state_shape": MambaStateShapeCalculator.linear_attention_state_shape,
    "mamba1_state_shape": MambaStateShapeCalculator.mamba1_state_shape,
    "mamba2_state_shape": MambaStateShapeCalculator.mamba2_state_shape,
    "short_conv_state_shape": MambaStateShapeCalculator.short_conv_state_shape,
    "gated_delta_net_state_shape": MambaStateShapeCalculator.gated_delta_net_state_shape,
    "kda_state_shape": MambaStateShapeCalculator.kda_state_shape,
}


@dataclass(frozen=True)
class PublishedModel:
    """One published configuration, as far as its recurrent state goes.

    `source`: the repository on Hugging Face and the fields of its config.json. `family`: the method of
    `MambaStateShapeCalculator` that its layers use. `arguments`: what that method takes beside the number of
    ranks and of speculative tokens.
    """

    name: str
    source: str
    family: StateFamily
    arguments: tuple[tuple[str, int], ...]

    def state_shapes(self, tp_size: int = 1, num_spec: int = 0) -> StateShapes:
        """Shapes of one block's states on one of `tp_size` ranks, with `num_spec` speculative tokens.

        Raises ValueError like the method of the family; and naming `num_spec` if it is > 0 for Mamba-1,
        whose conv state has no rows for speculative tokens.
        """
        calculate, arguments = _CALCULATORS[self.family], dict(self.arguments)
        if self.family == "linear_attention_state_shape":
            int_at_least("num_spec", num_spec, 0, "state_shapes")
            return calculate(tp_size=tp_size, **arguments)
        if self.family == "mamba1_state_shape":
            if int_at_least("num_spec", num_spec, 0, "state_shapes"):
                refuse("num_spec", num_spec, "0 for Mamba-1", "state_shapes")
            return calculate(tp_world_size=tp_size, **arguments)
        return calculate(tp_world_size=tp_size, num_spec=num_spec, **arguments)


PUBLISHED_MODELS = (
    PublishedModel(
        name="Qwen3-Next-80B-A3B",
        source=(
            "Qwen/Qwen3-Next-80B-A3B-Instruct, config.json: linear_num_key_heads, linear_num_value_heads, "
            "linear_key_head_dim, linear_value_head_dim, linear_conv_kernel_dim; layers: num_hidden_layers "
            "48, every 4th (full_attention_interval) is attention"
        ),
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
        source=(
            "nvidia/Nemotron-H-8B-Base-8K, config.json: mamba_num_heads, mamba_head_dim, n_groups, "
            "ssm_state_size, conv_kernel; intermediate_size = mamba_num_heads * mamba_head_dim; layers: M in "
            "hybrid_override_pattern"
        ),
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
        source=(
            "ibm-granite/granite-4.0-h-small, config.json: mamba_n_heads, mamba_d_head, mamba_n_groups, "
            "mamba_d_state, mamba_d_conv; intermediate_size = mamba_expand * hidden_size; layers: mamba in "
            "layer_types"
        ),
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
        source=(
            "tiiuae/Falcon-H1-7B-Instruct, config.json: mamba_d_ssm, mamba_n_heads, mamba_d_head, "
            "mamba_n_groups, mamba_d_state, mamba_d_conv; layers: num_hidden_layers, each has both mixers"
        ),
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
        source=(
            "ibm-fms/Bamba-9B, config.json: mamba_n_heads, mamba_d_head, mamba_n_groups, mamba_d_state, "
            "mamba_d_conv; intermediate_size = mamba_expand * hidden_size; layers: num_hidden_layers 32 "
            "without attn_layer_indices 9, 18, 27"
        ),
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
        source=(
            "ai21labs/Jamba-v0.1, config.json: mamba_d_state, mamba_d_conv; intermediate_size = mamba_expand "
            "* hidden_size; layers: num_hidden_layers 32, one attention layer per attn_layer_period 8"
        ),
        family="mamba1_state_shape",
        arguments=(("intermediate_size", 8192), ("state_size", 16), ("conv_kernel", 4)),
    ),
    PublishedModel(
        name="Kimi-Linear-48B-A3B",
        source=(
            "moonshotai/Kimi-Linear-48B-A3B-Instruct, config.json, linear_attn_config: num_heads, head_dim, "
            "short_conv_kernel_size; layers: kda_layers"
        ),
        family="kda_state_shape",
        arguments=(("num_heads", 32), ("head_dim", 128), ("conv_kernel_size", 4)),
    ),
    PublishedModel(
        name="LFM2-1.2B",
        source=(
            "LiquidAI/LFM2-1.2B, config.json: conv_dim, conv_L_cache; layers: num_hidden_layers 16 without "
            "the 6 of full_attn_idxs"
        ),
        family="short_conv_state_shape",
        arguments=(("intermediate_size", 2048), ("conv_kernel", 3)),
    ),
    PublishedModel(
        name="MiniMax-Text-01",
        source=(
            "MiniMaxAI/MiniMax-Text-01, config.json: num_attention_heads, head_dim; layers: 0 in "
            "attn_type_list"
        ),
        family="linear_attention_state_shape",
        arguments=(("num_heads", 64), ("head_dim", 128)),
    ),
)
"""Nine published models, every family at least once."""
