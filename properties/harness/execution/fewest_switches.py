"""A failing case whose programs run in some order, made one with the fewest switches between programs that still fails.

A seed says nothing to a reader. The switches that it led to are told by the executor; with them in its place the case is the
same, and then some of them can be left out. Hypothesis cannot do that, as it shrinks what it has drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from properties.harness.case import Case
from properties.harness.case.bucket import bucket_of
from properties.harness.case.switches import ProgramSchedule, Switch, parsed, spelled
from properties.harness.case.values import Call
from properties.harness.execution.port import InProcess, Port
from properties.harness.execution.replay import replay
from properties.harness.kernels import triton_mode
from properties.harness.kernels.orders.schedule import switches_told

SECONDS, MOST_RUNS = 15.0, 600

Schedules = tuple[str, ...]
"""Of the calls of a case, in their order."""


def with_fewest_switches(case: Case, port: Port, seconds: float = SECONDS) -> Case:
    """The case in the plain order if it fails there too, or with as few switches as were found in that time.

    A case stays as it is where no call has a schedule, on a device where kernels are compiled, in another process, and if it
    does not fail again.
    """
    scheduled = any(call.schedule for call in case.calls)
    if not (scheduled and isinstance(port, InProcess) and port.device == "cpu" and triton_mode.executes()):
        return case
    return _Search(case, port, time.monotonic() + seconds).fewest()


@dataclass(frozen=True)
class _Run:
    """A run that failed as the case does: the case as it is then, and its schedules as the switches that were made."""

    case: Case
    told: Schedules


class _Search:
    def __init__(self, case: Case, port: Port, until: float) -> None:
        self._case, self._port, self._until = case, port, until
        self._bucket = bucket_of(case).id
        self._runs = 0
        self._tried: dict[Schedules, _Run | None] = {}

    def fewest(self) -> Case:
        best = self._tried_with(tuple(call.schedule for call in self._case.calls))
        if best is None:
            return self._case
        for number in range(len(best.told)):
            if number < len(best.told) and best.told[number]:
                best = self._fewest_of(number, best)
        # Of what was tried, some switches may have been none.
        return (self._tried_with(best.told) or best).case

    def _fewest_of(self, number: int, best: _Run) -> _Run:
        """The same with fewer switches in one call."""

        def changed(schedule: str) -> _Run | None:
            return self._tried_with((*best.told[:number], schedule, *best.told[number + 1 :]))

        if (without := changed("")) is not None:
            return without
        if changed(best.told[number]) is None:
            return best
        better: _Run | None = best
        while better is not None:
            best = better
            better = next(
                (one for one in map(changed, simpler(best.told[number])) if _less(one, best, number)), None
            )
        return best

    def _tried_with(self, schedules: Schedules) -> _Run | None:
        if schedules not in self._tried:
            if self._runs >= MOST_RUNS or (self._runs and time.monotonic() > self._until):
                return None
            self._runs += 1
            self._tried[schedules] = self._ran(schedules)
        return self._tried[schedules]

    def _ran(self, schedules: Schedules) -> _Run | None:
        following = iter(schedules)
        steps = tuple(
            replace(step, schedule=next(following, "")) if isinstance(step, Call) else step
            for step in self._case.steps
        )
        with switches_told() as told:
            try:
                found = replay(replace(self._case, steps=steps), self._port)
            except Exception:
                # An order that ends in a mess is another failure than the one in hand.
                return None
        if found is None or bucket_of(found).id != self._bucket:
            return None
        made = iter(told)
        return _Run(found, tuple(next(made, "") if one.schedule else "" for one in found.calls))


def _less(one: _Run | None, best: _Run, number: int) -> bool:
    """Whether a call has fewer switches, or earlier ones, or ones to lower programs: what is tried has to end."""
    return one is not None and len(one.told) > number and _size(one.told[number]) < _size(best.told[number])


def _size(schedule: str) -> tuple[int, list[list[int]], list[int]]:
    launches = parsed(schedule).launches
    switches = [one for launch in launches for one in launch]
    return (
        len(switches),
        [list(accumulate(one.after for one in launch)) for launch in launches],
        [one.to for one in switches],
    )


def simpler(schedule: str) -> Iterator[str]:
    """Schedules with fewer switches, or with earlier ones, those first that leave out the most."""
    plan = parsed(schedule)
    switches = [(number, one) for number, launch in enumerate(plan.launches) for one in launch]
    size = len(switches)
    while size:
        for start in range(0, len(switches), size):
            for keeping in (True, False):
                yield _without(plan, start, start + size, keeping=keeping)
        size //= 2
    for at, (_, one) in enumerate(switches):
        for after in sorted({0, one.after // 2, max(one.after - 1, 0)} - {one.after}):
            yield _changed(plan, at, Switch(after, one.to))
        for to in range(one.to):
            yield _changed(plan, at, Switch(one.after, to))


def _without(plan: ProgramSchedule, first: int, end: int, *, keeping: bool) -> str:
    """Without some of its switches; the others stay after as many operations of the launch, or of their program."""

    def kept(launch: list[tuple[int, Switch]]) -> Iterator[Switch]:
        left_out = 0
        for at, one in launch:
            if first <= at < end:
                left_out += one.after
            else:
                yield Switch(one.after + (left_out if keeping else 0), one.to)
                left_out = 0

    return _edited(plan, kept)


def _changed(plan: ProgramSchedule, changed: int, new: Switch) -> str:
    """With another one in place of a switch, and the next one after as many operations of the launch as before."""

    def kept(launch: list[tuple[int, Switch]]) -> Iterator[Switch]:
        moved = 0
        for at, one in launch:
            yield new if at == changed else Switch(one.after + moved, one.to)
            moved = one.after - new.after if at == changed else 0

    return _edited(plan, kept)


def _edited(plan: ProgramSchedule, edit: Callable[[list[tuple[int, Switch]]], Iterator[Switch]]) -> str:
    at, launches = 0, []
    for launch in plan.launches:
        launches.append(list(edit(list(enumerate(launch, at)))))
        at += len(launch)
    return spelled(launches, plan.number)
