"""Packed sequences: cumulative starts, and chunk sizes that meet them at awkward places."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

from hypothesis import strategies as st

from properties.strategies.bounds import (
    MANY_CHUNKS,
    MANY_ROWS,
    MOST_CHUNKS,
    MOST_TOKENS,
    WIDE_NUMBERS,
    around,
    crowded,
)
from statecheck.case.values import Call, Tensor, call, int32


@dataclass(frozen=True)
class Packed:
    """Sequences laid end to end on one token axis: their lengths, and the size of a chunk."""

    lens: tuple[int, ...]
    chunk_size: int = 4

    @property
    def starts(self) -> tuple[int, ...]:
        """Cumulative starts, one more than there are sequences."""
        return tuple(itertools.accumulate(self.lens, initial=0))


# Strategies are made once for each of the few numbers that they depend on: making them takes longer than drawing.


@cache
def lengths_around(unit: int) -> st.SearchStrategy[int]:
    """Lengths up to three units and one, of which half lie at a multiple of `unit` or one either side of it.

    The length itself comes first and the move to the multiple below it second, so that each shrinks by itself.
    """
    lengths = st.integers(0, 3 * unit + 1)
    if unit > WIDE_UNIT:
        lengths = st.sampled_from((*range(10), *around((unit, 2 * unit, 3 * unit))))

    @st.composite
    def moved(draw: st.DrawFn) -> int:
        length, offset = draw(lengths), draw(_MOVES)
        return length if offset is None else max(0, length // unit * unit + offset)

    return moved()


WIDE_UNIT = 2**20
"""Above it, lengths between multiples are left out: hardly any number that is drawn of so many would be a large one."""
_MOVES = st.sampled_from((None, None, None, 0, 1, -1))
CHUNK_SIZES = (1, 2, 3, 4, 7, 8, 16, 64, 256)
"""Powers of two and others; 64 is FLA_CHUNK_SIZE, 256 the chunk of published Mamba-2 models."""
MAX_SEQUENCES = 6
"""Of different lengths: enough for empty ones at the front, in between and at the back of filled ones."""


def packed_sequences(
    *,
    chunk_sizes: tuple[int, ...] = CHUNK_SIZES,
    wide: bool = True,
    most_chunks: int = MANY_CHUNKS[-1],
) -> st.SearchStrategy[Packed]:
    """Packed sequences with one of `chunk_sizes`; the first of them is the simplest.

    Args:
        wide: sequences may have millions of tokens, with a chunk size of millions; not for programs of eight tokens.
        most_chunks: a sequence may have about as many chunks; `MOST_CHUNKS` where nothing is done for each of them.
    """
    return st.sampled_from(chunk_sizes).flatmap(lambda size: _packed_sequences_of(size, most_chunks, wide))


@cache
def _packed_sequences_of(chunk_size: int, most_chunks: int, wide: bool) -> st.SearchStrategy[Packed]:
    """Few sequences, and seldom something beyond a bound that is added to them: it goes first where an example shrinks."""
    lens = st.lists(lengths_around(chunk_size), max_size=MAX_SEQUENCES)
    bounds = tuple(bound for bound in (*MANY_ROWS, 1024) if bound <= most_chunks)
    lengths = tuple(near * chunk_size for near in around(MANY_CHUNKS) if near <= most_chunks + 1)
    longest = tuple(near * chunk_size for near in around((MOST_CHUNKS,)) if near <= most_chunks + 1)
    millions = (*around(WIDE_NUMBERS), MOST_TOKENS - 2**24) if wide else ()
    beyond: tuple[tuple[str, int], ...] = (
        *(("sequences", near) for near in around(bounds)),
        *(("chunks", length) for length in (*lengths, *longest * 4)),
        *(("tokens", length) for length in millions * 2),
    )
    added = st.sampled_from((("", 0),) * (4 * len(beyond)) + beyond)

    @st.composite
    def packed(draw: st.DrawFn) -> Packed:
        some, (kind, number) = draw(lens), draw(added)
        # Beside empty sequences alone, what is added would be all that fails: an example could not shrink to sequences without it.
        if not kind or not any(some):
            return Packed(tuple(some), chunk_size)
        if kind == "tokens":
            return _scaled(tuple(some), chunk_size, number, draw(_WIDE_MOVES))
        # What is added takes a choice more than what is usual, so that examples do not shrink to it.
        at = draw(_PLACES) % len(some)
        if kind == "sequences":
            return Packed((*some[:at], *crowded(some[at:], number - at)), chunk_size)
        return Packed((*some[:at], number, *some[at:]), chunk_size)

    return packed()


_PLACES = st.integers(0, MAX_SEQUENCES - 1)
_WIDE_MOVES = st.sampled_from((0, 1, -1))
"""So that a chunk ends with the sequence, or one token beside it."""


def _scaled(lens: tuple[int, ...], chunk_size: int, longest: int, move: int) -> Packed:
    """The sequences with `longest` tokens in the longest of them; the others and the chunks grow with it.

    What holds of the sequences as they were holds after it, mostly: so an example shrinks to them. And a sequence of millions of
    tokens is as cheap as a short one.
    """
    at = lens.index(max(lens))
    others = sum(lens) - lens[at]
    scale = max(1, min(longest // max(1, lens[at]), (MOST_TOKENS - longest) // max(1, others)))
    grown = tuple(longest if i == at else length * scale for i, length in enumerate(lens))
    return Packed(grown, max(1, min(chunk_size * scale + move, MOST_TOKENS)))


VectorForm = tuple[str, str]
"""The dtype of a vector of integers, and "dense" or "spread": every second element of a poisoned storage."""
DENSE: VectorForm = "int32", "dense"


def vector_forms() -> st.SearchStrategy[VectorForm]:
    """Both dtypes in both ways; the simplest is `DENSE`."""
    return st.tuples(st.sampled_from(("int32", "int64")), st.sampled_from(("dense", "spread")))


def vector_of(values: tuple[int, ...], form: VectorForm) -> Tensor:
    """`values` as a tensor of that form."""
    dtype, how = form
    return Tensor(dtype, (len(values),), values) if how == "dense" else spread(values, dtype)


def spread(values: tuple[int, ...], dtype: str, poison: int = 0x5A5A5A) -> Tensor:
    """`values` at every second position of a storage that is poisoned between them."""
    storage = tuple(itertools.chain.from_iterable((poison, value) for value in values))
    return Tensor(dtype, (len(values),), storage, strides=(2,), offset=1 if values else 0)


def varlen_call(packed: Packed) -> Call:
    return call(
        "compute_varlen_chunk_metadata", query_start_loc=int32(packed.starts), chunk_size=packed.chunk_size
    )
