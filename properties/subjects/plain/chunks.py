"""Chunks and tiles of packed sequences, asked with lists of starts."""

from typing import Any

import torch

from properties.subjects.plain.port import ask, ints, vector_of

__all__ = [
    "compute_causal_conv1d_metadata",
    "compute_varlen_chunk_metadata",
    "prepare_chunk_indices",
    "prepare_chunk_offsets",
]


def compute_varlen_chunk_metadata(query_start_loc: torch.Tensor, chunk_size: int) -> tuple[torch.Tensor, ...]:
    found = ask("varlen_chunks", query_start_loc=query_start_loc.tolist(), chunk_size=chunk_size)
    return tuple(vector_of(values, torch.int32, query_start_loc.device) for values in found)


def compute_causal_conv1d_metadata(
    query_start_loc_p_cpu: torch.Tensor, *, device: torch.device
) -> tuple[dict[int, dict[str, Any]], torch.Tensor, torch.Tensor]:
    told_as = {"query_start_loc": "query_start_loc_p_cpu"}
    starts = query_start_loc_p_cpu.tolist()
    per_row, rows, ordinals = map(ints, ask("conv_tiles", told_as, query_start_loc=starts))
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


def prepare_chunk_indices(cu_seqlens: torch.Tensor, chunk_size: int) -> torch.Tensor:
    pairs = [
        ints(pair) for pair in ask("chunk_indices", cu_seqlens=cu_seqlens.tolist(), chunk_size=chunk_size)
    ]
    # Without pairs there would be no second dimension.
    found = torch.tensor(pairs, dtype=cu_seqlens.dtype, device=cu_seqlens.device)
    return found if pairs else found.reshape(0, 2)


def prepare_chunk_offsets(cu_seqlens: torch.Tensor, chunk_size: int) -> torch.Tensor:
    found = ask("chunk_offsets", cu_seqlens=cu_seqlens.tolist(), chunk_size=chunk_size)
    return vector_of(found, torch.int64, cu_seqlens.device)
