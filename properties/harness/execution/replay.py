"""A case's steps once more, as they stand in it: neither its property nor a strategy needs to exist any more."""

from __future__ import annotations

from dataclasses import replace

from properties.harness.case import Case
from properties.harness.case.compare import outcome_difference
from properties.harness.case.failure import failure_of
from properties.harness.case.values import Call, Step
from properties.harness.execution.domain import left_out, not_offered
from properties.harness.execution.example import spell
from properties.harness.execution.port import Port
from properties.harness.execution.run import Expectation, Run, recorded
from properties.harness.subject import Subject


class NotTried(Exception):
    """The case comes to something that is not tried on the subject."""


def replay(
    case: Case, port: Port, subject: Subject | None = None, expect: Expectation | None = None
) -> Case | None:
    """The case as it fails on `port`, None where it does not.

    Args:
        subject: whose contract may leave out what the case does. Without one, everything is tried.
        expect: the rules to ask; without them, what the case expects.

    Raises:
        NotTried: the subject's contract leaves it out, or the subject does not offer it.
    """
    run = Run(port, expect or recorded(case.expected))
    port.begin()
    for step in case.steps:
        _take(run, step, subject)
        found = wrong_with_last(case, run, subject) if isinstance(step, Call) else None
        if found is not None:
            return found
    return _still_stated(case, run)


def _take(run: Run, step: Step, subject: Subject | None) -> None:
    asked = run.asked(step)
    if subject is not None and asked is not None:
        reason = left_out(subject, asked.call, asked.expected)
        if reason is not None:
            raise NotTried(reason)
    taken = run.take(step, asked)
    reason = not_offered(taken.outcome) if taken is not None else None
    if reason is not None:
        raise NotTried(reason)


def wrong_with_last(case: Case, run: Run, subject: Subject | None = None) -> Case | None:
    """The case as it fails at the call that was made last, None where that came out as expected."""
    expected, actual, call = run.expected[-1], run.actual[-1], run.calls[-1]
    found = outcome_difference(expected, actual, places=run.port.device != "cpu")
    if found is None:
        return None
    number = len(run.actual) - 1
    shown = spell(call, subject.own_name(call.function) if subject is not None else "")
    failure = failure_of(found, expected, actual, function=call.function, call=number, shown=shown)
    return replace(as_run(case, run), failure=failure)


def _still_stated(case: Case, run: Run) -> Case | None:
    """Where a condition on several calls was broken, it is as long as these outcomes are the same."""
    if case.failure is None or differs(case) or tuple(run.actual) != case.actual:
        return None
    return as_run(case, run)


def differs(case: Case) -> bool:
    """Whether an outcome alone shows what is wrong; a condition that a property states is about several."""
    places = case.device != "cpu"
    pairs = zip(case.expected, case.actual, strict=True)
    return any(outcome_difference(expected, actual, places=places) is not None for expected, actual in pairs)


def as_run(case: Case, run: Run) -> Case:
    """The case as far as it was run, with what came of it."""
    return replace(
        case,
        steps=tuple(run.steps),
        expected=tuple(run.expected),
        actual=tuple(run.actual),
        device=run.port.device,
    )
