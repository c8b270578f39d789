"""Runs the programs of a launch side by side, one operation of one of them after the other.

A program stops before every load, store and atomic operation, and a course chooses the program that makes the next one.

Warps of a program each do all that it does, but store only their own lanes, so that one may have stored what another one
has still to load. They wait for each other at barriers and where Triton makes them exchange values. An atomic operation is
the first warp's, made as soon as it comes there; then it waits until the others have come for the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from statecheck.kernels.orders.program_choice import Ready, Turns

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched
    from statecheck.kernels.memory import Memory, Program
    from statecheck.kernels.source.sites import Site

OPERATIONS = frozenset(("load", "store", "atomic"))
"""Kinds of places at which a program can be stopped; the others are for its own lanes."""


def run_interleaved(launch: Launched, memory: Memory, turns: Turns) -> None:
    """Run all programs, one operation of one of them after the other.

    Raises:
        Exception: what the first program to fail has raised; the others have been ended where they stood.
    """
    every, sites = list(launch.programs()), launch.compiled.sites
    ready = Ready(len(every))
    begun: dict[int, Iterator[int]] = {}
    running: int | None = None
    try:
        while ready:
            running = number = turns.next(running, ready)
            memory.switch(every[number])
            goes_on = True
            if number not in begun:
                ready.begin(number)
                begun[number] = launch.program(memory, every[number])
                goes_on = to_next_operation(begun[number], sites)
            if not (goes_on and to_next_operation(begun[number], sites)):
                del begun[number]
                ready.end(number)
                running = None
    finally:
        close(begun.values())


def to_next_operation(program: Iterator[int], sites: Sequence[Site]) -> bool:
    """Let it make the operation before which it stands, and go on to the next one; False where it ends instead."""
    return any(sites[site].kind in OPERATIONS for site in program)


def close(programs: Iterable[Any]) -> None:
    for program in programs:
        program.close()


def run_by_warps(launch: Launched, memory: Memory, turns: Turns, warps: int) -> None:
    """Run all programs in row-major order, each by several warps, one operation of one warp after the other.

    Raises:
        Exception: what the first warp to fail has raised.
        RuntimeError: a warp comes to an atomic operation that the first one leaves out.
    """
    for index in launch.programs():
        _ProgramWarps(launch, memory, index, warps).run(turns)


class _ProgramWarps:
    """One program, run by several warps; a course asks it which of them may go on."""

    def __init__(self, launch: Launched, memory: Memory, index: Program, warps: int) -> None:
        self._sites, self._memory, self._index = launch.compiled.sites, memory, index
        self._programs = [launch.program(memory, index) for _ in range(warps)]
        self._before = dict[int, str]()
        """What kind of place each warp stands before that has not ended."""
        self._ready: list[int] = []
        self._held: list[int] = []
        self._has_drawn = False
        """Whether the first warp is held behind its atomic operation, to which the others have yet to come."""

    @property
    def lowest(self) -> int:
        return self._ready[0]

    def all(self) -> Sequence[int]:
        return self._ready

    def __contains__(self, warp: int) -> bool:
        return warp in self._ready

    def run(self, turns: Turns) -> None:
        running: int | None = None
        try:
            for warp in range(len(self._programs)):
                self._go_on(warp)
            while self._before:
                if not self._ready:
                    self._meet()
                    running = None
                    continue
                running = turns.next(running, self)
                self._operate(running)
                running = running if running in self._ready else None
        finally:
            close(self._programs)

    def _operate(self, warp: int) -> None:
        atomic = self._before[warp] == "atomic"
        self._ready.remove(warp)
        self._go_on(warp)
        if atomic and warp in self._before:
            self._has_drawn = True
            self._ready = [other for other in self._ready if other != warp]
            self._held = sorted({*self._held, warp})

    def _go_on(self, warp: int) -> None:
        """Let the warp do what it stands before, and stop before what comes next."""
        self._memory.switch(self._index, warp, len(self._programs))
        site = next(self._programs[warp], None)
        if site is None:
            self._before.pop(warp, None)
            return
        self._before[warp] = self._sites[site].kind
        self._place(warp)

    def _place(self, warp: int) -> None:
        kind = self._before[warp]
        operates = kind in ("load", "store") or (kind == "atomic" and warp == 0)
        into = self._ready if operates else self._held
        into.append(warp)
        into.sort()

    def _meet(self) -> None:
        """All have come to where they wait for each other, or to the end: each goes on, to its next operation."""
        held, self._held = self._held, []
        for warp in held:
            if warp == 0 and self._has_drawn:
                self._has_drawn = False
                self._place(warp)
            else:
                self._go_on(warp)
