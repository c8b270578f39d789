"""Decodes and prefills of a batch, and its block tables, as the release has them."""

from typing import Any

from subjects.vllm.release import adapter_of, optional
from subjects.vllm.types import require_mode

__all__ = [
    "CommonAttentionMetadata",
    "mamba_get_block_table_tensor",
    "split_decodes_and_prefills",
]

split_decodes_and_prefills = optional("vllm.v1.attention.backends.utils:split_decodes_and_prefills")
released_block_table_tensor: Any = optional("vllm.v1.attention.backends.utils:mamba_get_block_table_tensor")
CommonAttentionMetadata = optional("vllm.v1.attention.backend:CommonAttentionMetadata")


@adapter_of(released_block_table_tensor)
def mamba_get_block_table_tensor(
    block_table: Any, seq_lens: Any, kv_cache_spec: Any, mamba_cache_mode: str
) -> Any:
    """The release's, in the modes that it has."""
    require_mode(mamba_cache_mode)
    return released_block_table_tensor(block_table, seq_lens, kv_cache_spec, mamba_cache_mode)
