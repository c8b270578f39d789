"""Races within a program: lanes that touch each other's bytes, with no barrier between.

A program's lanes run at once on a GPU. Two tiles of the same shape have the same lanes, element by element; tiles of
different shapes are spread over lanes differently, so that the same byte is another lane's. A scalar belongs to all lanes.
An atomic of a single element and a reduction to one end in a barrier of their own, since every lane gets the result.
"""

from __future__ import annotations

from array import array

import numpy as np

from statecheck.case.findings import Program
from statecheck.kernels.sanitizer.touches import Touch

_FAR = 1 << 64


class _Seen:
    """Accesses of one kind since the last barrier."""

    def __init__(self) -> None:
        self.touches: list[Touch] = []
        self._lows, self._highs = array("q"), array("q")
        self.low, self.high = _FAR, -_FAR

    def add(self, touch: Touch) -> None:
        low, high = touch.low, touch.high
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self.touches.append(touch)
        self._lows.append(low)
        self._highs.append(high)

    def near(self, touch: Touch) -> list[Touch]:
        if len(self.touches) == 1:
            return self.touches
        lows, highs = np.frombuffer(self._lows, np.int64), np.frombuffer(self._highs, np.int64)
        found = np.flatnonzero((lows < touch.high) & (highs > touch.low))
        return [self.touches[number] for number in found.tolist()]


_LIVE = 64
"""Programs that are remembered: more than are ever under way at a time."""


class Lanes:
    """What the lanes of every program of a launch have touched since its last barrier."""

    def __init__(self) -> None:
        self._seen: dict[Program, tuple[_Seen, _Seen]] = {}
        self._program: Program | None = None
        self._current = (_Seen(), _Seen())

    def barrier(self, program: Program) -> None:
        self._seen.pop(program, None)
        if program == self._program:
            self._program = None

    def add(self, touch: Touch) -> tuple[Touch, int] | None:
        """An earlier access of another lane that this one must not meet, and a byte where they meet."""
        if touch.kind == "atomic" and touch.scalar:
            self.barrier(touch.program)
            return None
        if touch.program is not self._program:
            self._program, self._current = touch.program, self._of(touch.program)
        loads, stores = self._current
        low, high, found = touch.low, touch.high, None
        if low < stores.high and high > stores.low:
            found = _met(touch, stores)
        if touch.kind == "load":
            loads.add(touch)
            return found
        if found is None and low < loads.high and high > loads.low:
            found = _met(touch, loads)
        stores.add(touch)
        return found

    def _of(self, program: Program) -> tuple[_Seen, _Seen]:
        seen = self._seen.pop(program, None) or (_Seen(), _Seen())
        self._seen[program] = seen
        if len(self._seen) > _LIVE:
            del self._seen[next(iter(self._seen))]
        return seen


def _met(touch: Touch, seen: _Seen) -> tuple[Touch, int] | None:
    for earlier in seen.near(touch):
        byte = _meeting(earlier, touch)
        if byte is not None:
            return earlier, byte
    return None


def _meeting(first: Touch, second: Touch) -> int | None:
    """A byte that different lanes touch."""
    if (first.scalar and second.scalar) or first.kind == second.kind == "atomic":
        return None
    same = first.shape == second.shape
    if same and _lane_by_lane(first, second):
        return None
    low, high = max(first.low, second.low), min(first.high, second.high)
    bytes_first, lanes_first = first.bytes_between(low, high)
    bytes_second, lanes_second = second.bytes_between(low, high)
    if not len(bytes_first) or not len(bytes_second):
        return None
    touched, at = np.unique(bytes_first, return_inverse=True)
    lowest, highest = np.full(len(touched), np.iinfo(np.int64).max), np.full(len(touched), -1)
    np.minimum.at(lowest, at, lanes_first)
    np.maximum.at(highest, at, lanes_first)
    where = np.minimum(np.searchsorted(touched, bytes_second), len(touched) - 1)
    met = touched[where] == bytes_second
    if same:
        met &= (lowest[where] != lanes_second) | (highest[where] != lanes_second)
    return int(bytes_second[met.argmax()]) if met.any() else None


def _lane_by_lane(first: Touch, second: Touch) -> bool:
    """Whether every lane touches what it has touched before, and no other does: the usual update in place."""
    if first.nbytes != second.nbytes or len(first.addresses) != len(second.addresses):
        return False
    if not np.array_equal(first.addresses, second.addresses) or not first.spaced():
        return False
    return first.mask is second.mask or np.array_equal(first.lane_numbers(), second.lane_numbers())


def written_twice(touch: Touch) -> int | None:
    """A byte for which two lanes of one store have different values."""
    if len(touch.addresses) < 2 or touch.spaced():
        return None
    order = np.argsort(touch.addresses, kind="stable")
    spread = touch.addresses[order]
    if (spread[1:] - spread[:-1] >= touch.nbytes).all():
        return None
    shape = touch.shape if touch.mask is None else touch.addresses.shape
    values = np.ascontiguousarray(np.broadcast_to(touch.data, shape)).reshape(-1)
    stored = values.view(np.uint8).reshape(len(touch.addresses), -1)[:, : touch.nbytes].reshape(-1)
    found = (touch.addresses[:, None] + np.arange(touch.nbytes)).reshape(-1)
    order = np.argsort(found, kind="stable")
    found, stored = found[order], stored[order]
    differ = (found[1:] == found[:-1]) & (stored[1:] != stored[:-1])
    return int(found[1:][differ.argmax()]) if differ.any() else None
