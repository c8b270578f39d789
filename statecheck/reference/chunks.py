"""Answers about chunk metadata (document 0, contracts 1.3 and 1.9)."""

from __future__ import annotations

from dataclasses import replace

from oracle import chunks
from statecheck.case.values import SameAs, Tensor, Value, int32, int64
from statecheck.reference import answers
from statecheck.reference.builder_fields import CONV_VECTORS, conv_variant
from statecheck.reference.typed import host_vector, vector, whole


@answers("compute_varlen_chunk_metadata", rule=chunks.varlen_chunk_metadata)
def varlen_chunk_metadata(query_start_loc: Value, chunk_size: Value) -> Value:
    """Three int32 vectors on the device of the input."""
    starts = vector(query_start_loc, "query_start_loc")
    metadata = chunks.varlen_chunk_metadata(starts, whole(chunk_size, "chunk_size"))
    vectors = (metadata.cu_chunk_seqlens, metadata.last_chunk_indices, metadata.seq_idx_chunks)
    return tuple(replace(int32(values), on=query_start_loc.on) for values in vectors)


@answers("compute_causal_conv1d_metadata", rule=chunks.causal_conv1d_metadata)
def causal_conv1d_metadata(query_start_loc_p_cpu: Value, device: Value) -> Value:  # noqa: ARG001 - where it goes is the port's business
    """The dictionary of the one variant, and its two padded vectors once more, as the very same objects."""
    metadata = chunks.causal_conv1d_metadata(host_vector(query_start_loc_p_cpu, "query_start_loc_p_cpu"))
    variant = conv_variant(metadata, query_start_loc_p_cpu.dtype)
    where = f"result[0][{chunks.CONV_BLOCK_M}]"
    return ({chunks.CONV_BLOCK_M: variant}, *(SameAs(f"{where}[{name!r}]") for name in CONV_VECTORS))


@answers("prepare_chunk_indices", rule=chunks.chunk_indices)
def chunk_indices(cu_seqlens: Value, chunk_size: Value) -> Value:
    """Pairs in the dtype and on the device of the input."""
    pairs = chunks.chunk_indices(vector(cu_seqlens, "cu_seqlens"), whole(chunk_size, "chunk_size"))
    flat = tuple(number for pair in pairs for number in pair)
    return Tensor(cu_seqlens.dtype, (len(pairs), 2), flat, on=cu_seqlens.on)


@answers("prepare_chunk_offsets", rule=chunks.chunk_offsets)
def chunk_offsets(cu_seqlens: Value, chunk_size: Value) -> Value:
    """Always int64, on the device of the input."""
    offsets = chunks.chunk_offsets(vector(cu_seqlens, "cu_seqlens"), whole(chunk_size, "chunk_size"))
    return replace(int64(offsets), on=cu_seqlens.on)
