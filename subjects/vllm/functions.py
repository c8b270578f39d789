"""Plain data, arithmetic, layouts, shapes, chunks and batches, as the release has them."""

from types import SimpleNamespace
from typing import Any

from statecheck.subject.subject import NotOffered
from subjects.vllm.release import RELEASE, adapter_of, optional

__all__ = [
    "MambaSpec",
    "MambaStateShapeCalculator",
    "mamba_get_block_table_tensor",
]


ReleasedMambaSpec: Any = optional("vllm.v1.kv_cache_interface:MambaSpec") or object


def require_mode(mode: str) -> None:
    """Mode "all" is gone since 0.32.

    Raises:
        NotOffered: it is asked for there.
    """
    if mode == "all" and RELEASE >= (0, 32):
        raise NotOffered('mode "all" is gone since 0.32')


@adapter_of(ReleasedMambaSpec)
class MambaSpec(ReleasedMambaSpec):
    """The release's specification, whose budget asks the configuration for the mode that it has itself."""

    def max_memory_usage_bytes(self, vllm_config: Any) -> int:
        """The budget in the specification's own mode."""
        require_mode(self.mamba_cache_mode)
        cache = SimpleNamespace(mamba_cache_mode=self.mamba_cache_mode)
        return int(super().max_memory_usage_bytes(SimpleNamespace(**vars(vllm_config), cache_config=cache)))


is_conv_state_dim_first = optional("vllm.model_executor.layers.mamba.mamba_utils:is_conv_state_dim_first")


ReleasedShapeCalculator: Any = (
    optional("vllm.model_executor.layers.mamba.mamba_utils:MambaStateShapeCalculator") or object
)


@adapter_of(ReleasedShapeCalculator)
class MambaStateShapeCalculator(ReleasedShapeCalculator):
    """The release's calculator, with the documents' arguments and results."""

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


released_block_table_tensor: Any = optional("vllm.v1.attention.backends.utils:mamba_get_block_table_tensor")


@adapter_of(released_block_table_tensor)
def mamba_get_block_table_tensor(
    block_table: Any, seq_lens: Any, kv_cache_spec: Any, mamba_cache_mode: str
) -> Any:
    """The release's, in the modes that it has."""
    require_mode(mamba_cache_mode)
    return released_block_table_tensor(block_table, seq_lens, kv_cache_spec, mamba_cache_mode)
