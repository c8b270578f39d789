from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from oracle.batch import query_lens, require_starts
from oracle.rules import require, require_int, rule
from oracle.types import PAD_SLOT_ID

CONV_BLOCK_M: Final = 8
FLA_CHUNK_SIZE: Final = 64
_INT32_MAX: Final = 2**31 - 1


class VarlenChunks(NamedTuple):
    """Chunk boundaries, the last chunk of each sequence, the sequence of each chunk."""

    cu_chunk_seqlens: tuple[int, ...]
    last_chunk_indices: tuple[int, ...]
    seq_idx_chunks: tuple[int, ...]


@rule
def varlen_chunk_metadata(query_start_loc: Sequence[int], chunk_size: int) -> VarlenChunks:
    """A chunk starts at each token that opens a sequence or sits on a multiple of `chunk_size`.

    Positions are those of the packed axis, on which all sequences lie end to end. The last boundary
    is the number of tokens. A sequence without tokens has no chunk: its last chunk is -1.
    Source: document 0, `compute_varlen_chunk_metadata`.
    """
    require_starts("query_start_loc", query_start_loc)
    require(query_start_loc[0] == 0, "query_start_loc[0]", query_start_loc[0], "be 0")
    total = query_start_loc[-1]
    last = f"query_start_loc[{len(query_start_loc) - 1}]"
    require(total <= _INT32_MAX, last, total, f"be <= {_INT32_MAX}")
    require_int("chunk_size", chunk_size, minimum=1)

    sequence_starts = (start for start in query_start_loc if start < total)
    chunk_starts = sorted({*sequence_starts, *range(0, total, chunk_size)})
    seq_idx_chunks = tuple(_sequence_of(token, query_start_loc) for token in chunk_starts)
    last_positions = {sequence: position for position, sequence in enumerate(seq_idx_chunks)}
    last_chunk_indices = tuple(
        last_positions.get(sequence, -1) for sequence in range(len(query_start_loc) - 1)
    )
    return VarlenChunks((*chunk_starts, total), last_chunk_indices, seq_idx_chunks)


def _sequence_of(token: int, starts: Sequence[int]) -> int:
    """The one sequence that starts at or before the token and ends after it."""
    owner = bisect_right(starts, token) - 1
    assert starts[owner] <= token < starts[owner + 1]
    return owner


class ConvPrograms(NamedTuple):
    """Programs of the prefill convolution: how many per row, and the row and tile of each program.

    `mlist` and `offsetlist` have one entry per program, `batch_ptr` and `token_chunk_offset_ptr`
    continue them with fillers up to their full length.
    """

    nums: tuple[int, ...]
    mlist: tuple[int, ...]
    offsetlist: tuple[int, ...]
    batch_ptr: tuple[int, ...]
    token_chunk_offset_ptr: tuple[int, ...]


@rule
def causal_conv1d_metadata(query_start_loc_p: Sequence[int]) -> ConvPrograms:
    """Every row is cut into tiles of eight tokens from its own start, and each tile is a program.

    Only the lengths of the rows matter, not where the first one starts. The starts are refused
    under the name of the host tensor, `query_start_loc_p_cpu`.
    Source: contract 1.3, `compute_causal_conv1d_metadata`.
    """
    require_starts("query_start_loc_p_cpu", query_start_loc_p)
    programs = _pieces(query_start_loc_p, CONV_BLOCK_M)
    mlist = tuple(row for row, _ in programs)
    offsetlist = tuple(tile for _, tile in programs)
    nums = _pieces_per_row(query_start_loc_p, CONV_BLOCK_M)

    length = 2 * max(1024, len(programs))
    filler = (PAD_SLOT_ID,) * (length - len(programs))
    return ConvPrograms(nums, mlist, offsetlist, mlist + filler, offsetlist + filler)


@rule
def chunk_indices(cu_seqlens: Sequence[int], chunk_size: int) -> tuple[tuple[int, int], ...]:
    """The chunks of all sequences in order, each as its sequence and its place within it.

    A sequence is counted by its place in `cu_seqlens`, so empty ones keep their number.
    Source: contract 1.9, `prepare_chunk_indices`.
    """
    require_starts("cu_seqlens", cu_seqlens)
    require_int("chunk_size", chunk_size, minimum=1)
    return tuple(_pieces(cu_seqlens, chunk_size))


def chunk_offsets(cu_seqlens: Sequence[int], chunk_size: int) -> tuple[int, ...]:
    """For each sequence the number of chunks before it, and at the end the number of all chunks.

    Source: contract 1.9, `prepare_chunk_offsets`.
    """
    require_starts("cu_seqlens", cu_seqlens)
    require_int("chunk_size", chunk_size, minimum=1)
    counts = _pieces_per_row(cu_seqlens, chunk_size)
    offsets = [0]
    for count in counts:
        offsets.append(offsets[-1] + count)
    return tuple(offsets)


def _pieces(starts: Sequence[int], size: int) -> list[tuple[int, int]]:
    """A piece opens at each token of a row whose distance from the row's start is a multiple of `size`."""
    return [
        (row, token // size)
        for row, length in enumerate(query_lens(starts))
        for token in range(0, length, size)
    ]


def _pieces_per_row(starts: Sequence[int], size: int) -> tuple[int, ...]:
    pieces = Counter(row for row, _ in _pieces(starts, size))
    return tuple(pieces[row] for row in range(len(starts) - 1))
