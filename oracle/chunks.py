from collections.abc import Sequence
from typing import Final, NamedTuple

from oracle.batch import query_lens, require_starts
from oracle.errors import require, require_int
from oracle.marks import mark
from oracle.types import PAD_SLOT_ID

CONV_BLOCK_M: Final = 8
FLA_CHUNK_SIZE: Final = 64
_INT32_MAX: Final = 2**31 - 1

_NO_TOKENS = mark("no sequence has tokens to cut into chunks")
_EMPTY = mark("a sequence without tokens has no chunk")
_MEET = mark("a sequence starts on a multiple of the chunk size")
_ONE_TOKEN = mark("a chunk of one token, where chunks may be longer")
_NO_PROGRAM = mark("a convolution without programs")
_MANY_PROGRAMS = mark("more programs of a convolution than the least buffer has room for")
_FULL_TILE = mark("the last tile of a convolution's row is full")
_LATER_START = mark("starts that do not begin at 0 are counted from the first")
_EMPTY_NUMBER = mark("an empty sequence before others keeps its number")
_FULL_CHUNK = mark("a sequence ends with a full chunk")


class VarlenChunks(NamedTuple):
    """Chunk boundaries, the last chunk of each sequence, the sequence of each chunk."""

    cu_chunk_seqlens: tuple[int, ...]
    last_chunk_indices: tuple[int, ...]
    seq_idx_chunks: tuple[int, ...]


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

    sequence_starts = set(query_start_loc)
    chunk_starts = [token for token in range(total) if token in sequence_starts or token % chunk_size == 0]
    seq_idx_chunks = tuple(_sequence_of(token, query_start_loc) for token in chunk_starts)
    last_chunk_indices = tuple(
        _last_position(sequence, seq_idx_chunks) for sequence in range(len(query_start_loc) - 1)
    )
    _note_chunks(query_start_loc, (*chunk_starts, total), chunk_size)
    return VarlenChunks((*chunk_starts, total), last_chunk_indices, seq_idx_chunks)


def _note_chunks(starts: Sequence[int], bounds: Sequence[int], chunk_size: int) -> None:
    first_tokens = [start for start, length in zip(starts, query_lens(starts), strict=False) if length]
    _NO_TOKENS.reached_if(not first_tokens)
    _EMPTY.reached_if(len(first_tokens) < len(starts) - 1)
    _MEET.reached_if(any(start and start % chunk_size == 0 for start in first_tokens))
    _ONE_TOKEN.reached_if(chunk_size > 1 and 1 in query_lens(bounds))


def _sequence_of(token: int, starts: Sequence[int]) -> int:
    """The one sequence that starts at or before the token and ends after it."""
    [owner] = [i for i in range(len(starts) - 1) if starts[i] <= token < starts[i + 1]]
    return owner


def _last_position(wanted: int, values: Sequence[int]) -> int:
    return max((position for position, value in enumerate(values) if value == wanted), default=-1)


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
    lens = query_lens(query_start_loc_p)
    _LATER_START.reached_if(query_start_loc_p[0])
    _NO_PROGRAM.reached_if(not programs)
    _MANY_PROGRAMS.reached_if(len(programs) > 1024)
    _FULL_TILE.reached_if(any(length and length % CONV_BLOCK_M == 0 for length in lens))
    return ConvPrograms(nums, mlist, offsetlist, mlist + filler, offsetlist + filler)


def chunk_indices(cu_seqlens: Sequence[int], chunk_size: int) -> tuple[tuple[int, int], ...]:
    """The chunks of all sequences in order, each as its sequence and its place within it.

    A sequence is counted by its place in `cu_seqlens`, so empty ones keep their number.
    Source: contract 1.9, `prepare_chunk_indices`.
    """
    require_starts("cu_seqlens", cu_seqlens)
    require_int("chunk_size", chunk_size, minimum=1)
    lens = query_lens(cu_seqlens)
    _EMPTY_NUMBER.reached_if(any(not length and any(lens[row:]) for row, length in enumerate(lens)))
    _FULL_CHUNK.reached_if(any(length and length % chunk_size == 0 for length in lens))
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
        for token in range(length)
        if token % size == 0
    ]


def _pieces_per_row(starts: Sequence[int], size: int) -> tuple[int, ...]:
    rows = [row for row, _ in _pieces(starts, size)]
    return tuple(rows.count(row) for row in range(len(starts) - 1))
