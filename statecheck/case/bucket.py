"""What a failing case is a case of, so that a thousand inputs that show one defect count as one."""

from __future__ import annotations

import builtins
import hashlib
import json
from dataclasses import dataclass

from statecheck.case.case import Case
from statecheck.case.values import Outcome, Raised

_DIGITS = 10


@dataclass(frozen=True)
class Bucket:
    """Failing cases of one property that show the same thing on the same subject, and the same model of a library of sequences.

    Args:
        rule: what the subject broke, see `Failure.rule`.
        fault: kind of the device's fault, or name of the sanitizer's finding; "" for a wrong answer.
        raised: function and text of the subject's line that an exception came from, which stay as they are where lines move;
            "" where no exception is the failure, or no line is known.
    """

    property: str
    rule: str
    fault: str
    subject: str
    raised: str = ""

    @builtins.property
    def id(self) -> str:
        """Ten hexadecimal digits, the same in every process and on every machine."""
        parts = [self.property, self.rule, self.fault, self.subject]
        parts += [self.raised] if self.raised else []
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]


def bucket_of(case: Case) -> Bucket:
    """The bucket of a failing case, shrunk or not."""
    rule, fault = (case.failure.rule, case.failure.fault) if case.failure is not None else ("", "")
    # One defect of each model of a library of sequences.
    rule = f"{rule} of {case.model}" if case.model else rule
    return Bucket(case.property_id, rule, fault, case.subject, raised_by(case))


def raised_by(case: Case) -> str:
    """The line of the subject that the failure's exception came from, without its number."""
    failure = case.failure
    if failure is None or failure.kind != "refusal" or failure.call is None:
        return ""
    return line_of(case.actual[failure.call])


def line_of(outcome: Outcome) -> str:
    """The line of the subject that the call raised at, without its number; "" where it returned, or no line is known."""
    at = outcome.at if isinstance(outcome, Raised) else None
    return f"{at.function}: {at.text}" if at is not None else ""
