"""The order in which the programs of an executed launch make their memory operations.

A program stops before every load, store and atomic operation, and a choice says which program makes the next one.
`ProgramSchedule` says what schedules there are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from statecheck.case.values import REVERSED, ProgramSchedule, Switch, parsed
from statecheck.kernels import triton_mode

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched
    from statecheck.kernels.memory import Memory


LIVE = 16
"""Programs that have begun and not ended, at most: of larger launches, as on a GPU, not every one is under way at once."""
PATIENCE = 10_000
"""Operations in a row after which a program is taken to wait for another one."""


class Ready:
    """The programs that may go on, by their numbers."""

    def __init__(self, count: int) -> None:
        # In ascending order, as dicts keep it.
        self._unfinished = dict.fromkeys(range(count))
        self._begun: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._unfinished)

    def __contains__(self, number: int) -> bool:
        return number in (self._unfinished if self._takes_more else self._begun)

    @property
    def _takes_more(self) -> bool:
        return len(self._begun) < LIVE

    @property
    def lowest(self) -> int:
        return next(iter(self._unfinished)) if self._takes_more else min(self._begun)

    def all(self) -> Sequence[int]:
        return list(self._unfinished) if self._takes_more else sorted(self._begun)

    def begin(self, number: int) -> None:
        self._begun.add(number)

    def end(self, number: int) -> None:
        self._begun.remove(number)
        del self._unfinished[number]


ProgramChoice = Callable[[int | None, Ready], int]
"""Called before every operation with the program that made the last one, None if it cannot go on; returns the next program."""


def plain(running: int | None, ready: Ready) -> int:
    """The next program of row-major order."""
    return ready.lowest if running is None else running


def other_than(running: int, number: int, ready: Ready) -> int:
    """The fallback if the chosen program cannot run, or does not exist."""
    others = [number for number in ready.all() if number != running]
    return others[number % len(others)] if others else running


class Turns:
    """A choice, and the switches that it makes. A program that waits for another one in a loop is stopped after `PATIENCE` operations."""

    def __init__(self, choice: ProgramChoice) -> None:
        self._choice = choice
        self._since = self._in_a_row = 0
        self.switches: list[Switch] = []

    def next(self, running: int | None, ready: Ready) -> int:
        usual = plain(running, ready)
        chosen = self._choice(running, ready)
        self._in_a_row += 1
        if chosen == running and self._in_a_row > PATIENCE:
            chosen = next((other for other in ready.all() if other > chosen), ready.lowest)
        if chosen != running:
            self._in_a_row = 0
        if chosen != usual:
            self.switches.append(Switch(self._since, chosen))
            self._since = 0
        self._since += 1
        return chosen


def by_switches(switches: Sequence[Switch]) -> ProgramChoice:
    """The given switches."""
    waiting, since = list(switches)[::-1], 0

    def choice(running: int | None, ready: Ready) -> int:
        nonlocal since
        chosen = plain(running, ready)
        while waiting and waiting[-1].after <= since:
            to = waiting.pop().to
            chosen = to if to in ready else other_than(chosen, to, ready)
            since = 0
        since += 1
        return chosen

    return choice


def in_turn(order: Sequence[int]) -> ProgramChoice:
    """One after the other, in this order."""
    at = 0

    def choice(running: int | None, ready: Ready) -> int:
        nonlocal at
        if running is not None:
            return running
        while at < len(order) and order[at] not in ready:
            at += 1
        return order[at] if at < len(order) else ready.lowest

    return choice


def run_interleaved(launch: Launched, memory: Memory, turns: Turns) -> None:
    """Run all programs, one operation of one of them after the other.

    Raises:
        Exception: what the first program to fail has raised; the others have been ended where they stood.
    """
    every = list(launch.programs())
    ready = Ready(len(every))
    begun: dict[int, Any] = {}
    running: int | None = None
    try:
        while ready:
            running = number = turns.next(running, ready)
            memory.switch(every[number])
            goes_on = True
            if number not in begun:
                ready.begin(number)
                begun[number] = launch.program(memory, every[number])
                goes_on = to_next_operation(begun[number])
            if not (goes_on and to_next_operation(begun[number])):
                del begun[number]
                ready.end(number)
                running = None
    finally:
        for program in begun.values():
            program.close()


def to_next_operation(program: Iterator[int]) -> bool:
    """Let it make the operation before which it stands, and go on to the next one; False where it ends instead."""
    return next(program, None) is not None


class Reordered:
    """How many launches of this process have run their programs in another order than row-major."""

    launches = 0


REORDERED = Reordered()


@contextlib.contextmanager
def program_schedule(schedule: str) -> Iterator[None]:
    """Launches made in this context run their programs in the order that `schedule` names; "" is the plain one.

    Ignored where kernels are compiled.

    Raises:
        ValueError: no such schedule.
    """
    plan = parsed(schedule)
    if not plan.kind or not triton_mode.executes():
        yield
        return
    from statecheck.kernels.launch import running

    with running(runner=_Scheduled(plan)):
        yield


class _Scheduled:
    """Runs launches by a plan."""

    def __init__(self, plan: ProgramSchedule) -> None:
        self._plan = plan
        self._launches = 0

    def __call__(self, launch: Launched, memory: Memory) -> None:
        number = self._launches
        self._launches += 1
        turns = Turns(self._choice(launch, number))
        try:
            run_interleaved(launch, memory, turns)
        finally:
            REORDERED.launches += bool(turns.switches)

    def _choice(self, launch: Launched, number: int) -> ProgramChoice:
        if self._plan.kind == REVERSED:
            x, y, z = launch.grid
            return in_turn(range(x * y * z)[::-1])
        return by_switches(self._plan.of_launch(number))
