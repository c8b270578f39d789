"""The verdicts of a test run over all of its processes, what became of declared defects, and what is printed of them at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from statecheck.execution.example import ExecutionContext
from statecheck.execution.registry import Property, load_properties
from statecheck.execution.verdict import TELLING, WORST_FIRST, Status
from statecheck.kernels import launch_counts
from statecheck.kernels.launch_counts import How
from statecheck.subject import KnownDeviation
from statecheck.subject.known import GONE, NOT_ENOUGH, SHOWED, TriedProperty, defect_status, enough
from statecheck.util.text import first_names

_EXAMPLES_OF_A_MODEL = 9


def declared_in(context: ExecutionContext, tested: Property) -> dict[str, KnownDeviation]:
    """The subject's defects that may show in the property, by name."""
    declared = context.subject.known_defects.declared
    return {name: one for name, one in declared.items() if one.covers(tested.id)}


def examples_wanted(context: ExecutionContext, tested: Property, most: int) -> int:
    """How many examples to run: `most`, or as many as it takes to call the property's declared defects gone.

    Where kernels are executed on a CPU these would take minutes; there a test run leaves it to a campaign.
    """
    if tested.launches and context.port.device == "cpu":
        return most
    return max([most, *(enough(defect.one_in) for defect in declared_in(context, tested).values())])


def run_missing(context: ExecutionContext, tested: Property) -> None:
    """After a test: run fresh examples until as many were compared as the declared defects that did not show need.

    An example that compares nothing counts for Hypothesis, and is no evidence that a defect is gone. It ends after a
    round in which no example was compared.

    Raises:
        Falsified: an example fails.
    """
    wanted, before, seed = examples_wanted(context, tested, 0), 0, 0
    declared = declared_in(context, tested).values()
    while before < context.counts.compared < wanted and not all(map(context.known_failures.get, declared)):
        before, seed = context.counts.compared, seed + 1
        tested.explore(context, seed=seed, max_examples=max(TELLING, wanted - before))


def run_each_configuration(context: ExecutionContext, tested: Property) -> None:
    """After a test: try each model of a library of sequences that no example has compared, since drawn ones leave some out.

    Raises:
        Falsified: an example fails.
    """
    choices = context.subject.sequences
    if choices is None or not tested.is_of_library:
        return
    for model in choices.models:
        if not context.counts.configurations[model] and model not in context.counts.unverified:
            context.configuration = model
            try:
                tested.explore(context, seed=0, max_examples=_EXAMPLES_OF_A_MODEL, simplest=False)
            finally:
                context.configuration = ""


def report_of(context: ExecutionContext, tested: Property, status: Status) -> Iterator[str]:
    """What a test says of each defect that may show in its property, as text that goes from one process to another."""
    applies, compared = status is not Status.NOT_APPLICABLE, context.counts.compared
    for name, declaration in declared_in(context, tested).items():
        covered = sorted(filter(declaration.covers, load_properties()))
        matched = context.known_failures[declaration]
        defect = [context.subject.name, name, declaration.link, declaration.one_in, covered]
        yield json.dumps([*defect, tested.id, applies, compared if applies else 0, matched])


@dataclass
class _Declared:
    link: str
    one_in: int
    covered: frozenset[str]
    rows: dict[str, TriedProperty] = field(default_factory=dict)
    matched: Counter[str] = field(default_factory=Counter)
    """The failing examples of each property that it matched."""

    @property
    def status(self) -> tuple[str, str]:
        complete = self.covered <= set(self.rows)
        return defect_status(
            self.one_in, list(self.rows.values()), showed=self.matched.total() > 0, complete=complete
        )


class DeclaredDefects:
    """The defects that the reports of a test run tell of."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], _Declared] = {}

    def add(self, reported: Iterable[str]) -> None:
        for text in reported:
            subject, name, link, one_in, covered, tested, applies, compared, matched = json.loads(text)
            declared = self._all.setdefault((subject, name), _Declared(link, one_in, frozenset(covered)))
            declared.rows[tested] = TriedProperty(applies, compared)
            declared.matched += Counter({tested: matched})

    @property
    def is_stale(self) -> bool:
        """Whether a declared defect no longer fails."""
        return any(defect.status[0] == GONE for defect in self._all.values())

    def lines(self) -> Iterator[str]:
        for (_, name), defect in self._all.items():
            status, note = defect.status
            if status == SHOWED:
                properties = f"{len(defect.matched)} propert{'y' if len(defect.matched) == 1 else 'ies'}"
                yield f"statecheck: known defect {name} matched {defect.matched.total():,} failures of {properties}: {defect.link}"
            elif status == GONE:
                yield f"statecheck: {Status.UNEXPECTED_PASS.value}: known defect {name} {GONE}: {note}: {defect.link}"
            elif status == NOT_ENOUGH:
                wanted = f"{enough(defect.one_in):,} of each of its {len(defect.covered)} properties"
                yield f"statecheck: known defect {name} {NOT_ENOUGH}: {note}, and {wanted} would tell whether it is gone"


_COMPARED = (Status.FALSIFIED, Status.UNEXPECTED_PASS, Status.KNOWN, Status.PASSED)
RESULT = "statecheck property"
"""Name of the user property in which the report of a test carries the result of each of its phases, as JSON, from process to process."""
ANNOTATION = "statecheck annotation"
"""Name of the user property that has a command by which GitHub shows a failure."""
_NAMES = 8


@dataclass
class SubjectEvidence:
    """What the verdicts on a subject rest on."""

    subject: str
    applicable: int
    selected: set[str] = field(default_factory=set)
    examples: int = 0
    compared: int = 0
    models: dict[str, str] = field(default_factory=dict)
    _compared: set[str] = field(default_factory=set)
    _unverified: dict[str, str] = field(default_factory=dict)

    def add(self, result: Mapping[str, Any]) -> None:
        """A phase of a test has ended."""
        tested, models = result["property"], result["models"]
        self.selected |= {tested} if result["applies"] else set()
        self.examples += result["examples"]
        self.compared += result["compared"]
        self._compared.update(result["compared_models"])
        self._unverified |= result["unverified"]
        if models and result["applies"] and result["examples"]:
            self.models[tested] = f"compared for {len(result['compared_models'])} of {models} models"

    @property
    def unverified(self) -> dict[str, str]:
        """Models that cannot be verified, and why."""
        return {name: why for name, why in self._unverified.items() if name not in self._compared}

    def lines(self) -> Iterable[str]:
        """What is printed of it."""
        for tested, share in self.models.items():
            yield f"statecheck: {tested}: {share}"
        for why in self.unverified.values():
            yield f"statecheck: {why}"
        few = ", fewer than half" if 2 * self.compared < self.examples else ""
        yield (
            f"statecheck: {self.subject}: {len(self.selected)} of {self.applicable} applicable properties selected; "
            f"{self.compared:,} of {self.examples:,} examples compared{few}"
        )


class Summary:
    """The verdicts of a test run, of every process of it."""

    def __init__(self) -> None:
        self._verdicts: dict[str, tuple[str, Status]] = {}
        self._unchecked: set[str] = set()
        self._launches: Counter[How] = Counter()
        self.defects = DeclaredDefects()
        self._tried: set[str] = set()
        self._evidence: dict[str, SubjectEvidence] = {}
        self.annotations: list[str] = []
        """Commands by which GitHub shows what failed."""
        self.others = 0
        """Tests that were run and are about no property."""

    def add(self, report: pytest.TestReport) -> None:
        results = [json.loads(str(value)) for name, value in report.user_properties if name == RESULT]
        if not results and report.when == "call":
            self.others += 1
        self.annotations += [str(value) for name, value in report.user_properties if name == ANNOTATION]
        # Reports of later phases have the results of earlier ones, too.
        for result in (one for one in results if one["phase"] == report.when):
            name, status = result["name"], Status(result["status"])
            self._verdicts[report.nodeid] = name, status
            if status is Status.NOT_TESTED and result["tried"]:
                self._tried.add(name)
            evidence = SubjectEvidence(result["subject"], result["applicable"])
            self._evidence.setdefault(result["subject"], evidence).add(result)
            self._unchecked.update(result["unchecked"])
            if report.when != "teardown":
                self.defects.add(result["declared"])
            for *how, times in result["launches"]:
                self._launches[How(*how)] += times

    @property
    def is_void(self) -> bool:
        """Whether there were properties to test, and not one of them was."""
        found = [status for _, status in self._verdicts.values()]
        return bool(found) and not any(status in _COMPARED for status in found)

    @property
    def untested(self) -> dict[str, bool]:
        """Applicable properties that were not tested, and whether there were enough examples to say that it was no chance."""
        found = (name for name, status in self._by_property().items() if status is Status.NOT_TESTED)
        return {name: name in self._tried for name in sorted(found)}

    @property
    def unverified(self) -> dict[str, str]:
        """Models that cannot be verified, and why."""
        return {model: why for one in self._evidence.values() for model, why in one.unverified.items()}

    def lines(self) -> Iterable[str]:
        if not self._verdicts:
            return
        for one in self._evidence.values():
            yield from one.lines()
        counted = Counter(self._by_property().values())
        counts = ", ".join(f"{counted[status]} {status.value}" for status in WORST_FIRST if counted[status])
        yield f"statecheck: {counts}"
        if self.is_void:
            yield "statecheck: nothing was compared, so nothing is known about this subject"
        if self.untested:
            yield f"statecheck: not tested: {first_names(list(self.untested), _NAMES)}"
        if self._unchecked:
            names = sorted(self._unchecked)
            yield f"statecheck: seen but not compared, since no rule knows it: {first_names(names, _NAMES)}"
        if self._launches:
            yield f"statecheck: kernels: {launch_counts.summary(self._launches)}"
        yield from self.defects.lines()

    def _by_property(self) -> dict[str, Status]:
        """The worst of each property's tests."""
        found: dict[str, Status] = {}
        for name, status in self._verdicts.values():
            found[name] = min(status, found.get(name, status), key=WORST_FIRST.index)
        return found
