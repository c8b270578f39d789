"""Which bytes an operation touches, whether two operations conflict, and how memory becomes what it was before a launch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from properties.harness.kernels.memory import Memory, same_bits
from properties.harness.kernels.orders.journal import read_bytes, write_bytes
from properties.harness.kernels.source.sites import Site

Array = NDArray[Any]
READING = ("load", "poll")
"""Atomic operations that change nothing."""
_Key = tuple[bytes | int, int, bool]


class Footprints:
    """Numbers for what operations touch, and which of these conflict."""

    def __init__(self) -> None:
        self._numbers: dict[_Key, int] = {}
        self._bytes: list[tuple[int, int, Array, bool]] = []
        self.conflicts: list[set[int]] = []
        """For each number those whose operations touch a byte with it that one of the two writes."""

    def number(self, where: int | Array, nbytes: int, *, writes: bool) -> int:
        """Of elements at an address, or at several."""
        key = where if isinstance(where, int) else where.tobytes(), nbytes, writes
        if key not in self._numbers:
            self._numbers[key] = self._new(byte_addresses(where, nbytes), writes)
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


def byte_addresses(where: int | Array, nbytes: int) -> Array:
    """The address of every byte of the elements, once each and in their order."""
    elements = np.asarray(where, np.int64).reshape(-1, 1)
    return np.unique(elements + np.arange(nbytes))


class Originals:
    """The bytes that runs of one launch write, and what they held before the first of these."""

    def __init__(self) -> None:
        self._keys = set[tuple[bytes | int, int]]()
        self._before = dict[int, int]()
        self._arrays: tuple[Array, Array] | None = None

    def keep(self, where: int | Array, nbytes: int) -> None:
        """Elements are about to be written."""
        key = where if isinstance(where, int) else where.tobytes(), nbytes
        if key in self._keys:
            return
        self._keys.add(key)
        self._arrays = None
        places = byte_addresses(where, nbytes)
        for place, value in zip(places.tolist(), read_bytes(places).tolist(), strict=True):
            self._before.setdefault(place, value)

    def _known(self) -> tuple[Array, Array]:
        if self._arrays is None:
            places = np.array(sorted(self._before), np.int64)
            self._arrays = places, np.array([self._before[one] for one in places.tolist()], np.uint8)
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


class TouchedMemory(Memory):
    """Tells the footprint of an operation, if that is `asked`, and keeps what it overwrites. For programs that are whole."""

    def __init__(self, originals: Originals, footprints: Footprints) -> None:
        super().__init__()
        self._originals, self._footprints = originals, footprints
        self.asked = True
        self.footprint = 0

    def load1(self, site: Site, pointer: int, origin: Any) -> Any:
        if self.asked:
            self.footprint = self._footprints.number(pointer, site.nbytes, writes=False)
        return super().load1(site, pointer, origin)

    def load(self, site: Site, pointers: Array, mask: Array | None, other: Any, origin: Any) -> Array:
        if self.asked:
            places = pointers if mask is None else pointers[mask]
            self.footprint = self._footprints.number(places, site.nbytes, writes=False)
        return super().load(site, pointers, mask, other, origin)

    def store1(self, site: Site, pointer: int, value: Any, origin: Any) -> None:
        self._written(site, pointer)
        super().store1(site, pointer, value, origin)

    def store(self, site: Site, pointers: Array, values: Array, mask: Array | None, origin: Any) -> None:
        self._written(site, pointers if mask is None else pointers[mask])
        super().store(site, pointers, values, mask, origin)

    def rmw(self, site: Site, pointer: Any, value: Any, mask: Any, origin: Any) -> Any:
        where = _active(pointer, mask)
        if site.operation in READING:
            self.footprint = self._footprints.number(where, site.nbytes, writes=False)
        else:
            self._written(site, where)
        return super().rmw(site, pointer, value, mask, origin)

    def cas(self, site: Site, pointer: Any, expected: Any, value: Any, origin: Any) -> Any:
        self._written(site, _active(pointer, None))
        found = super().cas(site, pointer, expected, value, origin)
        if self.asked:
            # One that finds another value has only read.
            old = np.asarray(found)
            lanes = zip(old.reshape(-1), np.broadcast_to(expected, old.shape).reshape(-1), strict=True)
            writes = any(same_bits(one, other, old.dtype) for one, other in lanes)
            self.footprint = self._footprints.number(_active(pointer, None), site.nbytes, writes=writes)
        return found

    def _written(self, site: Site, where: int | Array) -> None:
        self._originals.keep(where, site.nbytes)
        if self.asked:
            self.footprint = self._footprints.number(where, site.nbytes, writes=True)


def _active(pointer: Any, mask: Any) -> Array:
    places = np.array(pointer, np.int64).reshape(-1)
    return places if mask is None else places[np.broadcast_to(mask, places.shape).astype(np.bool_)]
