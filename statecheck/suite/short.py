"""A falsified property in a few lines, in the place of Python's traceback: its frames are all the harness's own."""

from __future__ import annotations

from textwrap import shorten, wrap

from statecheck.case import Case
from statecheck.case.bucket import wrong_calls
from statecheck.case.compare import brief_outcome
from statecheck.execution.private.pytest import (
    ReprEntryNative,
    ReprExceptionInfo,
    ReprFileLocation,
    ReprTraceback,
)
from statecheck.report.statement import should_hold

_WIDTH = 110
_LONG = 320


def in_short(case: Case, file: str, line: int | None) -> ReprExceptionInfo:
    """The sentence, the smallest call, what was expected and what came, as pytest shows failures and xdist sends them.

    Args:
        file: where the test stands, and `line`, counted from 0.
    """
    entry = ReprEntryNative([f"{one}\n" for one in lines(case)])
    # What pytest prints once more in its list of failures.
    where = ReprFileLocation(file, (line or 0) + 1, shorten(case.message, _LONG, placeholder=" …"))
    return ReprExceptionInfo(ReprTraceback([entry], None, "native"), where)


def lines(case: Case) -> list[str]:
    """At most eight of them."""
    sentence = [*wrap(shorten(should_hold(case), 2 * _WIDTH, placeholder=" …"), _WIDTH)]
    failure = case.failure
    if failure is None:
        return [*sentence, shorten(case.message, _LONG, placeholder=" …")]
    rows = {"seen": failure.sentence, "call": failure.shown, **_outcome(case)}
    return sentence + [
        f"  {name:10}{shorten(text, _LONG, placeholder=' …')}" for name, text in rows.items() if text
    ]


def _outcome(case: Case) -> dict[str, str]:
    """What the call in question should have come to, and what it did."""
    number = case.failure.call if case.failure is not None else None
    if number is None or number >= min(len(case.expected), len(case.actual)):
        return {}
    if number not in wrong_calls(case):
        # The condition is about several calls, each of which is right alone.
        return {}
    return {"expected": brief_outcome(case.expected[number]), "actual": brief_outcome(case.actual[number])}
