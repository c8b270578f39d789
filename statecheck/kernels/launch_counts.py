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

EXECUTED, NOT_EXECUTED = "executed", "not executed"
_MOST_NAMES = 8


@dataclass(frozen=True, order=True)
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
    executed, others = (
        {launch: times for launch, times in launches.items() if launch.how == how}
        for how in (EXECUTED, NOT_EXECUTED)
    )
    parts = []
    if executed:
        parts.append(
            f"{_kernels(executed)} executed from their IR ({counted(sum(executed.values()), 'launch', 'launches')})"
        )
    if others:
        named = [
            f"{launch.kernel} ({launch.why}), {counted(times, 'launch', 'launches')}"
            for launch, times in sorted(others.items(), key=lambda item: (-item[1], item[0].kernel))
        ]
        more = [f"{len(named) - _MOST_NAMES} more"] if len(named) > _MOST_NAMES else []
        parts.append(f"{_kernels(others)} not executed: {'; '.join(named[:_MOST_NAMES] + more)}")
    return "; ".join(parts)


def _kernels(launches: Mapping[How, int]) -> int:
    return len({(how.kernel, how.place) for how in launches})
