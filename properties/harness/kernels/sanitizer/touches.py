"""What one load, store or atomic of a program touches, before anybody asks about it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from properties.harness.case.findings import Access, Program
from properties.harness.kernels.sanitizer.provenance import Origin
from properties.harness.kernels.sanitizer.views import Integers

Place = tuple[str, int]
"""A file and a line of kernel code; ("", 0) where nobody knows."""
_NOTHING: Integers = np.zeros(0, np.int64)


@dataclass(slots=True, eq=False)
class Touch:
    """All active lanes of one access."""

    kind: str
    program: Program
    place: Place
    nbytes: int
    addresses: Integers
    low: int
    high: int
    """The end of the last element."""
    mask: Any
    """The active lanes of the tile; None for all."""
    shape: tuple[int, ...]
    origin: Origin | None
    data: Any = None
    """Of a store, the values of the active lanes."""
    reads: bool = True
    writes: bool = False
    acquires: bool = False
    releases: bool = False
    is_run: bool = False
    """The active lanes' elements are known to be neighbours, in the order of the lanes."""

    @property
    def scalar(self) -> bool:
        return self.shape == () or all(n == 1 for n in self.shape)

    def without_addresses(self) -> Touch:
        """The same in less memory, for who only asks what was done, and where."""
        origin = self.origin if isinstance(self.origin, int) else None
        return replace(self, addresses=_NOTHING, mask=None, origin=origin, data=None)

    def lane_numbers(self) -> Integers:
        return np.arange(len(self.addresses)) if self.mask is None else np.flatnonzero(self.mask)

    def spaced(self) -> bool:
        """Whether the lanes' elements follow each other without touching the same byte."""
        if self.is_run:
            return True
        gaps = self.addresses[1:] - self.addresses[:-1]
        return not len(gaps) or bool(gaps.min() >= self.nbytes)

    def has(self, byte: int) -> bool:
        return bool(((self.addresses <= byte) & (byte < self.addresses + self.nbytes)).any())

    def bytes_between(self, low: int, high: int) -> tuple[Integers, Integers]:
        """Every byte touched from `low` to before `high`, and the lane that touches it."""
        some = (self.addresses < high) & (self.addresses + self.nbytes > low)
        found = self.addresses[some][:, None] + np.arange(self.nbytes)
        lanes = np.broadcast_to(self.lane_numbers()[some][:, None], found.shape)
        inside = (found >= low) & (found < high)
        return found[inside], lanes[inside]


def touch(
    kind: str,
    program: Program,
    pointers: Any,
    mask: Any,
    nbytes: int,
    origin: Origin | None,
    values: Any = None,
) -> Touch | None:
    """What the active lanes of an access touch; None where all are masked out."""
    data = pointers.data
    if data.size == 1:
        return _single(kind, program, data, mask, nbytes, origin, values)
    active = np.asarray(mask)
    if active.shape != data.shape:
        active = np.broadcast_to(active, data.shape)
    addresses = data.view(np.int64)
    lanes = None
    if not active.all():
        lanes = active
        addresses = addresses[active]
        if not len(addresses):
            return None
        origin = origin if origin is None or type(origin) is int else np.asarray(origin)[active]
        values = None if values is None else np.broadcast_to(values, data.shape)[active]
    elif origin is not None and type(origin) is not int:
        origin = np.asarray(origin).reshape(-1)
    addresses = addresses.reshape(-1)
    low, high = int(addresses.min()), int(addresses.max()) + nbytes
    return Touch(kind, program, _place(), nbytes, addresses, low, high, lanes, data.shape, origin, values)


def _single(
    kind: str, program: Program, data: Any, mask: Any, nbytes: int, origin: Origin | None, values: Any
) -> Touch | None:
    if not np.asarray(mask).any():
        return None
    addresses = data.reshape(-1).view(np.int64)
    low = int(addresses[0])
    if origin is not None and type(origin) is not int:
        origin = int(np.asarray(origin).reshape(-1)[0])
    return Touch(
        kind, program, _place(), nbytes, addresses, low, low + nbytes, None, data.shape, origin, values
    )


_OWN = str(Path(__file__).parent)
_SCHEDULES = str(Path(__file__).parent.parent / "schedules.py")


@cache
def _is_machinery(file: str) -> bool:
    import triton

    return file.startswith((str(Path(triton.__file__).parent), _OWN)) or file == _SCHEDULES


def _place() -> Place:
    """The innermost line of a kernel's code that is being run."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_machinery(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def place_texts(place: Place) -> tuple[str, str]:
    file, line = place
    if not file:
        return "an unknown line", ""
    return f"{Path(file).name}:{line}", f"{file}:{line}"


def arithmetic(program: Program, kernel: str, launch: int) -> Access:
    """The access of a finding that has none."""
    return Access("arithmetic", program, kernel, "", None, 0, 0, *place_texts(_place()), launch)
