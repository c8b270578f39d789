"""Orders in which the programs of a launch make their operations; see `statecheck.case.values`.

An order is a few switches, as in PCT (Burckhardt and others, "A randomized scheduler with probabilistic guarantees of finding
bugs"): few races need more than two or three. A switch is two integers, which Hypothesis draws and makes smaller.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from statecheck.case.values import Switch, schedule_text

_MOST_SWITCHES, _MOST_ORDERS = 6, 6
_LONGEST = 60
"""Operations up to a switch: about as many as a program makes that copies a small state."""
_PROGRAMS = 4


@cache
def schedules() -> st.SearchStrategy[str]:
    """Orders in which the programs of a launch run, row-major order first."""
    return st.just("") | reorderings()


@cache
def orders() -> st.SearchStrategy[list[str]]:
    """Orders other than row-major in which to make one launch again and again."""
    return st.lists(reorderings(), min_size=1, max_size=_MOST_ORDERS)


@cache
def reorderings() -> st.SearchStrategy[str]:
    """Orders other than row-major, the reversed one first."""
    return st.just("reversed") | switches()


def switches() -> st.SearchStrategy[str]:
    """From one program to another one, after a number of operations each."""
    switch = st.builds(Switch, st.integers(0, _LONGEST), st.integers(0, _PROGRAMS - 1))
    some = st.lists(switch, min_size=1, max_size=_MOST_SWITCHES)
    return some.map(lambda made: schedule_text([made]))
