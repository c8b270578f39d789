"""Which bytes an operation touches, and whether two operations conflict."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from statecheck.kernels.sanitizer.touches import Observer, Touch

Array = NDArray[Any]
NO_ELEMENTS: Array = np.zeros(0, np.int64)
_Key = tuple[bytes, int, bool]


class Footprints:
    """Numbers for what operations touch, and which of these conflict."""

    def __init__(self) -> None:
        self._numbers: dict[_Key, int] = {}
        self._bytes: list[tuple[int, int, Array, bool]] = []
        self.conflicts: list[set[int]] = []
        """For each number those whose operations touch a byte with it that one of the two writes."""

    def number(self, elements: Array, nbytes: int, *, writes: bool) -> int:
        """Of elements at these addresses."""
        key = elements.tobytes(), nbytes, writes
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


def byte_addresses(elements: Array, nbytes: int) -> Array:
    """The address of every byte of the elements, once each and in their order."""
    return np.unique(elements.reshape(-1, 1) + np.arange(nbytes))


class LastFootprint(Observer):
    """Has the footprint of the last operation that was made, as long as that is asked for."""

    def __init__(self, footprints: Footprints) -> None:
        self._footprints = footprints
        self.begin(asked=True)

    def begin(self, *, asked: bool) -> None:
        """A program has its turn. It touches nothing where it ends without an operation."""
        self._asked = asked
        self.number = self._footprints.number(NO_ELEMENTS, 1, writes=False) if asked else 0

    def after(self, touch: Touch) -> None:
        if self._asked:
            self.number = self._footprints.number(touch.addresses, touch.nbytes, writes=touch.writes)
