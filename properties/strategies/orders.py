"""Orders in which the programs of a launch make their operations; see `properties.harness.case.switches`."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from properties.harness.case.switches import Switch, spelled

_MOST_SWITCHES, _MOST_ORDERS = 6, 6
_LONGEST = 60
"""Operations up to a switch: about as many as a program makes that copies a small state."""
_PROGRAMS, _WARPS = 4, (4, 2)


@cache
def schedules() -> st.SearchStrategy[str]:
    """Orders in which the programs of a launch run, the usual one first."""
    return st.just("") | reorderings()


EVERY = "every:300"
"""All interleavings of a small launch. Of the kernels that copy states there are hardly more than a dozen: they share little."""


@cache
def orders() -> st.SearchStrategy[list[str]]:
    """Orders in which to make one launch again and again: a few other than the usual one, and maybe all if the launch is small."""

    # Not every time: all orders of one launch cost as much as twenty launches.
    def chosen(every: bool, some: list[str]) -> list[str]:
        return [*some, EVERY] if every or not some else some

    return st.builds(chosen, st.booleans(), st.lists(reorderings(), max_size=_MOST_ORDERS))


@cache
def reorderings() -> st.SearchStrategy[str]:
    """Orders other than the usual one: a few switches between programs, or a seed that draws many."""
    # Few choices first: what is found with many shrinks to them, whichever it began with.
    return st.just("reversed") | _seeded() | switches() | warp_switches()


_KINDS = st.sampled_from(("priorities", "interleaved", "shuffled", "warps"))
_SEEDS = st.integers(0, 999)


@st.composite
def _seeded(draw: st.DrawFn) -> str:
    return f"{draw(_KINDS)}:{draw(_SEEDS)}"


def switches() -> st.SearchStrategy[str]:
    """From one program to another one, after a number of operations each."""
    return _some(_PROGRAMS).map(lambda made: spelled([made]))


def warp_switches() -> st.SearchStrategy[str]:
    """The same between the warps of every program."""
    found = _some(max(_WARPS))

    @st.composite
    def spellings(draw: st.DrawFn) -> str:
        made = draw(found)
        return spelled([made], draw(_NUMBERS_OF_WARPS))

    return spellings()


_NUMBERS_OF_WARPS = st.sampled_from(_WARPS)
_LENGTHS = st.integers(0, _LONGEST)


def _some(numbers: int) -> st.SearchStrategy[list[Switch]]:
    targets = st.integers(0, numbers - 1)

    @st.composite
    def switch(draw: st.DrawFn) -> Switch:
        return Switch(draw(_LENGTHS), draw(targets))

    return st.lists(switch(), min_size=1, max_size=_MOST_SWITCHES)


def without_warps(schedule: str) -> str:
    """Another order in place of warps, each of which takes as long as the whole program."""
    return "reversed" if schedule.startswith(("warps", "warpswitches")) else schedule
