"""Orders in which the programs of a launch make their operations; see `properties.harness.kernels.orders.switches`."""

from __future__ import annotations

import zlib
from functools import cache

from hypothesis import strategies as st

from properties.harness.kernels.orders.switches import Switch, spelled

_MOST_SWITCHES, _MOST_ORDERS = 6, 6
_FEW_SWITCHES = 3
"""Of a launch that is made once: what a request does is as much of an example."""
_LONGEST = 60
"""Operations up to a switch: about as many as a program makes that copies a small state."""
_PROGRAMS = 4
_KINDS = ("reversed", "switches", "warpswitches:4", "priorities", "interleaved", "shuffled", "warps")
EVERY = "every:300"
"""All interleavings of a small launch. Of the kernels that copy states there are hardly more than a dozen: they share little."""


@cache
def schedules() -> st.SearchStrategy[str]:
    """Orders in which the programs of a launch run, the usual one first."""
    # Each is an alternative of its own, so that the usual order is one in five.
    return st.one_of(st.just(""), *(reorderings(_FEW_SWITCHES) for _ in range(4)))


@cache
def orders() -> st.SearchStrategy[list[str]]:
    """Orders in which to make one launch again and again: a few other than the usual one, and all if the launch is small."""
    return st.lists(reorderings(), max_size=_MOST_ORDERS).map(lambda some: [*some, EVERY])


def reorderings(most: int = _MOST_SWITCHES) -> st.SearchStrategy[str]:
    """Orders other than the usual one: a few switches between programs or warps, or a seed that draws many."""
    one = st.builds(Switch, st.integers(0, _LONGEST), st.integers(0, _PROGRAMS - 1))
    # The same is drawn for every kind, so that one kind can shrink to another.
    return st.builds(_spelled, st.sampled_from(_KINDS), st.lists(one, min_size=1, max_size=most))


def _spelled(kind: str, switches: list[Switch]) -> str:
    """Of a kind that draws, the switches are the seed."""
    if kind == "reversed":
        return kind
    name, _, warps = kind.partition(":")
    if name in ("switches", "warpswitches"):
        return spelled([switches], int(warps or 0))
    return f"{kind}:{zlib.crc32(repr(switches).encode()) % 1000}"


def without_warps(schedule: str) -> str:
    """Another order in place of warps, each of which takes as long as the whole program."""
    return "reversed" if schedule.startswith(("warps", "warpswitches")) else schedule
