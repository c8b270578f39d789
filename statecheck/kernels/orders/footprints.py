"""Which bytes an operation touches, whether two operations conflict, and how memory becomes what it was before a launch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from statecheck.kernels.memory import was_exchanged
from statecheck.kernels.observed import Elements, ObservedMemory
from statecheck.kernels.orders.journal import read_bytes, write_bytes
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


class Originals:
    """The bytes that runs of one launch write, and what they held before the first of these."""

    def __init__(self) -> None:
        self._keys = set[tuple[bytes | int, int]]()
        self._before = dict[int, int]()
        self._arrays: tuple[Array, Array] | None = None

    def keep(self, elements: Elements, nbytes: int) -> None:
        """Elements are about to be written."""
        key = elements if isinstance(elements, int) else elements.tobytes(), nbytes
        if key in self._keys:
            return
        self._keys.add(key)
        self._arrays = None
        places = byte_addresses(elements, nbytes)
        for place, value in zip(places.tolist(), read_bytes(places).tolist(), strict=True):
            self._before.setdefault(place, value)

    def _known(self) -> tuple[Array, Array]:
        if self._arrays is None:
            places = np.array(sorted(self._before), np.int64)
            self._arrays = places, np.array([self._before[place] for place in places.tolist()], np.uint8)
        return self._arrays

    def changed(self) -> tuple[Array, Array]:
        """The addresses of all bytes that are not as they were, and what they hold."""
        places, before = self._known()
        now = read_bytes(places)
        differs = now != before
        return places[differs], now[differs]

    def put_back(self) -> None:
        places, before = self._known()
        write_bytes(places, before)


class TouchedMemory(ObservedMemory):
    """Has the footprint of each operation, if that is `asked`, and keeps what it overwrites. For programs that are whole."""

    def __init__(self, originals: Originals, footprints: Footprints) -> None:
        super().__init__()
        self._originals, self._footprints = originals, footprints
        self.asked = True
        self.footprint = 0

    def before(self, site: Site, elements: Elements, *, writes: bool) -> None:
        if writes:
            self._originals.keep(elements, site.nbytes)
        if self.asked:
            self.footprint = self._footprints.number(elements, site.nbytes, writes=writes)

    def cas(self, site: Site, pointer: Any, expected: Any, value: Any, origin: Any) -> Any:
        found = super().cas(site, pointer, expected, value, origin)
        if self.asked and not was_exchanged(site, found, expected):
            elements = np.array(pointer, np.int64).reshape(-1)
            self.footprint = self._footprints.number(elements, site.nbytes, writes=False)
        return found
