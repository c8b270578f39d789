"""Which branches of kernels were taken, and how kernels were launched: noted in a process, added up over many.

A branch is a way that control can take at a line of a kernel's code: one and the same in all variants of the kernel, from wherever
the code was called.
"""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from statecheck.text import counted

if TYPE_CHECKING:
    from statecheck.kernels.source import sites

EXECUTED, INTERPRETED = "executed", "interpreted"
_MOST_NAMES, _MOST_LETTERS = 8, 160


@dataclass(frozen=True)
class How:
    """How a kernel's launches were run, and why not otherwise.

    Args:
        place: file and line of the kernel's code, as in "impl/align/kernels/memcpy.py:12".
    """

    kernel: str
    how: str
    why: str = ""
    place: str = ""


class Branch(NamedTuple):
    """A way that control can take in a kernel: what `way` says ("then", "else", "loop" or "block") at a line, whose text is `text`."""

    kernel: str
    place: str
    file: str
    line: int
    way: str
    text: str


@dataclass(frozen=True)
class Coverage:
    """Launches, the branches that the launched kernels have, and those that were taken."""

    launches: Counter[How] = field(default_factory=Counter)
    branches: frozenset[Branch] = frozenset()
    taken: frozenset[Branch] = frozenset()

    def __add__(self, other: Coverage) -> Coverage:
        launches = Counter(self.launches)
        launches.update(other.launches)
        return Coverage(launches, self.branches | other.branches, self.taken | other.taken)

    def __bool__(self) -> bool:
        return bool(self.launches or self.branches or self.taken)


LAUNCHES: Counter[How] = Counter()
"""Launches of this process, by kernel and by how they were run."""

_taken_over: Counter[How] = Counter()


class _Variant:
    """A variant of a kernel: its branches by number, and which of them were taken since they were asked for."""

    def __init__(self, kernel: str, place: str, branches: Sequence[sites.BranchSite]) -> None:
        self.branches = [_branch(kernel, place, site) for site in branches]
        self.taken = set[int]()
        self.handed_over = False


_variants: list[_Variant] = []


def noted(kernel: str, place: str, branches: Sequence[sites.BranchSite]) -> set[int]:
    """A set for the numbers of the branches that launches of this variant take."""
    _variants.append(_Variant(kernel, place, branches))
    return _variants[-1].taken


def interpreted() -> Counter[How]:
    """Launches of this process that Triton's interpreter ran, unwatched."""
    return Counter({how: times for how, times in LAUNCHES.items() if how.how == INTERPRETED})


def unwatched(launches: Mapping[How, int]) -> str:
    """A sentence about interpreted launches, "" if there are none."""
    named = sorted({f"{how.kernel} (the executor does not know {how.why})" for how in launches})
    return f"nothing watches launches in Triton's interpreter: {', '.join(named)}" if named else ""


def take() -> Coverage:
    """What was launched and taken since the last time that this was asked, and the branches of kernels that are new since then."""
    launches = LAUNCHES - _taken_over
    _taken_over.update(launches)
    branches, taken = set[Branch](), set[Branch]()
    for variant in _variants:
        if not variant.handed_over:
            branches.update(filter(None, variant.branches))
            variant.handed_over = True
        if variant.taken:
            taken.update(
                branch for number in variant.taken if (branch := variant.branches[number]) is not None
            )
            variant.taken.clear()
    return Coverage(launches, frozenset(branches), frozenset(taken))


def place_of(function: Any) -> str:
    """File and line of the Python function that a kernel was made of."""
    code = function.__code__
    return f"{_short(code.co_filename)}:{code.co_firstlineno}"


def _branch(kernel: str, place: str, site: sites.BranchSite) -> Branch | None:
    """None for what has no line, such as a loop that Triton has made."""
    file, line = site.place.file, site.place.line
    if not file:
        return None
    text = linecache.getline(file, line).strip()[:_MOST_LETTERS]
    return Branch(kernel, place, _short(file), line, site.taken, text)


@cache
def _short(file: str) -> str:
    """The file below the folder that it is imported from, so that it is the same on every machine."""
    path = Path(file).absolute()
    roots = (Path(root or ".").absolute() for root in sys.path)
    above = [root for root in roots if path.is_relative_to(root)]
    return str(path.relative_to(max(above, key=lambda root: len(root.parts)))) if above else file


def summary(launches: Mapping[How, int]) -> str:
    """How kernels were run, in a few words for each way; "" where none was launched."""
    executed, interpreted = (
        {launch: times for launch, times in launches.items() if launch.how == how}
        for how in (EXECUTED, INTERPRETED)
    )
    parts = []
    if executed:
        parts.append(
            f"{_kernels(executed)} executed from their IR ({counted(sum(executed.values()), 'launch', 'launches')})"
        )
    if interpreted:
        named = [
            f"{launch.kernel} ({launch.why}), {counted(times, 'launch', 'launches')}"
            for launch, times in sorted(interpreted.items(), key=lambda item: (-item[1], item[0].kernel))
        ]
        more = [f"{len(named) - _MOST_NAMES} more"] if len(named) > _MOST_NAMES else []
        parts.append(
            f"{_kernels(interpreted)} in Triton's interpreter, unwatched: {'; '.join(named[:_MOST_NAMES] + more)}"
        )
    return "; ".join(parts)


def _kernels(launches: Mapping[How, int]) -> int:
    return len({(how.kernel, how.place) for how in launches})
