"""The accesses of a launch as intervals of bytes, and where those of different programs meet.

Addresses of a tile mostly follow each other. Such runs become one interval each, and what is sorted in the end is the
intervals' bounds, not bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from statecheck.kernels.sanitizer.touches import Touch
from statecheck.kernels.sanitizer.views import Integers

_PENDING = 1 << 20
"""So many addresses are kept as they are before they become intervals."""
_FEW_PAIRS = 1 << 11
"""Pairs of accesses that are looked at one by one before any interval is made."""


@dataclass(frozen=True)
class Meeting:
    """A range of bytes, the same accesses for all of them, in the order in which they were made."""

    low: int
    high: int
    touches: tuple[int, ...]


class AccessLog:
    """All accesses of a launch of more than one program."""

    def __init__(self) -> None:
        self.touches: list[Touch] = []
        self._addresses: list[Integers] = []
        self._pending = 0
        self._first = 0
        self._intervals: list[tuple[Integers, Integers, Integers]] = []

    def add(self, touch: Touch) -> None:
        self.touches.append(touch)
        self._addresses.append(touch.addresses)
        self._pending += len(touch.addresses)
        if self._pending > _PENDING:
            self._compact()

    def _compact(self, *, final: bool = False) -> None:
        """Turn the addresses collected since the last time into intervals; the last time memory does not matter."""
        if not self._addresses:
            return
        sizes = np.array([len(addresses) for addresses in self._addresses])
        numbers = np.repeat(np.arange(self._first, self._first + len(sizes)), sizes)
        widths = np.repeat([touch.nbytes for touch in self.touches[self._first :]], sizes)
        starts = np.concatenate(self._addresses)
        ends = starts + widths
        fresh = np.concatenate([[True], (starts[1:] != ends[:-1]) | (numbers[1:] != numbers[:-1])])
        last = np.concatenate([fresh[1:], [True]])
        self._intervals.append((starts[fresh], ends[last], numbers[fresh]))
        self._first, self._addresses, self._pending = len(self.touches), [], 0
        if final:
            return
        for number in range(self._first - len(sizes), self._first):
            if self.touches[number].kind != "atomic":
                self.touches[number] = self.touches[number].without_addresses()

    def meetings(self) -> list[Meeting]:
        """Where one program writes what another one touches, unless all of them do so atomically."""
        written = [touch for touch in self.touches if touch.writes]
        if not written or (
            len(written) * len(self.touches) <= _FEW_PAIRS and not _near(written, self.touches)
        ):
            return []
        self._compact(final=True)
        starts, ends, numbers = (np.concatenate(part) for part in zip(*self._intervals, strict=True))
        low, high = min(touch.low for touch in written), max(touch.high for touch in written)
        near = (starts < high) & (ends > low)
        segments, numbers, points = _cut(starts[near], ends[near], numbers[near])
        chosen = self._suspicious(segments, numbers, len(points))
        return _groups(segments, numbers, points, chosen)

    def _suspicious(self, segments: Integers, numbers: Integers, count: int) -> Integers:
        programs: dict[tuple[int, int, int], int] = {}
        of_touch = np.array([programs.setdefault(t.program, len(programs)) for t in self.touches])[numbers]
        writes = np.array([touch.writes for touch in self.touches])[numbers]
        plain = np.array([touch.kind != "atomic" for touch in self.touches])[numbers]
        first, last = np.full(count, len(programs)), np.full(count, -1)
        np.minimum.at(first, segments, of_touch)
        np.maximum.at(last, segments, of_touch)
        written = np.bincount(segments, writes, count) > 0
        unordered = np.bincount(segments, plain, count) > 0
        return np.flatnonzero((first < last) & written & unordered)


def _near(written: list[Touch], touches: list[Touch]) -> bool:
    """Whether an access may touch what another program writes, and one of the two is not atomic."""
    return any(
        touch.low < one.high
        and touch.high > one.low
        and touch.program != one.program
        and not (touch.kind == one.kind == "atomic")
        for one in written
        for touch in touches
    )


def _cut(starts: Integers, ends: Integers, numbers: Integers) -> tuple[Integers, Integers, Integers]:
    """Cut intervals at each other's bounds: which segment, by which access, and the points between segments."""
    points = np.unique(np.concatenate([starts, ends]))
    first = np.searchsorted(points, starts)
    counts = np.searchsorted(points, ends) - first
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(first, counts) + offsets, np.repeat(numbers, counts), points


def _groups(segments: Integers, numbers: Integers, points: Integers, chosen: Integers) -> list[Meeting]:
    """The chosen segments with their accesses, neighbours with the same accesses as one."""
    if not len(chosen):
        return []
    kept = np.isin(segments, chosen)
    pairs = np.unique(np.stack([segments[kept], numbers[kept]], axis=1), axis=0)
    bounds = np.searchsorted(pairs[:, 0], chosen)
    result: list[Meeting] = []
    for segment, some in zip(chosen.tolist(), np.split(pairs[:, 1], bounds[1:]), strict=True):
        touches = tuple(some.tolist())
        low, high = int(points[segment]), int(points[segment + 1])
        if result and result[-1].high == low and result[-1].touches == touches:
            low = result.pop().low
        result.append(Meeting(low, high, touches))
    return result
