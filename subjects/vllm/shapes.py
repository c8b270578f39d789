"""Shapes of states, as the release has them."""

from typing import Any

from subjects.vllm.layout import is_conv_state_dim_first
from subjects.vllm.release import RELEASE, adapter_of, optional

__all__ = [
    "MambaStateShapeCalculator",
]

ReleasedShapeCalculator: Any = (
    optional("vllm.model_executor.layers.mamba.mamba_utils:MambaStateShapeCalculator") or object
)


@adapter_of(ReleasedShapeCalculator)
class MambaStateShapeCalculator(ReleasedShapeCalculator):
    """The release's calculator, with the documents' arguments and results."""

    @classmethod
    def short_conv_state_shape(
        cls, tp_world_size: int, intermediate_size: int, conv_kernel: int, num_spec: int = 0
    ) -> Any:
        """Until 0.28 it has no argument for speculative tokens."""
        drafts = {"num_spec": num_spec} if RELEASE >= (0, 29) else {}
        return super().short_conv_state_shape(tp_world_size, intermediate_size, conv_kernel, **drafts)

    @classmethod
    def kda_state_shape(
        cls, tp_world_size: int, num_heads: int, head_dim: int, *sizes: Any, **options: Any
    ) -> Any:
        """The release's three conv states are one, channel behind channel; here they are three again."""
        conv, temporal = super().kda_state_shape(tp_world_size, num_heads, head_dim, *sizes, **options)
        return (*_three_convs(conv, num_heads * head_dim // tp_world_size), temporal)


def _three_convs(conv: tuple[int, int], of_values: int) -> tuple[tuple[int, int], ...]:
    """A conv state of values, keys and keys, apart; as it is if its channels are not theirs."""
    rows, channels = reversed(conv) if is_conv_state_dim_first() else conv
    of_keys, rest = divmod(channels - of_values, 2)
    if rest or of_keys < 1:
        return (conv,)
    shapes = [(rows, of_values), (rows, of_keys), (rows, of_keys)]
    return tuple(shape[::-1] if is_conv_state_dim_first() else shape for shape in shapes)
