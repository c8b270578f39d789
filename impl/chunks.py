"""How prefill tokens are cut into the chunks and programs of the scan and conv kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import torch

from .checks import (
    INT32_MAX,
    INT64_MAX,
    Int64s,
    Integers,
    describe,
    int_at_least,
    refuse,
    start_offsets,
    tensor_of,
)
from .types import PAD_SLOT_ID

CONV_BLOCK_M = 8
"""Tokens per program of the prefill conv kernel."""


@dataclass(slots=True)
class Filled:
    """An array, followed by PAD_SLOT_ID up to `size` entries."""

    values: Integers
    size: int


Arrays = Sequence[Integers | npt.NDArray[np.bool_] | Filled]

# Bytes.
_ALIGNMENT = 64

_NUMPY_DTYPES = {torch.int64: np.int64, torch.int32: np.int32, torch.bool: np.bool_}


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
    chunk_size = min(chunk_size, INT32_MAX)
    ends, counts, so_far, owners = _split_into_chunks(begins, lengths, begins % chunk_size, chunk_size)
    last = np.where(counts > 0, so_far - 1, -1)
    cu_chunk_seqlens, last_chunk_indices, seq_idx_chunks = upload_packed(
        query_start_loc.device, [ends, last, owners]
    )
    return cu_chunk_seqlens, last_chunk_indices, seq_idx_chunks


def split_at_positions(
    starts: Integers, lengths: Integers, computed: Int64s, chunk_size: int
) -> tuple[Int64s, Int64s, Int64s]:
    """What compute_varlen_chunk_metadata returns, for sequences cut at multiples of their own positions.

    `starts`: [P+1], from 0. `computed` [P]: the position of each row's first token, 0 for an empty row, whose
    last chunk is the one before it. Source: contract 1.10.
    """
    # A request has at most 2**31 - 1 tokens, so that any larger chunk cuts alike.
    chunk_size = min(chunk_size, INT32_MAX)
    phases = computed % chunk_size
    ends, _, so_far, owners = _split_into_chunks(starts[:-1], lengths, phases, chunk_size)
    return ends, so_far - 1, owners


def _split_into_chunks(
    starts: Integers, lengths: Integers, phases: Int64s, chunk_size: int
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Cumulative chunk ends (with a leading 0), chunks per sequence, their running sum, sequence per chunk.

    `phases`: position modulo chunk_size of each sequence's first token on the axis whose multiples cut.
    """
    counts = np.where(lengths > 0, -(-(phases + lengths) // chunk_size), 0)
    owners = np.arange(counts.size).repeat(counts)
    so_far = counts.cumsum()
    ends = np.zeros(owners.size + 1, np.int64)
    # Where the first chunk of all would begin, if each had chunk_size tokens and this row's were in place.
    origins = starts - phases - (so_far - counts) * chunk_size
    cuts = origins.repeat(counts) + np.arange(chunk_size, (owners.size + 1) * chunk_size, chunk_size)
    np.minimum(cuts, (starts + lengths).repeat(counts), out=ends[1:])
    return ends, counts, so_far, owners


def _enumerate(counts: Integers) -> tuple[Int64s, Int64s]:
    """For counts 2, 0, 1: owners 0, 0, 2 and ordinals 0, 1, 0."""
    owners = np.arange(counts.size).repeat(counts)
    firsts = counts.cumsum() - counts
    return owners, np.arange(owners.size) - firsts.repeat(counts)


def upload_packed(
    device: torch.device, int32s: Arrays = (), int64s: Arrays = (), flags: Arrays = ()
) -> list[torch.Tensor]:
    """1-D tensors of these contents on the device, for the price of one copy: int64, then int32, then bool.

    Each starts at a multiple of 64 bytes from the buffer's base, which allocators align at least as well:
    Triton compiles one kernel per alignment of its pointers, so a place that depended on the data would
    recompile the kernels that read it.
    """
    groups, end = [], 0
    for dtype, arrays in (torch.int64, int64s), (torch.int32, int32s), (torch.bool, flags):
        if arrays:
            begin, sizes, kept = end, *_with_gaps(arrays, _ALIGNMENT // dtype.itemsize)
            end = begin + sum(sizes) * dtype.itemsize
            groups.append((dtype, arrays, begin, end, sizes, kept))
    host = _host_empty((end,), torch.uint8, device)
    raw = host.numpy()
    for dtype, arrays, begin, end, *_ in groups:
        _write(arrays, raw[begin:end].view(_NUMPY_DTYPES[dtype]))
    packed = host.to(device, non_blocking=True)
    tensors: list[torch.Tensor] = []
    for dtype, _, begin, end, sizes, kept in groups:
        # One call that cuts out contents and gaps alike costs less than a slice per array.
        pieces = packed[begin:end].view(dtype).split_with_sizes(sizes)
        tensors += [pieces[place] for place in kept]
    return tensors


def _with_gaps(arrays: Arrays, alignment: int) -> tuple[list[int], list[int]]:
    """The sizes of the arrays and of the gaps behind them, and the places of the former in that list."""
    sizes: list[int] = []
    places: list[int] = []
    for array in arrays:
        places.append(len(sizes))
        sizes.append(array.size)
        gap = -array.size % alignment
        if gap:
            sizes.append(gap)
    return sizes, places


def _write(arrays: Arrays, buffer: Integers) -> None:
    # NumPy fills on this thread; torch would start its pool for a long array, and a busy host waits for it.
    at, alignment = 0, _ALIGNMENT // buffer.itemsize
    for array in arrays:
        end = at + array.size
        values = array.values if isinstance(array, Filled) else array
        filler = at + values.size
        buffer[at:filler] = values
        buffer[filler:end] = PAD_SLOT_ID
        at = end + -end % alignment


def _upload(array: Integers, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    host = _host_empty(array.shape, dtype, device)
    host.numpy()[...] = array
    return host.to(device, non_blocking=True)


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
    starts = start_offsets(argument, tensor, function)
    wide = starts.astype(np.int64)
    programs = conv_programs(wide[1:] - wide[:-1])
    programs.counts = programs.counts.astype(starts.dtype)
    batch_ptr, token_chunk_offset_ptr = upload_packed(torch.device(device), programs.tables())
    nums = programs.nums_dict(batch_ptr, token_chunk_offset_ptr)
    return nums, batch_ptr, token_chunk_offset_ptr


@dataclass(slots=True)
class ConvPrograms:
    """The host half of one conv launch.

    counts [P], dtype of the lengths: programs per row. owners [N] int64, ordinals [N] int32: the row of each
    program, and its place among the row's.
    """

    counts: Integers
    owners: Int64s
    ordinals: npt.NDArray[np.int32]

    def tables(self) -> list[Filled]:
        """batch_ptr and token_chunk_offset_ptr, for the device."""
        size = 2 * max(1024, self.owners.size)
        return [Filled(self.owners, size), Filled(self.ordinals, size)]

    def nums_dict(
        self, batch_ptr: torch.Tensor, token_chunk_offset_ptr: torch.Tensor
    ) -> dict[int, CausalConv1dNums]:
        """All of it by tokens per program, the tables being on the device."""
        total = self.owners.size
        nums = CausalConv1dNums(
            nums=torch.from_numpy(self.counts),
            tot=total,
            mlist=torch.from_numpy(self.owners),
            mlist_len=total,
            offsetlist=torch.from_numpy(self.ordinals),
            batch_ptr=batch_ptr,
            token_chunk_offset_ptr=token_chunk_offset_ptr,
        )
        return {CONV_BLOCK_M: nums}


def conv_programs(lengths: Integers) -> ConvPrograms:
    """The programs of rows of these lengths. Source: contract 1.3."""
    counts = -(-lengths // CONV_BLOCK_M)
    owners = np.arange(counts.size).repeat(counts)
    firsts = (counts.cumsum() - counts).astype(np.int32)
    ordinals = np.arange(owners.size, dtype=np.int32)
    ordinals -= firsts.repeat(counts)
    return ConvPrograms(counts, owners, ordinals)


def prepare_chunk_indices(cu_seqlens: torch.Tensor, chunk_size: int) -> torch.Tensor:
    """[N, 2] rows (sequence, ordinal of the chunk within it), dtype and device of `cu_seqlens`.

    Sequences count as they stand in `cu_seqlens`, so that an empty one gets no row but keeps its number.
    `cu_seqlens`: [P+1] int32 or int64, cumulative starts; only differences matter. Nothing is remembered
    between calls. A tensor on a device is read, which waits for it.

    Raises ValueError naming `cu_seqlens` if it is not 1-D, empty, of another dtype or decreasing, and
    `chunk_size` if it is not an int >= 1. Source: contract 1.9.
    """
    counts = _fla_chunk_counts(cu_seqlens, chunk_size, "prepare_chunk_indices")
    return _upload(chunk_rows(counts).reshape(-1, 2), cu_seqlens.dtype, cu_seqlens.device)


def prepare_chunk_offsets(cu_seqlens: torch.Tensor, chunk_size: int) -> torch.Tensor:
    """[P+1] int64 on the device of `cu_seqlens`: chunks before each sequence, then the number of all.

    Takes and refuses what `prepare_chunk_indices` does. Source: contract 1.9.
    """
    counts = _fla_chunk_counts(cu_seqlens, chunk_size, "prepare_chunk_offsets")
    return _upload(chunk_offsets(counts), torch.int64, cu_seqlens.device)


def chunk_rows(counts: Integers) -> Int64s:
    """What prepare_chunk_indices tells, flat, for that many chunks per sequence."""
    owners, ordinals = _enumerate(counts)
    rows = np.empty(2 * owners.size, np.int64)
    rows[::2] = owners
    rows[1::2] = ordinals
    return rows


def chunk_offsets(counts: Integers) -> Int64s:
    """What prepare_chunk_offsets tells, for that many chunks per sequence."""
    offsets = np.zeros(counts.size + 1, np.int64)
    counts.cumsum(out=offsets[1:])
    return offsets


def _fla_chunk_counts(cu_seqlens: torch.Tensor, chunk_size: int, function: str) -> Int64s:
    chunk_size = int_at_least("chunk_size", chunk_size, 1, function)
    starts = start_offsets("cu_seqlens", cu_seqlens, function).astype(np.int64)
    counts: Int64s = -(-(starts[1:] - starts[:-1]) // min(chunk_size, INT64_MAX))
    return counts
