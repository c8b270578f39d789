"""A case's steps once more, as they stand in it: neither its property nor a strategy needs to exist any more.

All that looks at a case again takes its steps with a `Rerun`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from statecheck.case import Case
from statecheck.case.bucket import first_wrong_call
from statecheck.case.failure import failure_of, outcome_difference
from statecheck.case.values import Raised, Step
from statecheck.execution.example import call_text
from statecheck.execution.executors import Executor
from statecheck.execution.run import (
    ExecutedCall,
    Expectation,
    Run,
    failed_operations,
    left_out,
    not_offered,
    recorded,
)
from statecheck.subject import Subject


class NotTried(Exception):
    """The case comes to something that is not tried on the subject."""


class Rerun:
    """Takes the steps of a case once more; iterating yields each call that was taken.

    Args:
        subject: whose contract may leave out what the case does. Without one, everything is tried.
        expect: the rules to ask; without them, what the case expects.

    Raises:
        NotTried: while it is iterated: the subject's contract leaves a call out, or the subject does not offer it.
    """

    def __init__(
        self, case: Case, port: Executor, subject: Subject | None = None, expect: Expectation | None = None
    ) -> None:
        self.case = case
        self.run = Run(port, expect or recorded(case.expected))
        self._subject = subject
        self.compared = 0
        """Outcomes of the subject's own functions that were held against what was expected."""
        port.begin()

    def __iter__(self) -> Iterator[ExecutedCall]:
        for step in self.case.steps:
            taken = self._take(step)
            if taken is not None:
                yield taken

    def _take(self, step: Step) -> ExecutedCall | None:
        run, subject = self.run, self._subject
        asked = run.resolved_call(step)
        if subject is not None and asked is not None:
            reason = left_out(subject, asked.call, asked.expected)
            if reason is not None:
                raise NotTried(reason)
        taken = run.take(step, asked)
        reason = not_offered(taken.outcome) if taken is not None else None
        if reason is not None:
            raise NotTried(reason)
        self.compared += taken is not None and taken.outcome.by_subject
        return taken

    def first_failure(self) -> Case | None:
        """Take all steps; the case as it fails first, None where it does not."""
        for _ in self:
            found = self.failed()
            if found is not None:
                return found
        if self._subject is not None:
            self.require_operations()
        return self.still_stated()

    def failed(self) -> Case | None:
        """The case as it fails at the call that was taken last, None where that came out as expected."""
        run = self.run
        expected, actual, call = run.expected[-1], run.actual[-1], run.calls[-1]
        found = outcome_difference(expected, actual, places=run.port.device != "cpu")
        if found is None:
            return None
        number = len(run.actual) - 1
        shown = call_text(call, self._subject.own_name(call.function) if self._subject is not None else "")
        failure = failure_of(found, expected, actual, function=call.function, call=number, shown=shown)
        return replace(self.as_run(), failure=failure)

    def require_operations(self) -> None:
        """Refuse a run in which an operation of a library of sequences failed that had happened when the case was found.

        Raises:
            NotTried: there is such an operation: the case does not come to what it is about.
        """
        now = failed_operations(self.run.actual, self.run.calls)
        before = failed_operations(self.case.actual, self.case.calls)
        for number, name in now.items():
            if number not in before:
                message = f"{name} reported that it failed, which it had not when the case was found"
                raise NotTried(": ".join(filter(None, (self.case.model, message))))

    def still_stated(self) -> Case | None:
        """Where a condition on several calls was broken, it is as long as these outcomes are the same."""
        case = self.case
        if (
            case.failure is None
            or first_wrong_call(case) is not None
            or tuple(self.run.actual) != case.actual
        ):
            return None
        return self.as_run()

    def as_run(self) -> Case:
        """The case as far as it was run, with what came of it."""
        run = self.run
        return replace(
            self.case,
            steps=tuple(run.steps),
            expected=tuple(run.expected),
            actual=tuple(run.actual),
            device=run.port.device,
        )


def replay(
    case: Case, port: Executor, subject: Subject | None = None, expect: Expectation | None = None
) -> Case | None:
    """The case as it fails first on `port`, None where it does not; arguments and errors as of `Rerun`."""
    return Rerun(case, port, subject, expect).first_failure()


def ends_earlier(case: Case, port: Executor) -> Case | None:
    """The case as the sanitizer's finding would have had it, None where it finds nothing in the steps."""
    rerun = Rerun(case, port)
    for taken in rerun:
        if isinstance(taken.outcome, Raised) and taken.outcome.kind in ("memory", "race"):
            return rerun.failed()
    return None
