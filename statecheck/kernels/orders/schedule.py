"""The order in which the programs of an executed launch make their memory operations.

`case.program_schedule` says what schedules there are.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from statecheck.case.program_schedule import (
    EVERY,
    INTERLEAVED,
    PRIORITIES,
    REVERSED,
    SHUFFLED,
    SWITCHES,
    ProgramSchedule,
    parsed,
)
from statecheck.kernels import triton_mode
from statecheck.kernels.orders import program_choice
from statecheck.kernels.orders.program_choice import ProgramChoice, Turns
from statecheck.kernels.orders.running import run_interleaved

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched
    from statecheck.kernels.memory import Memory

_FEW = 4
"""Programs of a launch whose interleavings are enumerated."""


class Reordered:
    """How many launches of this process have run their programs in another order than row-major."""

    launches = 0


REORDERED = Reordered()


@contextlib.contextmanager
def program_schedule(schedule: str) -> Iterator[None]:
    """Launches made in this context run their programs in the order that `schedule` names; "" is the plain one.

    Ignored where kernels are compiled, and by launches that Triton's interpreter runs.

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
        if self._plan.kind == EVERY:
            self._every(launch, memory)
            return
        turns = Turns(self._choice(launch, number))
        try:
            run_interleaved(launch, memory, turns)
        finally:
            REORDERED.launches += bool(turns.switches)

    def _choice(self, launch: Launched, number: int) -> ProgramChoice:
        plan, count = self._plan, _count(launch)
        choices = random.Random(f"{plan.seed}:{number}")
        if plan.kind == REVERSED:
            return program_choice.in_turn(range(count)[::-1])
        if plan.kind == SHUFFLED:
            order = list(range(count))
            choices.shuffle(order)
            return program_choice.in_turn(order)
        if plan.kind == INTERLEAVED:
            return program_choice.uniform(count, choices)
        if plan.kind == PRIORITIES:
            return program_choice.priorities(count, len(launch.compiled.sites), choices)
        return program_choice.by_switches(plan.of_launch(number))

    def _every(self, launch: Launched, memory: Memory) -> None:
        """The plain order; or, of a small launch, an interleaving that leaves something else, if there is one."""
        from statecheck.kernels.orders.interleavings import first_difference

        if not 1 < _count(launch) <= _FEW:
            run_interleaved(launch, memory, Turns(program_choice.plain))
            return
        different = first_difference(launch, self._plan.number)
        (switches,) = parsed(different or f"{SWITCHES}:").launches
        REORDERED.launches += 1
        run_interleaved(launch, memory, Turns(program_choice.by_switches(switches)))


def _count(launch: Launched) -> int:
    x, y, z = launch.grid
    return x * y * z
