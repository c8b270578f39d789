"""Explores every property, and writes down which marks it reaches: `python -m lab.marks --write --seconds 4`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hypothesis import Phase, settings

import oracle
from statecheck.campaign.marks import TABLE
from statecheck.campaign.worker import noted
from statecheck.execution import profiles
from statecheck.execution.example import ExecutionContext
from statecheck.execution.property import MachineProperty
from statecheck.execution.registry import Property, load_properties
from statecheck.reference.situations import every_situation, put_back, take
from statecheck.subject import Subject
from tests.helpers.rules_executor import RulesExecutor

_CHUNK = 10
"""Examples between two looks at the clock."""
_SCENARIOS = 5
"""How many times as long as others a property is explored whose examples are scenarios."""


def explored(
    tested: Property,
    bench: ExecutionContext,
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
    reached: dict[str, list[tuple[int, str]]] = {name: [] for name in every_situation()}
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


def rules_context() -> ExecutionContext:
    """A bench where the rules answer in a subject's place."""
    # Marks of an example are reached where its trial asks the rules, not where the port does.
    return ExecutionContext(Subject("the rules", oracle), RulesExecutor(around=unnoted))


@contextmanager
def unnoted() -> Iterator[None]:
    """While it is entered, marks that come up are not noted."""
    before = take()
    try:
        yield
    finally:
        take()
        put_back(before)


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


def main(arguments: list[str] | None = None) -> int:
    """Explore every property, and tell which marks were missed; 1 if some were."""
    parser = argparse.ArgumentParser(prog="python -m lab.marks", description=main.__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each property (default 4)")
    parser.add_argument("--examples", type=int, default=3000, help="of each property, at most (default 3000)")
    options = parser.parse_args(arguments)
    bench, found = rules_context(), {}
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
