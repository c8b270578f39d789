"""File descriptors of a process in which a subject runs: those that it leaves open, and those that it must not close.

They are counted, and never closed: a subject may use them later.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

from statecheck.subject.remarks import note

_MOST_FILES = 64
"""Descriptors that a worker may open beyond those of its first task before it is reported."""
_needed: dict[int, tuple[tuple[int, int], Callable[[], NoReturn]]] = {}
"""File descriptors without which this process cannot go on: what each leads to, and what to do when it is gone."""


def need(descriptor: int, give_up: Callable[[], NoReturn]) -> None:
    """Have `give_up` called as soon as a call of the subject has closed this file descriptor, or leads it elsewhere."""
    _needed[descriptor] = _target_of(descriptor), give_up


def require_needed() -> None:
    for descriptor, (target, give_up) in _needed.items():
        if _target_of(descriptor) != target:
            give_up()


def _target_of(descriptor: int) -> tuple[int, int]:
    """What an open file descriptor leads to; (0, 0) where it is closed."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def open_files() -> int:
    """How many file descriptors this process has open; 0 where the system does not say."""
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone
    except OSError:
        return 0


class OpenFiles:
    """Watches how many file descriptors a worker has open."""

    def __init__(self) -> None:
        self._first: int | None = None

    def look(self) -> None:
        """Remark where there are many more than at the first look."""
        now = open_files()
        if self._first is None:
            self._first = now
        elif now > self._first + _MOST_FILES:
            note(
                "open files",
                f"the subject leaves files open: a worker has {now} open file descriptors, and had {self._first}",
            )
