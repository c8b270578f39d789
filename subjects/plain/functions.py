"""Chunks, batches and block tables, asked of a port's plain functions, with tensors where these are on the device."""

from types import SimpleNamespace
from typing import Any

import torch

from statecheck.subject.subject import NotOffered
from subjects.plain.port import ask, handed, ints, read_as, vector_of

__all__ = [
    "CommonAttentionMetadata",
    "compute_causal_conv1d_metadata",
    "compute_varlen_chunk_metadata",
    "mamba_get_block_table_tensor",
    "prepare_chunk_indices",
    "prepare_chunk_offsets",
    "split_decodes_and_prefills",
]


def compute_varlen_chunk_metadata(query_start_loc: torch.Tensor, chunk_size: int) -> tuple[torch.Tensor, ...]:
    def tensors(found: Any) -> tuple[torch.Tensor, ...]:
        return tuple(vector_of(values, torch.int32, query_start_loc.device) for values in found)

    found = ask(
        "varlen_chunks", query_start_loc=handed("varlen_chunks", query_start_loc), chunk_size=chunk_size
    )
    return read_as(tensors, found)


def compute_causal_conv1d_metadata(
    query_start_loc_p_cpu: torch.Tensor, *, device: torch.device
) -> tuple[dict[int, dict[str, Any]], torch.Tensor, torch.Tensor]:
    def metadata(found: Any) -> tuple[dict[int, dict[str, Any]], torch.Tensor, torch.Tensor]:
        per_row, rows, ordinals = map(ints, found)
        total, host = sum(per_row), torch.device("cpu")
        batch_ptr, offset_ptr = (vector_of(values, torch.int32, device) for values in (rows, ordinals))
        nums = {
            "nums": vector_of(per_row, query_start_loc_p_cpu.dtype, host),
            "tot": total,
            "mlist": vector_of(rows[:total], torch.int64, host),
            "mlist_len": total,
            "offsetlist": vector_of(ordinals[:total], torch.int32, host),
            "batch_ptr": batch_ptr,
            "token_chunk_offset_ptr": offset_ptr,
        }
        return {8: nums}, batch_ptr, offset_ptr

    documented = {"query_start_loc": "query_start_loc_p_cpu"}
    return read_as(
        metadata, ask("conv_tiles", documented, query_start_loc=handed("conv_tiles", query_start_loc_p_cpu))
    )


def prepare_chunk_indices(cu_seqlens: torch.Tensor, chunk_size: int) -> torch.Tensor:
    def matrix(found: Any) -> torch.Tensor:
        pairs = [ints(pair) for pair in found]
        # Without pairs there would be no second dimension.
        indices = torch.tensor(pairs, dtype=cu_seqlens.dtype, device=cu_seqlens.device)
        return indices if pairs else indices.reshape(0, 2)

    return read_as(
        matrix, ask("chunk_indices", cu_seqlens=handed("chunk_indices", cu_seqlens), chunk_size=chunk_size)
    )


def prepare_chunk_offsets(cu_seqlens: torch.Tensor, chunk_size: int) -> torch.Tensor:
    def vector(found: Any) -> torch.Tensor:
        return vector_of(found, torch.int64, cu_seqlens.device)

    return read_as(
        vector, ask("chunk_offsets", cu_seqlens=handed("chunk_offsets", cu_seqlens), chunk_size=chunk_size)
    )


class CommonAttentionMetadata(SimpleNamespace):
    """A step's batch, with the documents' fields."""

    def compute_num_computed_tokens(self) -> Any:
        return ask("num_computed_tokens", query_start_loc=self.query_start_loc, seq_lens=self.seq_lens)

    def naive_query_lens(self) -> Any:
        return ask("query_lens", query_start_loc=self.query_start_loc)


def split_decodes_and_prefills(
    common_attn_metadata: Any,
    decode_threshold: int = 1,
    require_uniform: bool = False,
    treat_short_extends_as_decodes: bool = True,
) -> tuple[int, ...]:
    batch, marks = common_attn_metadata, common_attn_metadata.is_prefilling
    found = ask(
        "split_batch",
        {"query_start_loc": "query_start_loc_cpu", "num_tokens": "num_actual_tokens"},
        query_start_loc=batch.query_start_loc_cpu.tolist(),
        num_tokens=batch.num_actual_tokens,
        decode_threshold=decode_threshold,
        require_uniform=require_uniform,
        short_extends_are_decodes=treat_short_extends_as_decodes,
        is_prefilling=None if marks is None else marks.tolist(),
    )
    return read_as(lambda values: tuple(ints(values)), found)


def mamba_get_block_table_tensor(
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    kv_cache_spec: Any,
    mamba_cache_mode: str,
    max_seq_len: int | None = None,
) -> Any:
    if mamba_cache_mode != "align" or max_seq_len is not None:
        raise NotOffered("block tables are gathered in mode align, without a bound of the lengths")
    return ask(
        "gather_block_table",
        block_table=block_table,
        seq_lens=seq_lens,
        block_size=kv_cache_spec.block_size,
        num_spec=kv_cache_spec.num_speculative_blocks,
    )
