"""Which bytes an operation touches, and whether two operations conflict."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from statecheck.kernels.memory import was_exchanged
from statecheck.kernels.observed import Elements
from statecheck.kernels.orders.journal import Journal, NotingMemory
from statecheck.kernels.source.sites import Site

Array = NDArray[Any]
_Key = tuple[bytes | int, int, bool]


class Footprints:
    """Numbers for what operations touch, and which of these conflict."""

    def __init__(self) -> None:
        self._numbers: dict[_Key, int] = {}
        self._bytes: list[tuple[int, int, Array, bool]] = []
        self.conflicts: list[set[int]] = []
        """For each number those whose operations touch a byte with it that one of the two writes."""

    def number(self, elements: Elements, nbytes: int, *, writes: bool) -> int:
        """Of elements at an address, or at several."""
        key = elements if isinstance(elements, int) else elements.tobytes(), nbytes, writes
        if key not in self._numbers:
            self._numbers[key] = self._new(byte_addresses(elements, nbytes), writes)
        return self._numbers[key]

    def _new(self, places: Array, writes: bool) -> int:
        number = len(self._bytes)
        low, high = (int(places[0]), int(places[-1])) if len(places) else (0, -1)
        found = set[int]()
        for other, (first, last, others, also) in enumerate((*self._bytes, (low, high, places, writes))):
            near = first <= high and low <= last and (writes or also)
            if near and bool(np.isin(places, others, assume_unique=True).any()):
                found.add(other)
        self._bytes.append((low, high, places, writes))
        self.conflicts.append(found)
        for other in found:
            self.conflicts[other].add(number)
        return number


def byte_addresses(elements: Elements, nbytes: int) -> Array:
    """The address of every byte of the elements, once each and in their order."""
    return np.unique(np.asarray(elements, np.int64).reshape(-1, 1) + np.arange(nbytes))


class TouchedMemory(NotingMemory):
    """Has the footprint of each operation, if that is `asked`, and notes what it overwrites."""

    def __init__(self, footprints: Footprints) -> None:
        super().__init__()
        self.journal, self._footprints = Journal(), footprints
        self.asked = True
        self.footprint = 0

    def before(self, site: Site, elements: Elements, *, writes: bool) -> None:
        super().before(site, elements, writes=writes)
        if self.asked:
            self.footprint = self._footprints.number(elements, site.nbytes, writes=writes)

    def cas(self, site: Site, pointer: Any, expected: Any, value: Any, origin: Any) -> Any:
        found = super().cas(site, pointer, expected, value, origin)
        if self.asked and not was_exchanged(site, found, expected):
            elements = np.array(pointer, np.int64).reshape(-1)
            self.footprint = self._footprints.number(elements, site.nbytes, writes=False)
        return found
