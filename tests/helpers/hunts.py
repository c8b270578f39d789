"""Hunts: the examples of one property on one subject, until an example fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace

from hypothesis import Phase, settings
from hypothesis.errors import Flaky
from hypothesis.strategies import DataObject

from statecheck.case import Case, values
from statecheck.case.failure import brief
from statecheck.execution.example import Example, ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import Property
from subjects import Subject
from tests.helpers.observers import FailureLog

SEEDS = range(20, 23)
MAX_EXAMPLES = 500
"""No fewer than the table of bad input has rows."""
LONGEST = 800


@dataclass(frozen=True)
class Catch:
    """The example, counted from 1, that first showed a defect, and what it shrank to: the arguments drawn, the case."""

    examples: int
    drawn: dict[str, object]
    case: Case

    @property
    def smallest(self) -> str:
        """The arguments; or the call behind its environment, where arguments do not tell what was drawn, or are long.

        Of a scenario that a picture shows, what each request did in its steps.
        """
        if self.case.timeline is not None:
            return "; ".join(moment.title for moment in self.case.timeline.moments)
        if self.drawn and not any(isinstance(value, DataObject) for value in self.drawn.values()):
            drawn = ", ".join(f"{name}={_concise(value)}" for name, value in self.drawn.items())
            if len(drawn) <= LONGEST:
                return drawn
        assert self.case.failure is not None
        variables = "".join(f"{name}={value} " for name, value in self.case.calls[-1].environment)
        return variables + self.case.failure.shown

    @property
    def seen(self) -> str:
        """The observed value, and the expected value."""
        assert self.case.failure is not None
        return self.case.failure.sentence


def hunt(
    tested: Property,
    subject: Subject,
    *,
    shrink: bool,
    seeds: Sequence[int] = SEEDS,
    max_examples: int = MAX_EXAMPLES,
    sanitized: bool = False,
) -> Catch | None:
    """The first failure of the subject on the CPU within `max_examples` examples of the property, if there is one.

    Hypothesis draws numbers that stand in loaded sources, so that the same seed means other examples where other modules are
    loaded: what is not found with it is looked for with the next ones. Where declared findings of the sanitizer end examples, a seed is tried again without it, as in a campaign.
    """
    latest, failing, cases = dict[str, object](), dict[str, object](), list[Case]()

    class Log(FailureLog):
        def falsified(self, case: Case) -> None:
            super().falsified(case)
            cases.append(case)
            failing.clear()
            failing.update(latest)

    log = Log()

    def noting(trial: Example, **drawn: object) -> None:
        latest.clear()
        latest.update(drawn)
        tested.body(trial, **drawn)

    for seed in seeds:
        for watched in (True, False) if sanitized else (False,):
            context = ExecutionContext(subject, ordinary_port(subject, "cpu", sanitized=watched), log)
            try:
                with hunting(shrink=shrink):
                    replace(tested, body=noting).explore(context, seed=seed, max_examples=max_examples)
            except (Falsified, Flaky):
                if not cases:
                    raise
                # An example may pass when it is run again, because requests reach a server in another order.
                return Catch(log.examples[0], failing, cases[-1])
            if not context.known_failures:
                break
    return None


def _concise(value: object) -> str:
    """An expression for `value`, without the fields of dataclasses that have their defaults."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_concise, value))}{',' if len(value) == 1 else ''})"
    if not is_dataclass(value) or type(value).__module__ == values.__name__:
        return brief(value)
    changed = [field for field in fields(value) if getattr(value, field.name) != field.default]
    arguments = ", ".join(f"{field.name}={_concise(getattr(value, field.name))}" for field in changed)
    return f"{type(value).__name__}({arguments})"


@contextmanager
def hunting(*, shrink: bool) -> Iterator[None]:
    """Properties explore with the phases that a hunt for a broken copy needs."""
    before = settings()
    phases = [Phase.generate, Phase.target, *([Phase.shrink] if shrink else [])]
    chosen = settings(settings.get_profile("nightly"), phases=phases)
    settings.register_profile("hunting", chosen)
    settings.register_profile("before", before)
    settings.load_profile("hunting")
    try:
        yield
    finally:
        settings.load_profile("before")
