"""Strategies for the models of align mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from properties.strategies.align.kept import DTYPES, Group, Kept
from properties.strategies.align.setup import KINDS, LARGE, Setup
from properties.strategies.bounds import MOST_DRAFTS, drafts
from properties.strategies.situations import noted

WIDE = (0,) * 15 + (304, 301, 17003)
"""Bytes of a block that is wider than a few threads, or than a program copies at a time."""
TILES = (1024, 1023, 1025)
"""Bytes of a block as long as the documented tile of a copy, and one byte beside it."""
FEW_DRAFTS = 3
"""Drafts of most models: with three, accepted tokens can end before a boundary, on it, and behind it by one and by two."""
WIDE_BLOCKS = (1600, 2**23 + 1, 2**28 - 2**20)
"""Tokens of a block: as in the field, more than half of what a float32 counts, and so many that four requests of two blocks each
have just fewer tokens than an int32 counts."""


LARGE_BY_CHANNEL = 4250
"""Bytes of a large conv state whose rows are moved channel by channel, in several times as many steps."""


def setups(
    *,
    layouts: Sequence[str] = ("SD", "DS"),
    kinds: Sequence[tuple[str, ...]] = KINDS,
    min_spec: int = 0,
    plain: bool = False,
    large: bool = True,
    most_spec: int = MOST_DRAFTS,
) -> st.SearchStrategy[Setup]:
    """Models inside the documented domain.

    Args:
        plain: one layer with states of one byte per element.
        large: a state may be larger than what a program copies at a time, see `LARGE`.
        most_spec: drafts at most, where each takes a page of gigabytes, or launches in every order.
    """
    return _setups(tuple(layouts), tuple(kinds), min_spec, most_spec, plain, large).map(noted)


@st.composite
def _setups(
    draw: st.DrawFn,
    layouts: tuple[str, ...],
    kinds: tuple[tuple[str, ...], ...],
    min_spec: int,
    most_spec: int,
    plain: bool,
    large: bool,
) -> Setup:
    layout, chosen = draw(_one_of(layouts)), draw(_one_of(kinds))
    spec = draw(_drafts(min_spec, most_spec))
    room = draw(_ROOM)
    block_size = room if room in WIDE_BLOCKS else 1 + spec + room
    first = draw(_groups(layout, spec, chosen, plain))
    if plain:
        return Setup((first,), chosen, block_size, spec, layout)
    others = draw(_OTHERS)
    shared, attention = draw(_SHARED), draw(_ATTENTION)
    first = _affordable(first, layout, large=large)
    groups = (first, *(_other(first, difference) for difference in others))
    found = Setup(groups, chosen, block_size, spec, layout, shared and len(groups) > 1, attention)
    if not found.is_costly:
        return found
    return replace(found, groups=(replace(first, layers=1),), shared=False)


OTHERS = ("alike", "fewer states", "more padding", "wider states", "other types", "another layer")
"""How a second group can differ from the first."""


# Strategies are made once, because making them takes longer than drawing from them.
_OTHERS = st.lists(st.sampled_from(OTHERS), max_size=1)


_ROOM = st.sampled_from((*(0, 1, 3, 4) * 6, *WIDE_BLOCKS))


_SHARED = st.booleans()


_ATTENTION = st.sampled_from((False, False, False, True))


_LAYERS = st.sampled_from((1, 1, 2))


_LEADS = st.sampled_from((0, 0, 0, 1, 5))


_PADDINGS = st.sampled_from((0, 0, 1, 7, 64))


_ROWS, _CHANNELS = st.integers(1, 3), st.integers(1, 6)


_DIMS = st.sampled_from((2, 1, 3))


_WIDE = st.sampled_from((*WIDE[:-3] * 3, *WIDE[-3:] * 3, *TILES))


_WIDE_BLOCKS = st.sampled_from(WIDE_BLOCKS)


_one_of = cache(st.sampled_from)


@cache
def _drafts(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most) if most <= FEW_DRAFTS else drafts(least, few=FEW_DRAFTS, one_in=10)


@cache
def _counts(most: int) -> st.SearchStrategy[int]:
    """How many of its states a group has: all of them, or the first."""
    return st.sampled_from((most, most, 1))


def _affordable(group: Group, layout: str, *, large: bool) -> Group:
    """The group with one large state at most, or none; others become as wide as a few threads."""
    too_large = [number for number, state in enumerate(group.states) if state.nbytes > LARGE]
    first = too_large[0] if large and too_large else -1

    def resized(number: int, state: Kept) -> Kept:
        if number not in too_large:
            return state
        if number != first:
            return _resized(state, layout, WIDE[-3])
        by_channel = state.kind == "conv" and layout == "DS"
        return _resized(state, layout, LARGE_BY_CHANNEL) if by_channel else state

    return replace(group, states=tuple(resized(*pair) for pair in enumerate(group.states)))


def _resized(state: Kept, layout: str, nbytes: int) -> Kept:
    """A wide state with at most so many bytes, but more channels than a few threads have lanes."""
    if state.kind == "temporal":
        return replace(state, shape=(1, 1, nbytes // state.itemsize))
    rows = state.shape[0] if layout == "SD" else state.shape[1]
    shape = (rows, max(43, nbytes // rows // state.itemsize))
    return replace(state, shape=shape if layout == "SD" else shape[::-1])


def _other(group: Group, difference: str) -> Group:
    """A group beside `group`; it is made from it so that what both have shrinks in one place."""
    match difference:
        case "fewer states":
            return replace(group, states=group.states[:1])
        case "more padding":
            return replace(group, padding=group.padding + 3)
        case "wider states":
            wider = ((*one.shape[:-1], one.shape[-1] + 1) for one in group.states)
            pairs = zip(group.states, wider, strict=True)
            return replace(group, states=tuple(replace(one, shape=shape) for one, shape in pairs))
        case "other types":
            types = dict(zip(DTYPES, (*list(DTYPES)[1:], "uint8"), strict=True))
            return replace(group, states=tuple(replace(one, dtype=types[one.dtype]) for one in group.states))
        case "another layer":
            return replace(group, layers=group.layers + 1)
    return group


@cache
@st.composite
def _groups(draw: st.DrawFn, layout: str, spec: int, kinds: tuple[str, ...], plain: bool) -> Group:
    count = len(kinds) if plain else draw(_counts(len(kinds)))
    dtypes = ("uint8",) if plain else tuple(DTYPES)
    states = tuple(draw(_kept(kind, layout, spec, count, dtypes, plain)) for kind in kinds[:count])
    if plain:
        return Group(states)
    return Group(
        states,
        layers=draw(_LAYERS),
        lead=draw(_LEADS),
        padding=draw(_PADDINGS),
    )


@cache
@st.composite
def _kept(
    draw: st.DrawFn, kind: str, layout: str, spec: int, count: int, dtypes: tuple[str, ...], plain: bool
) -> Kept:
    # The same draws for both kinds, so that one can shrink to the other.
    rows, channels, dtype = draw(_ROWS), draw(_CHANNELS), draw(_one_of(dtypes))
    dims = draw(_DIMS)
    wide = 0 if plain else draw(_WIDE)
    if kind == "conv":
        channels = max(43, wide // (spec + rows) // DTYPES[dtype]) if wide else channels
        shape = (spec + rows, channels)
        return Kept(kind, shape if layout == "SD" else shape[::-1], dtype)
    if wide:
        return Kept(kind, (1, 1, wide // DTYPES[dtype]), dtype)
    # Where there is no other state, two dimensions would look like those of a conv state.
    block = {1: (channels,), 2: (rows, channels), 3: (1, rows, channels)}[3 if count == 1 else dims]
    return Kept(kind, block, dtype)
