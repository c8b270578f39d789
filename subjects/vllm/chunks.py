"""Chunks of sequences, as the release has them."""

from subjects.vllm.release import optional

__all__ = [
    "compute_causal_conv1d_metadata",
    "compute_varlen_chunk_metadata",
    "prepare_chunk_indices",
    "prepare_chunk_offsets",
]

compute_varlen_chunk_metadata = optional(
    "vllm.v1.attention.backends.mamba2_attn:compute_varlen_chunk_metadata"
)
compute_causal_conv1d_metadata = optional("vllm.v1.attention.backends.utils:compute_causal_conv1d_metadata")
prepare_chunk_indices = optional("vllm.third_party.flash_linear_attention.ops.index:prepare_chunk_indices")
prepare_chunk_offsets = optional("vllm.third_party.flash_linear_attention.ops.index:prepare_chunk_offsets")
