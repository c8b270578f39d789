"""How kernels were launched: counted in a process, added up over many."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from statecheck.util.text import counted

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


LAUNCHES: Counter[How] = Counter()
"""Launches of this process, by kernel and by how they were run."""

_taken_over: Counter[How] = Counter()


def interpreted() -> Counter[How]:
    """Launches of this process that Triton's interpreter ran, unwatched."""
    return Counter({how: times for how, times in LAUNCHES.items() if how.how == INTERPRETED})


def unwatched(launches: Mapping[How, int]) -> str:
    """A sentence about interpreted launches, "" if there are none."""
    named = sorted({f"{how.kernel} (the executor does not know {how.why})" for how in launches})
    return f"nothing watches launches in Triton's interpreter: {', '.join(named)}" if named else ""


def take() -> Counter[How]:
    """What was launched since the last time that this was asked."""
    launches = LAUNCHES - _taken_over
    _taken_over.update(launches)
    return launches


def place_of(function: Any) -> str:
    """File and line of the Python function that a kernel was made of."""
    code = function.__code__
    return f"{_short(code.co_filename)}:{code.co_firstlineno}"


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
