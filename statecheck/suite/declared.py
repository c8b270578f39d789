"""Declared defects in a test run: which showed, and which no longer fail, over all tests and all processes of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from statecheck.execution.example import ExecutionContext
from statecheck.execution.registry import Property, load_properties
from statecheck.execution.verdict import TELLING, Status
from statecheck.subject import KnownDeviation
from statecheck.subject.known import GONE, NOT_ENOUGH, SHOWED, TriedProperty, enough, standing_of

_EXAMPLES_OF_A_MODEL = 9
KEY = "statecheck declared"
"""The name under which a test's report carries what is said here."""


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
    while before < context.counts.compared < wanted and not _all_showed(context, tested):
        before, seed = context.counts.compared, seed + 1
        tested.explore(context, seed=seed, max_examples=max(TELLING, wanted - before))


def run_each_configuration(context: ExecutionContext, tested: Property) -> None:
    """After a test: try each model of a library of sequences that no example has compared, since drawn ones leave some out.

    Raises:
        Falsified: an example fails.
    """
    choices = context.subject.sequences
    if choices is None or not tested.held:
        return
    for model in choices.models:
        if not context.counts.configurations[model] and model not in context.counts.unverified:
            context.configuration = model
            try:
                tested.explore(context, seed=0, max_examples=_EXAMPLES_OF_A_MODEL, simplest=False)
            finally:
                context.configuration = ""


def _all_showed(context: ExecutionContext, tested: Property) -> bool:
    return all(context.known_failures[defect] for defect in declared_in(context, tested).values())


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
    def standing(self) -> tuple[str, str]:
        complete = self.covered <= set(self.rows)
        return standing_of(
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
        return any(defect.standing[0] == GONE for defect in self._all.values())

    def lines(self) -> Iterator[str]:
        for (_, name), defect in self._all.items():
            standing, note = defect.standing
            if standing == SHOWED:
                properties = f"{len(defect.matched)} propert{'y' if len(defect.matched) == 1 else 'ies'}"
                yield f"statecheck: known defect {name} matched {defect.matched.total():,} failures of {properties}: {defect.link}"
            elif standing == GONE:
                yield f"statecheck: {Status.UNEXPECTED_PASS.value}: known defect {name} {GONE}: {note}: {defect.link}"
            elif standing == NOT_ENOUGH:
                wanted = f"{enough(defect.one_in):,} of each of its {len(defect.covered)} properties"
                yield f"statecheck: known defect {name} {NOT_ENOUGH}: {note}, and {wanted} would tell whether it is gone"
