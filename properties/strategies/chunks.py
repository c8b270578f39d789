"""Packed sequences: cumulative starts, and chunk sizes that meet them at awkward places."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

from hypothesis import strategies as st

from properties.strategies.situations import NamedSituations, noted
from statecheck.case.values import Call, Tensor, call, int32


@dataclass(frozen=True)
class Packed(NamedSituations):
    """Sequences laid end to end on one token axis: their lengths, and the size of a chunk."""

    lens: tuple[int, ...]
    chunk_size: int = 4

    @property
    def starts(self) -> tuple[int, ...]:
        """Cumulative starts, one more than there are sequences."""
        return tuple(itertools.accumulate(self.lens, initial=0))

    def conditions(self) -> dict[str, bool]:
        lens, unit = self.lens, self.chunk_size
        filled = [sequence for sequence, length in enumerate(lens) if length]
        return {
            "no sequence": not lens,
            "only empty sequences": bool(lens) and not filled,
            "an empty sequence at the front": bool(filled) and lens[0] == 0,
            "an empty sequence between others": bool(filled) and 0 in lens[filled[0] : filled[-1]],
            "zero-length rows at the back": bool(filled) and lens[-1] == 0,
            "a length at k * chunk_size": unit > 1 and any(n and n % unit == 0 for n in lens),
            "a length at k * chunk_size + 1": unit > 1 and any(n > unit and n % unit == 1 for n in lens),
            "a length at k * chunk_size - 1": unit > 1 and any(n % unit == unit - 1 for n in lens),
            "a start inside a physical chunk": any(self.starts[sequence] % unit for sequence in filled),
            "several chunks in a sequence": any(n > unit for n in lens),
        }


# Strategies are made once for each of the few numbers that they depend on: making them takes longer than drawing.


@cache
def lengths_around(unit: int) -> st.SearchStrategy[int]:
    """Lengths up to three units and one, of which half lie at a multiple of `unit` or one either side of it.

    The length itself comes first and the move to the multiple below it second, so that each shrinks by itself.
    """
    lengths = st.integers(0, 3 * unit + 1)

    @st.composite
    def around(draw: st.DrawFn) -> int:
        length, offset = draw(lengths), draw(_MOVES)
        return length if offset is None else max(0, length // unit * unit + offset)

    return around()


_MOVES = st.sampled_from((None, None, None, 0, 1, -1))


def packed_sequences(
    *, chunk_sizes: tuple[int, ...] = (1, 2, 3, 4, 7, 8, 16, 64, 256), max_sequences: int = 6
) -> st.SearchStrategy[Packed]:
    """Packed sequences with one of `chunk_sizes`; the first of them is the simplest."""
    found = st.sampled_from(chunk_sizes).flatmap(lambda size: _packed_sequences_of(size, max_sequences))
    return found.map(noted)


@cache
def _packed_sequences_of(chunk_size: int, max_sequences: int) -> st.SearchStrategy[Packed]:
    lens = st.lists(lengths_around(chunk_size), max_size=max_sequences)
    return lens.map(lambda found: Packed(tuple(found), chunk_size))


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
