"""Races between programs: accesses of two programs to one byte, one of them a write, that nothing orders.

What orders programs is atomics, as in the memory model that Triton's have from C++: one that releases publishes what
its program has done so far and what that program knows of others, one that acquires from the same place takes it over.
Relaxed ones order the accesses to their own place alone. Every program counts what it publishes, and knows how much of
each other program's it has taken over: a vector clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

from statecheck.case.findings import Program
from statecheck.kernels.sanitizer.log import AccessLog, Meeting
from statecheck.kernels.sanitizer.touches import Touch
from statecheck.kernels.sanitizer.views import Integers

Range = tuple[int, int]


def first_race(log: AccessLog) -> tuple[Touch, Touch, int] | None:
    """The accesses that race, a write first, and a byte that both touch."""
    meetings = log.meetings()
    atomics = [number for number, touch in enumerate(log.touches) if touch.kind == "atomic"]
    everywhere = _Order(log.touches, atomics, None) if meetings and atomics else None
    judged: set[tuple[int, ...]] = set()
    for meeting in meetings:
        if meeting.touches in judged:
            continue
        judged.add(meeting.touches)
        race = _race(meeting, log.touches, everywhere)
        if race is not None and any(log.touches[number].kind == "atomic" for number in meeting.touches):
            # Their own atomics order the accesses to these bytes even if relaxed.
            order = _Order(log.touches, atomics, (meeting.low, meeting.high))
            race = _race(meeting, log.touches, order)
        if race is not None:
            first, second = (log.touches[number] for number in race)
            return (first, second, meeting.low) if first.writes else (second, first, meeting.low)
    return None


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
