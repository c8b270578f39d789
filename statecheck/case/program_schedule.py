"""Schedules as text: what a call's `schedule` may say, and the switches from one program to another that it may name.

    switches:5>1,3>0            program 0 begins; after 5 memory operations program 1 goes on, after 3 more program 0
    switches:5>1;;2>1           the same in the first launch of a call, no switch in the second, one in the third

Programs are counted in row-major order. Operations are those since the last switch, whichever programs made them. Where a
program ends, the lowest one that has not ended goes on. A switch to one that has ended, or that there is not, is one to
some other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

REVERSED, SWITCHES = "reversed", "switches"
_SWITCH = re.compile(r"(\d{1,9})>(\d{1,9})")
_RULE = "'', 'reversed' or 'switches:5>1,3>0'"


class Switch(NamedTuple):
    """After so many operations since the last switch, program `to` goes on."""

    after: int
    to: int


Switches = tuple[Switch, ...]


@dataclass(frozen=True)
class ProgramSchedule:
    """What a schedule says.

    Args:
        kind: `REVERSED` or `SWITCHES`, "" for row-major order.
        launches: the switches of each launch that has some.
    """

    kind: str
    launches: tuple[Switches, ...] = ()

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
