"""Where the sanitizer ends a case that was found without it."""

from __future__ import annotations

from dataclasses import replace

from properties.harness.case import Case
from properties.harness.compare import outcome_difference
from properties.harness.port import Port
from properties.harness.sanitizer.findings import FINDINGS
from properties.harness.trial import spell
from properties.harness.values import Call, Outcome, Raised


def ends_earlier(case: Case, port: Port) -> Case | None:
    """The case as the sanitizer's finding would have had it, None where it finds nothing in the steps."""
    port.begin()
    outcomes: list[Outcome] = []
    for number, step in enumerate(case.steps, 1):
        outcome = port.execute(step)
        if not isinstance(step, Call) or outcome is None:
            continue
        outcomes.append(outcome)
        if isinstance(outcome, Raised) and outcome.exception in FINDINGS:
            return _ended(replace(case, steps=case.steps[:number]), outcomes)
    return None


def _ended(case: Case, outcomes: list[Outcome]) -> Case:
    expected = case.expected[: len(outcomes)]
    found = outcome_difference(expected[-1], outcomes[-1], places=case.device != "cpu")
    message = f"{found} [{spell(case.calls[-1])}]"
    return replace(case, expected=expected, actual=tuple(outcomes), message=message)
