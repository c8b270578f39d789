"""What a failing case is a case of, so that a thousand inputs that show one defect count as one."""

from __future__ import annotations

import builtins
import hashlib
import json
from dataclasses import dataclass

from properties.harness.case.case import Case

_DIGITS = 10


@dataclass(frozen=True)
class Bucket:
    """Failing cases of one property that show the same thing on the same subject.

    Args:
        rule: what the subject broke, see `Failure.rule`.
        fault: kind of the device's fault, or name of the sanitizer's finding; "" for a wrong answer.
    """

    property: str
    rule: str
    fault: str
    subject: str

    @builtins.property
    def id(self) -> str:
        """Ten hexadecimal digits, the same in every process and on every machine."""
        parts = json.dumps([self.property, self.rule, self.fault, self.subject])
        return hashlib.sha256(parts.encode()).hexdigest()[:_DIGITS]


def bucket_of(case: Case) -> Bucket:
    """The bucket of a failing case, shrunk or not."""
    rule, fault = (case.failure.rule, case.failure.fault) if case.failure is not None else ("", "")
    return Bucket(case.property_name, rule, fault, case.subject)
