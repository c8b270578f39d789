"""How far strategies go: what most inputs stay below, and bounds that are drawn now and then with their neighbours.

Most examples are small: they are cheap, and what fails shrinks to a few numbers. But kernels, builders and engines have limits of
their own (a counter of eight bits, a vector of 64 rows, a `float32` on the way), and a limit shows only in an input beyond it. So a
strategy draws a small number, or in one of so many draws a bound, the number below it or the number above it. Where many elements
are wanted, few are drawn and the first is repeated: their number shrinks by itself, and costs nothing to draw.

What is drawn seldom is drawn first: Hypothesis changes parts of examples, and takes the simplest choice for all that stands behind a
part that has another form now. It draws from each strategy of `one_of` once, however often it is named; `mostly` and `counts` have
weights. And it prefers small numbers of ranges above 2^24, so that bounds there are named one by one.

A bound stands here where several strategies share it, and beside its strategy elsewhere; each has its reason at its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
FEW_DRAFTS = 2
"""With two drafts there are all kinds of acceptance: none, some, and all of them."""
MANY_DRAFTS = (4, 8)
"""Engines in the field draft 5 to 8 tokens; four is where an unrolled loop or a vector of four ends, eight where a byte of flags does."""
MOST_DRAFTS = MANY_DRAFTS[-1] + 1
"""One more than the last bound, so that all strategies keep room for its neighbour."""
MANY_ROWS = (8, 64, 256)
"""Requests of a batch: a vector of eight, the 64 rows of two vectors of a fused kernel, and its documented tile of 256, which is also
where a number of eight bits ends."""
MANY_CHUNKS = (256, 1024)
"""Chunks, or programs: where a number of eight bits ends, and the documented length of the least table of programs."""
MOST_CHUNKS = 65_536
"""Where a number of sixteen bits ends, and the second and third axis of a CUDA grid (65,535)."""
WIDE_NUMBERS = (2**24, 2**30)
"""Tokens and positions as numbers: above 2^24 a float32 has not every integer, and twice 2^30 is no int32 any more."""
MOST_TOKENS = 2**31 - 64
"""An int32 holds up to 2^31 - 1; a few tokens are left for properties that add some."""
PAGE_BYTES = 2**31
"""Bytes of a page, or between two of them, that no int32 holds."""
SELDOM = 12
"""One in so many draws goes beyond what is usual, where that costs little: a property is explored by 12 examples at a time."""


def around(bounds: Iterable[int], least: int = 0) -> tuple[int, ...]:
    """Each of the bounds and its neighbours, from `least` on."""
    return tuple(
        sorted({near for bound in bounds for near in (bound - 1, bound, bound + 1) if near >= least})
    )


@cache
def counts(
    most: int, bounds: Sequence[int] = (), *, min_value: int = 0, one_in: int = SELDOM
) -> st.SearchStrategy[int]:
    """Numbers from `min_value` to `most`, and in one of `one_in` draws one of the `bounds` or a neighbour of it.

    Args:
        bounds: with their neighbours; those that are not above `most` are left out.
    """
    few = tuple(range(min_value, max(most, min_value) + 1))
    many = tuple(near for near in around(bounds, min_value) if near > few[-1])
    # A number shrinks to one that stands before it.
    repeated = max(1, round(len(many) * (one_in - 1) / len(few)))
    return st.sampled_from((*few * repeated, *many))


@cache
def drafts(min_value: int = 0, *, few: int = FEW_DRAFTS, one_in: int = 4) -> st.SearchStrategy[int]:
    """Speculative tokens of a configuration."""
    return counts(few, MANY_DRAFTS, min_value=min_value, one_in=one_in)


@cache
def crowds(bounds: Sequence[int] = MANY_ROWS, *, one_in: int = SELDOM) -> st.SearchStrategy[int]:
    """How many elements there are to be, by repeating the first that was drawn; 0 mostly, for those alone."""
    return counts(0, bounds, one_in=one_in)


def crowded(elements: Sequence[T], count: int) -> list[T]:
    """The elements, the first of them repeated until there are `count`, so that the others stand behind a bound."""
    return [*[*elements[:1]] * (count - len(elements)), *elements]


@st.composite
def mostly(
    draw: st.DrawFn, common: st.SearchStrategy[T], rare: st.SearchStrategy[T], *, one_in: int = SELDOM
) -> T:
    """Values of `common`, to which those of `rare` shrink; these come in one of `one_in` draws."""
    return draw(rare if draw(seldom(one_in)) else common)


@cache
def seldom(one_in: int = SELDOM) -> st.SearchStrategy[bool]:
    """False, and True in one of `one_in` draws."""
    return st.sampled_from((False,) * (one_in - 1) + (True,))
