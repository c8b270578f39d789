"""Which marks which properties reach: what a search that chose some of the properties may be expected to reach.

What reaches what was found out once, by running every property for a while, and stands in `marks.json`; write it again
where marks, rules or strategies change:

    python -m statecheck.campaign.marks --write --seconds 4
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, wraps
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings

import oracle.situations
import statecheck.expectations.situations  # noqa: F401 - it observes, as the oracle's do
from oracle.situations.registry import Situation, declared, take
from statecheck.execution import profiles
from statecheck.execution.example import Bench, Trial
from statecheck.execution.machines import MachineProperty, TrialMachine
from statecheck.execution.registry import Property, load_properties
from statecheck.execution.rules_port import RulesPort
from statecheck.subject import Subject

TABLE = Path(__file__).with_suffix(".json")
_CHUNK = 10
"""Examples between two looks at the clock."""
_SCENARIOS = 5
"""How many times as long as others a property is explored whose examples are scenarios."""

Note = Callable[[frozenset[str]], None]


@cache
def load() -> None:
    """Import every module that declares situations."""
    load_properties()


def reachable(properties: Iterable[str]) -> frozenset[str]:
    """The marks that at least one of these properties is known to reach."""
    chosen = set(properties)
    return frozenset(mark for mark, names in table().items() if chosen.intersection(names))


def expected(names: Iterable[str], device: str) -> list[Situation]:
    """The marks that properties of these names should reach on a device, sooner or later.

    One that no property is known to reach is expected where all properties are chosen that this device has.
    """
    load()
    chosen, known = set(names), table()
    everything = {one.name for one in load_properties().values() if one.device in (None, device)} <= chosen
    found = reachable(chosen)
    return [
        mark
        for name, mark in declared().items()
        if mark.device in (None, device) and (name in found or (everything and not known.get(name)))
    ]


@cache
def table() -> dict[str, list[str]]:
    """By mark, the properties that are known to reach it, those first that took the least."""
    found: dict[str, list[str]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def noted(tested: Property, note: Note) -> Property:
    """The same property, which tells after every example which marks this one has reached."""
    if isinstance(tested, MachineProperty):
        return replace(tested, machine=_noted_machine(tested.machine, note))

    @wraps(tested.body)
    def body(trial: Trial, **drawn: Any) -> None:
        # What came up while the example was drawn, or in one that was thrown away, is no part of it.
        take()
        try:
            tested.body(trial, **drawn)
        finally:
            note(take())

    return replace(tested, body=body)


def _noted_machine(machine: type[TrialMachine], note: Note) -> type[TrialMachine]:
    def begin(self: TrialMachine, trial: Trial) -> None:
        take()
        machine.__init__(self, trial)

    def teardown(self: TrialMachine) -> None:
        machine.teardown(self)
        note(take())

    return type(machine.__name__, (machine,), {"__init__": begin, "teardown": teardown})


@contextmanager
def unnoted() -> Iterator[None]:
    """While it is entered, marks that come up are not noted."""
    before = take()
    try:
        yield
    finally:
        take()
        for name in before:
            declared()[name].reached()


@contextmanager
def drawing_only() -> Iterator[None]:
    """While it is entered, properties explore without shrinking what fails."""
    # Not by its name, which only later versions of Hypothesis tell.
    settings.register_profile("before", settings())
    profiles.register()
    nightly = settings.get_profile("nightly")
    settings.register_profile("marks", nightly, phases=[Phase.generate])
    settings.load_profile("marks")
    try:
        yield
    finally:
        settings.load_profile("before")


def explored(
    tested: Property,
    bench: Bench,
    *,
    seconds: float,
    max_examples: int,
    wanted: Iterable[str] | None = None,
) -> dict[str, int]:
    """The marks that a property reaches, each with the number of the first example that reached it.

    The same examples every time. Ends once the time is up or all marks that are `wanted` were reached.
    """
    found: dict[str, int] = {}
    examples = 0

    def note(reached: frozenset[str]) -> None:
        nonlocal examples
        examples += 1
        for name in reached:
            found.setdefault(name, examples)

    watched, until = noted(tested, note), time.monotonic() + seconds
    missing = None if wanted is None else set(wanted)
    with drawing_only():
        for seed in range(-(-max_examples // _CHUNK)):
            if time.monotonic() > until or (missing is not None and missing <= found.keys()):
                break
            watched.explore(bench, seed=seed, max_examples=min(_CHUNK, max_examples - seed * _CHUNK))
    return found


def rows(found: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    """By mark, the properties that reached it, from what each of the properties has reached.

    A scenario counts as many examples as it may have steps.
    """
    reached: dict[str, list[tuple[int, str]]] = {name: [] for name in declared()}
    for name, marks in found.items():
        tested = load_properties()[name]
        weight = tested.machine.steps if isinstance(tested, MachineProperty) else 1
        for mark, examples in marks.items():
            reached[mark].append((examples * weight, name))
    return {mark: [name for _, name in sorted(pairs)] for mark, pairs in reached.items()}


def write(content: Mapping[str, list[str]], path: Path = TABLE) -> None:
    """Write the table, a line for each mark."""
    lines = (f" {json.dumps(mark)}: {json.dumps(names)}" for mark, names in content.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def asked_bench() -> Bench:
    """A bench where the rules answer in a subject's place."""
    # Marks of an example are reached where its trial asks the rules, not where the port does.
    return Bench(Subject("the rules", oracle), RulesPort(around=unnoted))


def main(arguments: list[str] | None = None) -> int:
    """Explore every property, and tell which marks were missed; 1 if some were."""
    parser = argparse.ArgumentParser(prog="python -m statecheck.campaign.marks", description=main.__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each property (default 4)")
    parser.add_argument("--examples", type=int, default=1000, help="of each property, at most (default 1000)")
    options = parser.parse_args(arguments)
    bench, found = asked_bench(), {}
    load()
    for name, tested in load_properties().items():
        seconds = options.seconds * (_SCENARIOS if isinstance(tested, MachineProperty) else 1)
        found[name] = explored(tested, bench, seconds=seconds, max_examples=options.examples)
    content = rows(found)
    if options.write:
        write(content)
    missed = [name for name, names in content.items() if not names]
    sys.stdout.write("".join(f"no property reached: {name}\n" for name in missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
