"""What is not tried on a subject: calls that its contract leaves out, and what it does not offer."""

from __future__ import annotations

from statecheck.case.values import Call, Expected, Outcome, Raised, Refusal
from statecheck.subject import Subject


def left_out(subject: Subject, call: Call, expected: Expected) -> str | None:
    """Why this call, all of whose names are resolved, is not made; None where it is inside of the contract."""
    if isinstance(expected, Refusal) and not subject.refuses:
        return f"the rules refuse {expected.argument or call.function}"
    return next((one.reason for one in subject.outside if one.holds(call)), None)


def is_lacked(subject: Subject, call: Call) -> bool:
    """Whether a call that is left out is about something that the subject does not have."""
    return any(one.lacked and one.holds(call) for one in subject.outside)


def not_offered(outcome: Outcome | None) -> str | None:
    """Why a call was not tried: the subject does not offer it, or its launch can be neither executed nor interpreted; or None."""
    if isinstance(outcome, Raised) and outcome.not_offered:
        return outcome.message
    return None
