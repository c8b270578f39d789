"""Chunks and tiles of packed sequences, asked with lists of starts."""

from typing import Any

import torch

from subjects.plain.port import ask, handed, ints, read_as, vector_of

__all__ = [
    "compute_causal_conv1d_metadata",
    "compute_varlen_chunk_metadata",
    "prepare_chunk_indices",
    "prepare_chunk_offsets",
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
