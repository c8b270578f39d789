"""The verdicts of a test run over all of its processes, and what is printed of them at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from statecheck.execution.verdict import Status
from statecheck.kernels import launch_counts
from statecheck.kernels.launch_counts import How
from statecheck.suite import declared
from statecheck.suite.declared import DeclaredDefects
from statecheck.util.text import first_names

_COMPARED = (Status.FALSIFIED, Status.UNEXPECTED_PASS, Status.KNOWN, Status.PASSED)
_WORST_FIRST = (
    Status.FALSIFIED,
    Status.UNEXPECTED_PASS,
    Status.ERROR,
    Status.KNOWN,
    Status.PASSED,
    Status.NOT_VERIFIED,
    Status.NOT_TESTED,
    Status.NOT_APPLICABLE,
)
_SHOWN = (
    Status.PASSED,
    Status.FALSIFIED,
    Status.UNEXPECTED_PASS,
    Status.ERROR,
    Status.KNOWN,
    Status.NOT_APPLICABLE,
    Status.NOT_VERIFIED,
    Status.NOT_TESTED,
)
PROPERTY, VERDICT, UNCHECKED = "statecheck property", "statecheck verdict", "statecheck unchecked"
LAUNCHED, TRIED, EVIDENCE = "statecheck launches", "statecheck tried", "statecheck evidence"
"""Names of the user properties in which the report of a test carries these from process to process."""
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

    def add(
        self,
        tested: str,
        applies: bool,
        examples: int,
        compared: int,
        models: int,
        compared_models: list[str],
        unverified: dict[str, str],
    ) -> None:
        """A test has ended."""
        self.selected |= {tested} if applies else set()
        self.examples += examples
        self.compared += compared
        self._compared.update(compared_models)
        self._unverified |= unverified
        if models and applies and examples:
            self.models[tested] = f"compared for {len(compared_models)} of {models} models"

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
        self.others = 0
        """Tests that were run and are about no property."""

    def add(self, report: pytest.TestReport) -> None:
        carried = [(str(name), str(value)) for name, value in report.user_properties]
        of = dict(carried)
        if VERDICT in of:
            self._verdicts[report.nodeid] = of[PROPERTY], Status(of[VERDICT])
            if of.get(TRIED) == str(True):
                self._tried.add(of[PROPERTY])
        elif report.when == "call" and report.nodeid not in self._verdicts:
            self.others += 1
        if EVIDENCE in of and (report.when == "call" or of.get(VERDICT)):
            name, applicable, *more = json.loads(of[EVIDENCE])
            self._evidence.setdefault(name, SubjectEvidence(name, applicable)).add(*more)
        self._unchecked.update(value for name, value in carried if name == UNCHECKED)
        if of.get(VERDICT) and report.when != "teardown":
            self.defects.add(value for name, value in carried if name == declared.KEY)
        if report.when == "call":
            # What comes after it has it too.
            for *how, times in (json.loads(value) for name, value in carried if name == LAUNCHED):
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
        counts = ", ".join(f"{counted[status]} {status.value}" for status in _SHOWN if counted[status])
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
            found[name] = min(status, found.get(name, status), key=_WORST_FIRST.index)
        return found
