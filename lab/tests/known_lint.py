"""Whether entries of known defects pass by planted defects, which are other defects than theirs.

A planted defect is hunted as it is found first, and once more with inputs of the entry's own circumstances: a failure that has all
the fields of a symptom differs from it by the condition alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis.errors import Flaky

from statecheck.case import Case
from statecheck.execution.example import ExecutionContext, Falsified, Observer
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import Property, load_properties
from statecheck.subject.profile import DOCUMENTS
from subjects import KnownDeviation, Subject, Symptom
from tests.helpers.declared import entries
from tests.helpers.hunts import hunting
from tests.helpers.planted import PlantedDefect, broken_subject

SEED = 1
MAX_EXAMPLES = 500
MORE, MORE_SLOW = 200, 12
"""Examples after a defect was found, to find it under the circumstances of entries, too; fewer of those that take long."""


@dataclass(frozen=True)
class Planted:
    """A planted defect under the circumstances of an entry: failing cases with all the fields of one of its symptoms.

    `case` is the first that is reported; where the entry passes by all of them, the last.
    """

    defect: str
    entry: str
    case: Case
    passed_by: bool


@dataclass
class Lint:
    """What comes of planting a defect under the circumstances of entries.

    `found` is the defect as it was found first. `alike` are pairs of a defect and an entry with a symptom whose fields a
    failure has; `planted` are those for which there were inputs under the entry's circumstances, too.
    """

    found: dict[str, Case] = field(default_factory=dict)
    planted: dict[tuple[str, str], Planted] = field(default_factory=dict)
    alike: set[tuple[str, str]] = field(default_factory=set)

    @property
    def passed_by(self) -> set[tuple[str, str]]:
        """Planted defects and entries that pass by them."""
        return {pair for pair, one in self.planted.items() if one.passed_by}


def linted(defect: PlantedDefect) -> Lint:
    """A planted defect under every entry's circumstances."""
    lint = Lint()
    with (
        tempfile.TemporaryDirectory() as folder,
        broken_subject(defect.variant, Path(folder)) as subject,
    ):
        _Planting(lint, defect, subject).run()
    return lint


class _Enough(BaseException):
    """Everything was planted, or looked for long enough. No `Exception`: it is nothing that the example shows."""


@dataclass
class _Planting(Observer):
    """Explores the first property that finds a planted defect, until a failure was seen under each entry's circumstances."""

    lint: Lint
    defect: PlantedDefect
    subject: Subject
    examples: int = 0
    more: int = MORE

    def run(self) -> None:
        name = self.defect.found_by[0]
        tested = load_properties()[name]
        slow = tested.launches or "lifecycle" in tested.module
        self.more = MORE_SLOW if slow else MORE
        bench = ExecutionContext(self.subject, InProcess(self.subject, "cpu"))
        bench.observer = self
        # A state machine that ends between two draws is taken for one that draws something else each time.
        with suppress(_Enough, Flaky), hunting(shrink=False):
            tested.explore(bench, seed=SEED, max_examples=MAX_EXAMPLES)
        assert self.defect.name in self.lint.found, f"{name} passes, but should fail: {self.defect.name}"

    def example_begins(self) -> None:
        if self.defect.name not in self.lint.found:
            return
        self.examples += 1
        if self.examples > self.more or not self._missing:
            raise _Enough

    @property
    def _missing(self) -> set[tuple[str, str]]:
        reported = {pair for pair, one in self.lint.planted.items() if not one.passed_by}
        return {pair for pair in self.lint.alike - reported if pair[0] == self.defect.name}

    def was_met_before(self, case: Case) -> bool:
        """Ask every entry; the exploration goes past the failure."""
        self.lint.found.setdefault(self.defect.name, case)
        for entry in entries():
            for symptom in entry.shown_by:
                self._plant(case, entry, symptom)
        return True

    def _plant(self, case: Case, entry: KnownDeviation, symptom: Symptom) -> None:
        pair = (self.defect.name, entry.id)
        if case.failure is None or not symptom.fits(case.failure):
            return
        self.lint.alike.add(pair)
        before = self.lint.planted.get(pair)
        if (before is None or before.passed_by) and symptom.condition.inputs(case, DOCUMENTS):
            passed_by = entry.shows_in(replace(case, property_id=entry.names[0]), DOCUMENTS)
            self.lint.planted[pair] = Planted(*pair, case, passed_by)


@dataclass
class _Wanted(Observer):
    wanted: Callable[[Case], bool]

    def was_met_before(self, case: Case) -> bool:
        return not self.wanted(case)


def failing(subject: Subject, name: str, wanted: Callable[[Case], bool] = lambda case: True) -> Case | None:
    """The first failing case of a property that is wanted, unshrunk."""
    bench = ExecutionContext(subject, InProcess(subject, "cpu"), _Wanted(wanted))
    tested: Property = load_properties()[name]
    try:
        with hunting(shrink=False):
            tested.explore(bench, seed=SEED, max_examples=MAX_EXAMPLES)
    except Falsified as falsified:
        return falsified.case
    return None
