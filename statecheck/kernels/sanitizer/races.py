"""Races between programs: accesses of two programs to one byte, one of them a write, that nothing orders.

All accesses of a launch are kept in an `AccessLog`. The accesses of a tile mostly follow each other. Such runs become one interval each,
and what is sorted in the end is the intervals' bounds, not bytes.

What orders programs is atomics, as in the memory model that Triton's have from C++: one that releases publishes what
its program has done so far and what that program knows of others, one that acquires from the same place takes it over.
Relaxed ones order the accesses to their own place alone. Every program counts what it publishes, and knows how much of
each other program's it has taken over: a vector clock.

If programs store the same bytes last at a place that nothing loads, that is no race: what stays does not depend on their order. Of a launch with more than a million
addresses this is known of stores to neighbours alone: values of scattered ones are not kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from statecheck.case.findings import Program
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
        touch.low < store.high
        and touch.high > store.low
        and touch.program != store.program
        and not (touch.kind == store.kind == "atomic")
        for store in written
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


Range = tuple[int, int]


def first_race(log: AccessLog) -> tuple[Touch, Touch, int] | None:
    """The accesses that race, a write first, and a byte that both touch."""
    meetings = log.meetings()
    atomics = [number for number, touch in enumerate(log.touches) if touch.kind == "atomic"]
    everywhere = _Order(log.touches, atomics, None) if meetings and atomics else None
    ordered: set[tuple[int, ...]] = set()
    for meeting in meetings:
        if meeting.touches in ordered:
            continue
        race = _race(meeting, log.touches, everywhere)
        if race is not None and any(log.touches[number].kind == "atomic" for number in meeting.touches):
            # Their own atomics order the accesses to these bytes even if relaxed.
            order = _Order(log.touches, atomics, (meeting.low, meeting.high))
            race = _race(meeting, log.touches, order)
        if race is None:
            ordered.add(meeting.touches)
        # What is stored is another question for each range of bytes.
        elif not _all_leave_the_same(meeting, log.touches):
            first, second = (log.touches[number] for number in race)
            return (first, second, meeting.low) if first.writes else (second, first, meeting.low)
    return None


def _all_leave_the_same(meeting: Meeting, touches: list[Touch]) -> bool:
    """Whether all accesses are stores, and the last ones of all programs are of the same bytes: these stay then, in any order of programs."""
    last = {touches[number].program: touches[number] for number in meeting.touches}
    if any(touches[number].kind != "store" for number in meeting.touches):
        return False
    left = {_left(touch, meeting) for touch in last.values()}
    return len(left) == 1 and None not in left


def _left(touch: Touch, meeting: Meeting) -> bytes | None:
    """The bytes that a store leaves in a range, all of which it touches; None where its values were not kept."""
    if touch.data is None:
        return None
    found, stored = touch.stored_bytes(meeting.low, meeting.high)
    left = np.zeros(meeting.high - meeting.low, np.uint8)
    left[found - meeting.low] = stored
    return left.tobytes()


def _race(meeting: Meeting, touches: list[Touch], order: _Order | None) -> tuple[int, int] | None:
    """Each access against the latest of every kind by every other program: what came before those came before it."""
    latest: dict[tuple[Program, str, bool], int] = {}
    for number in meeting.touches:
        touch = touches[number]
        for (program, kind, writes), earlier in latest.items():
            harmless = (
                program == touch.program or not (writes or touch.writes) or kind == touch.kind == "atomic"
            )
            if not harmless and (order is None or not order.before(earlier, number)):
                return earlier, number
        latest[touch.program, touch.kind, touch.writes] = number
    return None


class _Order:
    """Which access of one program comes before which of another, by the atomics of a launch.

    Atomics in `place`, a range of bytes, count as if they released and acquired.
    """

    def __init__(self, touches: list[Touch], atomics: list[int], place: Range | None) -> None:
        self._touches = touches
        self._number = {program: i for i, program in enumerate(dict.fromkeys(t.program for t in touches))}
        self._published: dict[Program, list[int]] = {}
        self._taken: dict[Program, tuple[list[int], list[Integers]]] = {}
        self._places: dict[int, Integers] = {}
        self._known: dict[Program, Integers] = {}
        for at in atomics:
            self._pass(at, place)

    def before(self, earlier: int, later: int) -> bool:
        """Whether what one program did is known to the other one by the time of its access."""
        source, target = self._touches[earlier].program, self._touches[later].program
        publication = bisect_left(self._published.get(source, []), earlier) + 1
        times, knowledge = self._taken.get(target, ([], []))
        latest = bisect_right(times, later) - 1
        return latest >= 0 and bool(knowledge[latest][self._number[source]] >= publication)

    def _pass(self, at: int, place: Range | None) -> None:
        touch = self._touches[at]
        addresses = touch.addresses.tolist()
        forced = _within(addresses, touch.nbytes, place)
        taken = addresses if touch.acquires else forced if touch.reads else []
        given = addresses if touch.releases else forced if touch.writes else []
        self._take(at, touch.program, taken)
        if touch.writes and not touch.reads:
            # A plain atomic store ends what was published there before.
            for address in addresses:
                self._places.pop(address, None)
        self._give(at, touch.program, given)

    def _take(self, at: int, program: Program, addresses: list[int]) -> None:
        found = [self._places[address] for address in addresses if address in self._places]
        if not found:
            return
        known = np.maximum.reduce([self._clock(program), *found])
        self._known[program] = known
        times, knowledge = self._taken.setdefault(program, ([], []))
        times.append(at)
        knowledge.append(known)

    def _give(self, at: int, program: Program, addresses: list[int]) -> None:
        if not addresses:
            return
        known = self._clock(program).copy()
        known[self._number[program]] += 1
        self._known[program] = known
        self._published.setdefault(program, []).append(at)
        for address in addresses:
            before = self._places.get(address)
            self._places[address] = known if before is None else np.maximum(before, known)

    def _clock(self, program: Program) -> Integers:
        return self._known.get(program, np.zeros(len(self._number), np.int64))


def _within(addresses: list[int], nbytes: int, place: Range | None) -> list[int]:
    if place is None:
        return []
    return [address for address in addresses if address < place[1] and address + nbytes > place[0]]


# Races within a program: lanes that touch each other's bytes, with no barrier between.
#
# A program's lanes run at once on a GPU. Two tiles of the same shape have the same lanes, element by element; tiles of
# different shapes are spread over lanes differently, so that the same byte is another lane's. A scalar belongs to all lanes.
# An atomic of a single element and a reduction to one end in a barrier of their own, since every lane gets the result.


_FAR = 1 << 64
_FEW = 200
"""Touches that a loop looks through sooner than NumPy."""


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
        if len(self.touches) < _FEW:
            return [
                earlier for earlier in self.touches if earlier.low < touch.high and earlier.high > touch.low
            ]
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
    found, stored = touch.stored_bytes(touch.low, touch.high)
    order = np.argsort(found, kind="stable")
    found, stored = found[order], stored[order]
    differ = (found[1:] == found[:-1]) & (stored[1:] != stored[:-1])
    return int(found[1:][differ.argmax()]) if differ.any() else None
