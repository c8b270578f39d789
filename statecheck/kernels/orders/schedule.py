"""The order in which the programs of an executed launch make their memory operations.

`case.program_schedule` says what schedules there are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from statecheck.case.program_schedule import REVERSED, ProgramSchedule, parsed
from statecheck.kernels import triton_mode
from statecheck.kernels.orders import program_choice
from statecheck.kernels.orders.program_choice import ProgramChoice, Turns
from statecheck.kernels.orders.running import run_interleaved

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched
    from statecheck.kernels.memory import Memory


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
            return program_choice.in_turn(range(x * y * z)[::-1])
        return program_choice.by_switches(self._plan.of_launch(number))
