"""Situations of chunks."""

from collections.abc import Sequence
from itertools import pairwise

from oracle.batch import query_lens
from oracle.chunks import (
    CONV_BLOCK_M,
    ConvPrograms,
    VarlenChunks,
    causal_conv1d_metadata,
    chunk_indices,
    varlen_chunk_metadata,
)
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("chunks")

NO_TOKENS = _declare("no sequence has tokens to cut into chunks")
EMPTY = _declare("a sequence without tokens has no chunk")
MEET = _declare("a sequence starts on a multiple of the chunk size")
ONE_TOKEN = _declare("a chunk of one token, where chunks may be longer")
NO_PROGRAM = _declare("a convolution without programs")
MANY_PROGRAMS = _declare("more programs of a convolution than the least buffer has room for")
FULL_TILE = _declare("the last tile of a convolution's row is full")
LATER_START = _declare("starts that do not begin at 0 are counted from the first")
EMPTY_NUMBER = _declare("an empty sequence before others keeps its number")
FULL_CHUNK = _declare("a sequence ends with a full chunk")
BYTE_OF_CHUNKS = _declare("a sequence has more chunks than a byte counts")
WORD_OF_CHUNKS = _declare("a sequence has more chunks than sixteen bits count")
LEAST_BUFFER = _declare("a convolution has just as many programs as the least buffer has room for")
WORD_OF_PROGRAMS = _declare("a row of a convolution has more programs than sixteen bits count")
INEXACT_LENGTH = _declare("a sequence is longer than a float32 counts")
HALF_OF_INT32 = _declare("a sequence is longer than half of what an int32 counts")
MANY_SEQUENCES = _declare("more sequences are packed than a byte counts")


@watches(varlen_chunk_metadata)
def _chunks(answer: VarlenChunks, query_start_loc: Sequence[int], chunk_size: int) -> None:
    starts, lens = query_start_loc, query_lens(query_start_loc)
    first_tokens = [start for start, length in zip(starts, lens, strict=False) if length]
    NO_TOKENS.reached_if(not first_tokens)
    EMPTY.reached_if(len(first_tokens) < len(starts) - 1)
    MEET.reached_if(any(start and start % chunk_size == 0 for start in first_tokens))
    ONE_TOKEN.reached_if(chunk_size > 1 and 1 in query_lens(answer.cu_chunk_seqlens))
    _sizes(lens, chunk_size)


def _sizes(lens: Sequence[int], chunk_size: int) -> None:
    longest = max(lens, default=0)
    BYTE_OF_CHUNKS.reached_if(longest > 255 * chunk_size)
    WORD_OF_CHUNKS.reached_if(longest > 65_535 * chunk_size)
    INEXACT_LENGTH.reached_if(longest > 2**24)
    HALF_OF_INT32.reached_if(longest > 2**30)
    MANY_SEQUENCES.reached_if(len(lens) > 255)


@watches(causal_conv1d_metadata)
def _programs(answer: ConvPrograms, query_start_loc_p: Sequence[int]) -> None:
    lens = query_lens(query_start_loc_p)
    LATER_START.reached_if(query_start_loc_p[0])
    NO_PROGRAM.reached_if(not answer.mlist)
    MANY_PROGRAMS.reached_if(len(answer.mlist) > 1024)
    LEAST_BUFFER.reached_if(len(answer.mlist) == 1024)
    WORD_OF_PROGRAMS.reached_if(max(answer.nums, default=0) > 65_535)
    FULL_TILE.reached_if(any(length and length % CONV_BLOCK_M == 0 for length in lens))


@watches(chunk_indices)
def _indices(_: object, cu_seqlens: Sequence[int], chunk_size: int) -> None:
    lens = query_lens(cu_seqlens)
    EMPTY_NUMBER.reached_if(any(not length and following for length, following in pairwise(lens)))
    FULL_CHUNK.reached_if(any(length and length % chunk_size == 0 for length in lens))
    _sizes(lens, chunk_size)
