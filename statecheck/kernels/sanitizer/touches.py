"""What one load, store or atomic of a program touches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from statecheck.case.findings import Program
from statecheck.kernels.sanitizer.provenance import Origin
from statecheck.kernels.sanitizer.views import Integers

Place = tuple[str, int]
"""A file and a line of kernel code; ("", 0) if it is not known."""
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
        """The same in less memory: what was done, and where, without the addresses."""
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


def place_texts(place: Place) -> tuple[str, str]:
    file, line = place
    if not file:
        return "an unknown line", ""
    return f"{Path(file).name}:{line}", f"{file}:{line}"


class Observer:
    """Is shown the operations of a launch; those of tiles without an active lane among them."""

    def before(self, touch: Touch) -> None:
        """An operation is about to be made. What this raises, the launch raises; then the operation is not made."""

    def after(self, touch: Touch) -> None:
        """The operation has been made; a compare and swap says now whether it wrote."""
