"""What is not tried on a subject: calls that its contract leaves out, and what it does not offer."""

from __future__ import annotations

from properties.harness.case.values import Call, Expected, Outcome, Raised, Refusal
from properties.harness.subject import Subject

NOT_OFFERED = "NotOffered"
"""The name of the exception by which an adapter says that a release does not have what an input needs."""


def left_out(subject: Subject, call: Call, expected: Expected) -> str | None:
    """Why this call, all of whose names are resolved, is not made; None where it is inside of the contract."""
    if isinstance(expected, Refusal) and not subject.refuses:
        return f"the rules refuse {expected.argument or call.function}"
    return next((one.reason for one in subject.outside if one.holds(call)), None)


def not_offered(outcome: Outcome | None) -> str | None:
    """What the subject says that it does not offer; None where it has answered."""
    if isinstance(outcome, Raised) and outcome.exception == NOT_OFFERED:
        return outcome.message
    return None
