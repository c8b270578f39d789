"""Answers about batches and chunks: the decode/prefill split, the block-table gather, computed tokens, chunk metadata (document 0, contracts 1.2 to 1.4,
1.6 and 1.9).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oracle import batch, chunks
from oracle.rules import Refused
from statecheck.case.values import Record, SameAs, Tensor, Value, int32, int64
from statecheck.reference import answers, host_vector, matrix, vector, whole
from statecheck.reference.builders import CONV_VECTORS, conv_variant


@answers("split_decodes_and_prefills", rule=batch.split_decodes_and_prefills)
def split_decodes_and_prefills(common_attn_metadata: Record, **options: Value) -> Value:
    """Four ints."""
    fields: dict[str, Any] = dict(common_attn_metadata.fields)
    starts = host_vector(fields["query_start_loc_cpu"], "query_start_loc_cpu")
    if len(starts) != fields["num_reqs"] + 1:
        raise Refused("query_start_loc_cpu", starts, "have num_reqs + 1 entries")
    prefilling = fields.get("is_prefilling")
    if prefilling is not None:
        prefilling = [bool(flag) for flag in host_vector(prefilling, "is_prefilling", dtypes=("bool",))]
    split = batch.split_decodes_and_prefills(
        starts, fields["num_actual_tokens"], fields["max_query_len"], is_prefilling=prefilling, **options
    )
    return (split.num_decodes, split.num_prefills, split.num_decode_tokens, split.num_prefill_tokens)


@answers("mamba_get_block_table_tensor", rule=batch.block_table_rows)
def block_table_tensor(
    block_table: Value,
    seq_lens: Value,
    kv_cache_spec: Record,
    mamba_cache_mode: Value,
    max_seq_len: int | None = None,
) -> Value:
    """The table itself, or a new one of 1 + m columns."""
    rows, lengths = matrix(block_table, "block_table"), vector(seq_lens, "seq_lens")
    block_size, speculative = kv_cache_spec["block_size"], kv_cache_spec["num_speculative_blocks"]
    if max_seq_len is not None and mamba_cache_mode == "align":
        most = block_size * (block_table.shape[1] - speculative)
        if max_seq_len > most:
            raise Refused("max_seq_len", max_seq_len, f"be <= {most}")
    gathered = batch.block_table_rows(rows, lengths, block_size, speculative, mamba_cache_mode)
    if gathered is batch.UNCHANGED:
        return SameAs("block_table")
    flat = tuple(block for row in gathered for block in row)
    return Tensor(block_table.dtype, (len(lengths), 1 + speculative), flat, on=block_table.on)


@answers("CommonAttentionMetadata.compute_num_computed_tokens", rule=batch.num_computed_tokens)
def compute_num_computed_tokens(self: Record) -> Value:
    """int32 on the device of the sequence lengths."""
    starts, lengths = vector(self["query_start_loc"], "query_start_loc"), vector(self["seq_lens"], "seq_lens")
    return int32(batch.num_computed_tokens(starts, lengths))


@answers("CommonAttentionMetadata.naive_query_lens", rule=batch.query_lens)
def naive_query_lens(self: Record) -> Value:
    """int32 on the device of the starts."""
    return int32(batch.query_lens(vector(self["query_start_loc"], "query_start_loc")))


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
