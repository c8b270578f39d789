"""Whether entries of known defects pass by deliberate breakages, which are other defects than theirs.

A breakage is planted as it is found first, and once more with inputs of the entry's own circumstances: a failure that has all
the fields of a symptom is told apart from it by the condition alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from properties import subjects
from properties.harness.case import Case
from properties.harness.execution.example import Bench, Falsified
from properties.harness.port import InProcess
from properties.harness.registry import Property, load_properties
from properties.harness.variants import Breakage, broken_subject
from properties.meta.breakages import BREAKAGES, SEED, without_memory
from properties.subjects import KnownDeviation, Subject, Symptom
from properties.subjects.known import declared_in
from properties.subjects.vllm_conditions import CONDITIONS

FILE = Path(subjects.__file__).with_name("vllm_known.toml")
MAX_EXAMPLES = 200
"""For a breakage as it is; as many failing ones are looked at for its circumstances."""


def entries() -> tuple[KnownDeviation, ...]:
    """All known defects of the file, of whichever releases."""
    return tuple(known for known, _ in declared_in(FILE, CONDITIONS))


@dataclass(frozen=True)
class Planted:
    """A breakage under an entry's circumstances: the failing case, and whether the entry passes by it."""

    breakage: str
    entry: str
    case: Case
    passed_by: bool


@dataclass
class Lint:
    """What comes of planting breakages under the circumstances of entries.

    `found` are the cases of breakages as they are. `alike` are pairs in which a failure has all the fields of a symptom, `planted` those
    of them whose inputs were under the entry's circumstances, too.
    """

    found: dict[str, Case] = field(default_factory=dict)
    planted: list[Planted] = field(default_factory=list)
    alike: set[tuple[str, str]] = field(default_factory=set)

    @property
    def swallowed(self) -> set[tuple[str, str]]:
        """Breakages and entries that pass by them."""
        return {(one.breakage, one.entry) for one in self.planted if one.passed_by}

    @property
    def reached(self) -> set[tuple[str, str]]:
        return {(one.breakage, one.entry) for one in self.planted}


@cache
def linted() -> Lint:
    """Every breakage under every entry's circumstances."""
    lint = Lint()
    for breakage in BREAKAGES:
        with (
            tempfile.TemporaryDirectory() as folder,
            broken_subject(breakage.variant, Path(folder)) as subject,
        ):
            _plant(lint, breakage, subject)
    return lint


def _plant(lint: Lint, breakage: Breakage, subject: Subject) -> None:
    first = failing(subject, breakage.caught_by[0])
    assert first is not None, f"{breakage.caught_by[0]} passes, but should fail: {breakage.name}"
    lint.found[breakage.name] = first
    for entry in entries():
        shown = [one for one in entry.shown_by if first.failure is not None and one.fits(first.failure)]
        for symptom in shown:
            lint.alike.add((breakage.name, entry.id))
            case = _under_circumstances(subject, first.property_name, symptom, first)
            if case is not None:
                passed = entry.shows_in(_of_entry(case, entry))
                lint.planted.append(Planted(breakage.name, entry.id, case, passed))


def _of_entry(case: Case, entry: KnownDeviation) -> Case:
    """The case as one of a property of the entry's."""
    return case if entry.covers(case.property_name) else replace(case, property_name=entry.names[0])


def _under_circumstances(subject: Subject, name: str, symptom: Symptom, first: Case) -> Case | None:
    """A failing case with the symptom's fields and inputs for its condition, if one is found."""

    def is_one(case: Case) -> bool:
        fits = case.failure is not None and symptom.fits(case.failure)
        return fits and symptom.condition.inputs(case)

    return first if is_one(first) else failing(subject, name, is_one)


def failing(subject: Subject, name: str, wanted: Callable[[Case], bool] = lambda case: True) -> Case | None:
    """The first failing case of a property that is wanted, unshrunk."""
    bench = Bench(subject, InProcess(subject, "cpu"), passes_by=lambda case: not wanted(case))
    tested: Property = load_properties()[name]
    try:
        with without_memory(shrink=False):
            tested.explore(bench, seed=SEED, max_examples=MAX_EXAMPLES)
    except Falsified as falsified:
        return falsified.case
    return None


def told(lint: Lint) -> Iterator[str]:
    """The figures, and what was not reached."""
    yield f"{len(lint.found)} breakages, {len(entries())} entries, {len(lint.alike)} pairs with a symptom's fields"
    yield f"{len(lint.reached)} of them under its circumstances, {len(lint.swallowed)} passed by"
    yield from (f"not reached: {' / '.join(pair)}" for pair in sorted(lint.alike - lint.reached))
