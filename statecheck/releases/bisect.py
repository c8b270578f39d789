"""Which releases to try next, to learn since when a case is wrong from as few of them as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from statecheck.report.bisection import Bisection, TriedRelease

Try = Callable[[str], TriedRelease]


def search(
    bisection: Bisection, try_release: Try, first: Sequence[str] = (), *, everything: bool = False
) -> Bisection:
    """Try releases until every change of verdict that was seen lies between two neighbours.

    Between two releases of one verdict nothing is tried: a change there and back would not be seen.

    Args:
        bisection: all releases, and those that were tried already.
        first: tried before anything else, such as those that cost nothing.
        everything: try all of them.

    Returns: what is known at the end, or when the user interrupts it.
    """
    while (name := _following(bisection, first, everything=everything)) is not None:
        try:
            bisection = bisection.with_tried(try_release(name))
        except KeyboardInterrupt:
            return replace(bisection, interrupted=True)
    return bisection


def _following(bisection: Bisection, first: Sequence[str], *, everything: bool) -> str | None:
    tried = bisection.by_name
    wanted = [*_of(first, bisection.names), *_ends(bisection), *(bisection.names if everything else ())]
    return next((name for name in (*wanted, *_middles(bisection)) if name not in tried), None)


def _of(first: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    return (name for name in first if name in names)


def _ends(bisection: Bisection) -> Iterator[str]:
    """From both ends inwards, up to the first one that something is known of."""
    tried = bisection.by_name
    for names in (bisection.names, bisection.names[::-1]):
        for name in names:
            yield name
            if name not in tried or tried[name].state:
                break


def _middles(bisection: Bisection) -> Iterator[str]:
    """Of what was not tried between two neighbours of different verdicts, the one in the middle."""
    tried = bisection.by_name
    for one, other in pairwise(bisection.decided):
        if one.state != other.state:
            between = [name for name in bisection.between(one.name, other.name) if name not in tried]
            yield from between[len(between) // 2 :][:1]
