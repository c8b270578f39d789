"""Schedules as text: what a call's `schedule` may say, and the switches from one program to another that it may name.

    switches:5>1,3>0            program 0 begins; after 5 memory operations program 1 goes on, after 3 more program 0
    switches:5>1;;2>1           the same in the first launch of a call, no switch in the second, one in the third
    every:200                   the interleavings of a small launch up to equivalence, 200 at most; one that leaves something
                                else than row-major order is what is left, otherwise that order is

Programs are counted in row-major order. Operations are those since the last switch, whichever programs made them. Where a
program ends, the lowest one that has not ended goes on. A switch to one that has ended, or that there is not, is one to
some other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

REVERSED, SHUFFLED, INTERLEAVED, PRIORITIES = "reversed", "shuffled", "interleaved", "priorities"
SWITCHES, EVERY = "switches", "every"
_SEEDED = (SHUFFLED, INTERLEAVED, PRIORITIES)
_WARPS = re.compile(r"warps:\w+|warpswitches:\d+:[\d>,;]*")
"""Orders of the warps of a program, which earlier versions drew, and which run in row-major order: what they showed is a race
within a program, and the sanitizer finds it in any order."""
_SWITCH = re.compile(r"(\d{1,9})>(\d{1,9})")
_RULE = "'', 'reversed', 'shuffled:SEED', 'interleaved:SEED', 'priorities:SEED', 'switches:5>1,3>0' or 'every:MOST'"


class Switch(NamedTuple):
    """After so many operations since the last switch, program `to` goes on."""

    after: int
    to: int


Switches = tuple[Switch, ...]


@dataclass(frozen=True)
class ProgramSchedule:
    """What a schedule says.

    Args:
        kind: one of the words above, "" for row-major order.
        seed: of those that draw.
        launches: the switches of each launch that has some, for those that name them.
        number: of interleavings at most.
    """

    kind: str
    seed: str = ""
    launches: tuple[Switches, ...] = ()
    number: int = 0

    def of_launch(self, number: int) -> Switches:
        """The switches of a launch, by its number from 0."""
        return self.launches[number] if number < len(self.launches) else ()


def parsed(schedule: str) -> ProgramSchedule:
    """What the text says.

    Raises:
        ValueError: no such schedule.
    """
    kind, _, rest = schedule.partition(":")
    if schedule in ("", REVERSED):
        return ProgramSchedule(schedule)
    if _WARPS.fullmatch(schedule):
        return ProgramSchedule("")
    if kind in _SEEDED and re.fullmatch(r"\w+", rest):
        return ProgramSchedule(kind, seed=rest)
    if kind == EVERY and re.fullmatch(r"[1-9]\d{0,6}", rest):
        return ProgramSchedule(kind, number=int(rest))
    if kind == SWITCHES and ":" in schedule:
        parts = [_switches(part) for part in rest.split(";")]
        if all(part is not None for part in parts):
            return ProgramSchedule(kind, launches=tuple(part or () for part in parts))
    raise ValueError(f"schedule = {schedule!r}, but should be {_RULE} [program_schedule]")


def _switches(text: str) -> Switches | None:
    if not text:
        return ()
    matches = [_SWITCH.fullmatch(part) for part in text.split(",")]
    return (
        None if None in matches else tuple(Switch(int(match[1]), int(match[2])) for match in matches if match)
    )


def schedule_text(launches: Sequence[Sequence[Switch]]) -> str:
    """The text of a schedule with these switches, "" where there are none in any launch."""
    parts = [",".join(f"{switch.after}>{switch.to}" for switch in switches) for switches in launches]
    while parts and not parts[-1]:
        parts.pop()
    return f"{SWITCHES}:{';'.join(parts)}" if parts else ""
