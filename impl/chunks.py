"""How prefill tokens are cut into the chunks and programs of the scan and conv kernels."""

from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch

from .checks import INT32_MAX, INT64_MAX, Int64s, describe, int_at_least, refuse, start_offsets, tensor_of
from .types import PAD_SLOT_ID

CONV_BLOCK_M = 8
"""Tokens per program of the prefill conv kernel."""

# 64 bytes, in int32 elements.
_ALIGNMENT = 16


class CausalConv1dNums(TypedDict):
    """The programs of one conv launch. P rows, N programs. Source: contract 1.3.

    nums: [P] programs per row, CPU, dtype of the starts. tot, mlist_len: N. mlist: [N] int64 CPU, row of
    each program. offsetlist: [N] int32 CPU, its ordinal within the row. batch_ptr, token_chunk_offset_ptr:
    mlist and offsetlist on the device, padded.
    """

    nums: torch.Tensor
    tot: int
    mlist: torch.Tensor
    mlist_len: int
    offsetlist: torch.Tensor
    batch_ptr: torch.Tensor
    token_chunk_offset_ptr: torch.Tensor


def compute_varlen_chunk_metadata(
    query_start_loc: torch.Tensor, chunk_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(cu_chunk_seqlens [n+1], last_chunk_indices [B], seq_idx_chunks [n]), int32, on the input's device.

    B packed sequences are cut where one ends and at every multiple of `chunk_size` on the packed token
    axis. cu_chunk_seqlens: where each chunk starts, then the number of tokens. last_chunk_indices: the last
    chunk of each sequence, -1 for an empty one. seq_idx_chunks: the sequence of each chunk.
    `query_start_loc`: [B+1] int32 or int64, cumulative starts from 0.

    Raises ValueError naming `query_start_loc` if it is not 1-D, empty, of another dtype, not from 0,
    decreasing, or holds more than 2**31 - 1 tokens, and `chunk_size` if it is not an int >= 1.
    Source: document 0, compute_varlen_chunk_metadata.
    """
    function = "compute_varlen_chunk_metadata"
    chunk_size = int_at_least("chunk_size", chunk_size, 1, function)
    starts = start_offsets("query_start_loc", query_start_loc, function, first_is_zero=True, most=INT32_MAX)
    begins, lengths = starts[:-1].astype(np.int64), np.diff(starts)
    # Any chunk that holds all tokens cuts alike; a larger number would not fit the arithmetic.
    chunk_size = min(chunk_size, INT32_MAX + 1)
    sections = _split_into_chunks(begins, lengths, begins % chunk_size, chunk_size)
    cu_chunk_seqlens, last_chunk_indices, seq_idx_chunks = _upload_packed(sections, query_start_loc.device)
    return cu_chunk_seqlens, last_chunk_indices, seq_idx_chunks


def _split_into_chunks(
    starts: Int64s, lengths: npt.NDArray[Any], phases: Int64s, chunk_size: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Cumulative chunk ends (with a leading 0), last chunk per sequence, sequence per chunk.

    `phases`: position modulo chunk_size of each sequence's first token on the axis whose multiples cut.
    """
    counts = np.where(lengths > 0, -(-(phases + lengths) // chunk_size), 0)
    owners, ordinals = _enumerate(counts)
    ends = np.zeros(owners.size + 1, np.int64)
    within = (ordinals + 1) * chunk_size - phases[owners]
    ends[1:] = starts[owners] + np.minimum(within, lengths[owners])
    last = np.where(counts > 0, np.cumsum(counts) - 1, -1)
    return ends, last, owners


def _enumerate(counts: npt.NDArray[Any]) -> tuple[Int64s, Int64s]:
    """For counts 2, 0, 1: owners 0, 0, 2 and ordinals 0, 1, 0."""
    owners = np.repeat(np.arange(counts.size), counts)
    firsts = np.cumsum(counts) - counts
    return owners, np.arange(owners.size) - firsts[owners]


def _upload_packed(sections: tuple[Int64s, ...], device: torch.device) -> list[torch.Tensor]:
    """int32 tensors of these contents on the device, for the price of one copy.

    Each section starts at a multiple of 64 bytes from the buffer's base, which allocators align at least
    as well: Triton compiles one kernel per alignment of its pointers, so a place that depended on the data
    would recompile the kernels that read it.
    """
    *places, total = np.cumsum([0, *(_aligned(section.size) for section in sections)]).tolist()
    host = _host_empty((total,), torch.int32, device)
    buffer = host.numpy()
    for place, section in zip(places, sections, strict=True):
        buffer[place : place + section.size] = section
    packed = host.to(device, non_blocking=True)
    return [packed[place : place + section.size] for place, section in zip(places, sections, strict=True)]


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _host_empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    # Only a copy from pinned memory is asynchronous; the allocator keeps it until the copy has run.
    return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")


def compute_causal_conv1d_metadata(
    query_start_loc_p_cpu: torch.Tensor, *, device: torch.device | str
) -> tuple[dict[int, CausalConv1dNums], torch.Tensor, torch.Tensor]:
    """({8: nums}, batch_ptr, token_chunk_offset_ptr): which tokens each conv program handles.

    Row i of length n gets ceil(n / 8) programs, an empty one none. Program p handles the tokens
    [8 * o, 8 * o + 8) of row b, with b = batch_ptr[p] and o = token_chunk_offset_ptr[p]; both are int32 on
    `device`, 2 * max(1024, N) long for N programs, and -1 behind them. The dictionary holds these very
    tensors as well. `query_start_loc_p_cpu`: [P+1] int32 or int64 on the CPU; only differences matter.

    Raises ValueError naming `query_start_loc_p_cpu` if it is on a device, not 1-D, empty, of another dtype,
    or decreasing. Source: contract 1.3.
    """
    function, argument = "compute_causal_conv1d_metadata", "query_start_loc_p_cpu"
    tensor = tensor_of(argument, query_start_loc_p_cpu, 1, function)
    if tensor.device.type != "cpu":
        refuse(argument, describe(tensor), "on the CPU", function)
    counts = _chunks_per_sequence(start_offsets(argument, tensor, function), CONV_BLOCK_M)
    owners, ordinals = _enumerate(counts)
    batch_ptr, token_chunk_offset_ptr = _program_tables(owners, ordinals, torch.device(device))
    nums = CausalConv1dNums(
        nums=torch.from_numpy(counts).to(tensor.dtype),
        tot=owners.size,
        mlist=torch.from_numpy(owners),
        mlist_len=owners.size,
        offsetlist=torch.from_numpy(ordinals.astype(np.int32)),
        batch_ptr=batch_ptr,
        token_chunk_offset_ptr=token_chunk_offset_ptr,
    )
    return {CONV_BLOCK_M: nums}, batch_ptr, token_chunk_offset_ptr


def _chunks_per_sequence(starts: npt.NDArray[Any], chunk_size: int) -> Int64s:
    wide = starts.astype(np.int64)
    lengths = wide[1:] - wide[:-1]
    counts: Int64s = -(-lengths // chunk_size)
    return counts


def _program_tables(
    owners: Int64s, ordinals: Int64s, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    length = 2 * max(1024, owners.size)
    # The second row starts at a multiple of 64 bytes for the reason that _upload_packed gives.
    host = _host_empty((2, _aligned(length)), torch.int32, device)
    # NumPy fills on this thread; torch would start its pool for a long table, and a busy host waits for it.
    buffer = host.numpy()
    buffer[:, owners.size :] = PAD_SLOT_ID
    buffer[0, : owners.size] = owners
    buffer[1, : owners.size] = ordinals
    tables = host.to(device, non_blocking=True)
    return tables[0, :length], tables[1, :length]


def prepare_chunk_indices(cu_seqlens: torch.Tensor, chunk_size: int) -> torch.Tensor:
    """[N, 2] rows (sequence, ordinal of the chunk within it), dtype and device of `cu_seqlens`.

    Sequences count as they stand in `cu_seqlens`, so that an empty one gets no row but keeps its number.
    `cu_seqlens`: [P+1] int32 or int64, cumulative starts; only differences matter. Nothing is remembered
    between calls. A tensor on a device is read, which waits for it.

    Raises ValueError naming `cu_seqlens` if it is not 1-D, empty, of another dtype or decreasing, and
    `chunk_size` if it is not an int >= 1. Source: contract 1.9.
    """
    owners, ordinals = _enumerate(_fla_chunk_counts(cu_seqlens, chunk_size, "prepare_chunk_indices"))
    host = _host_empty((owners.size, 2), cu_seqlens.dtype, cu_seqlens.device)
    buffer = host.numpy()
    buffer[:, 0] = owners
    buffer[:, 1] = ordinals
    return host.to(cu_seqlens.device, non_blocking=True)


def prepare_chunk_offsets(cu_seqlens: torch.Tensor, chunk_size: int) -> torch.Tensor:
    """[P+1] int64 on the device of `cu_seqlens`: chunks before each sequence, then the number of all.

    Takes and refuses what `prepare_chunk_indices` does. Source: contract 1.9.
    """
    counts = _fla_chunk_counts(cu_seqlens, chunk_size, "prepare_chunk_offsets")
    host = _host_empty((counts.size + 1,), torch.int64, cu_seqlens.device)
    buffer = host.numpy()
    buffer[0] = 0
    np.cumsum(counts, out=buffer[1:])
    return host.to(cu_seqlens.device, non_blocking=True)


def _fla_chunk_counts(cu_seqlens: torch.Tensor, chunk_size: int, function: str) -> Int64s:
    chunk_size = int_at_least("chunk_size", chunk_size, 1, function)
    starts = start_offsets("cu_seqlens", cu_seqlens, function)
    return _chunks_per_sequence(starts, min(chunk_size, INT64_MAX))
