"""Which marks which properties reach: what a campaign of some properties is expected to reach.

`python -m lab.marks --write` explores every property and writes the table, `marks.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from statecheck.campaign.record import EFFECTS
from statecheck.execution.registry import load_properties
from statecheck.reference.situations import Situation, every_situation
from statecheck.subject import Subject

TABLE = Path(__file__).with_suffix(".json")
SEQUENCES = "sequences/"
"""What ids of properties of sequences begin with."""


def reachable(properties: Iterable[str]) -> frozenset[str]:
    """The marks that at least one of these properties is known to reach."""
    chosen = set(properties)
    return frozenset(mark for mark, names in table().items() if chosen.intersection(names))


def expected(names: Iterable[str], device: str) -> list[Situation]:
    """The marks that properties of these names should reach on a device, sooner or later.

    One that no property is known to reach is expected where all properties are chosen that this device has.
    """
    # Every module that declares situations is imported with it.
    properties = load_properties().values()
    chosen, known = set(names), table()
    everything = {tested.id for tested in properties if tested.device in (None, device)} <= chosen
    found = reachable(chosen)
    return [
        mark
        for name, mark in every_situation().items()
        if mark.device in (None, device) and (name in found or (everything and not known.get(name)))
    ]


def effects(subject: Subject, ids: Iterable[str]) -> list[Situation]:
    """What features of a port of sequences may do that properties of these ids draw; nothing of other subjects."""
    if subject.sequences is None:
        return []
    chosen = set(ids)

    def is_drawn(operation: str) -> bool:
        if operation == "extend":
            return any(id_.startswith(SEQUENCES) for id_ in chosen)
        return not chosen.isdisjoint({f"{SEQUENCES}any", f"{SEQUENCES}{operation.replace('_', '-')}"})

    names = subject.sequences.effects.items()
    return [Situation(name, EFFECTS) for name, operation in names if is_drawn(operation)]


@cache
def table() -> dict[str, list[str]]:
    """By mark, the properties that are known to reach it, those first that took the least."""
    found: dict[str, list[str]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found
