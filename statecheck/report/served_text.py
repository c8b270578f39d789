"""What a user of a server would see of a failing case: a sentence, chosen by the failure's kind, the broken law or the function."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from statecheck.case import Case
from statecheck.case.cause import cause_of, first_wrong_call
from statecheck.case.failure import Failure
from statecheck.case.values import Raised, Refusal
from statecheck.report.scenario_timeline import broken_law

_TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def served_text(case: Case) -> str:
    """The sentence; "" if the case has no failure, or nothing is known of the function that was called."""
    failure = case.failure
    if failure is None:
        return ""
    return _sentence(case, failure).format(wrong_state=_TEXTS["wrong_state"])


def _sentence(case: Case, failure: Failure) -> str:
    wrong_state = "{wrong_state}"
    if failure.kind in _TEXTS["kinds"]:
        return str(_TEXTS["kinds"][failure.kind])
    if failure.kind == "refusal":
        return str(_TEXTS[_of_refusal(case)])
    if failure.place == "output":
        return str(_TEXTS["output"])
    if law := broken_law(case):
        return str(_TEXTS["laws"].get(law, wrong_state))
    function = cause_of(case).function
    fitting = (
        one for one in _TEXTS["functions"] if any(fnmatchcase(function, name) for name in one["patterns"])
    )
    found = next(fitting, None)
    return str(found["sentence"]) if found else wrong_state if case.timeline is not None else ""


def _of_refusal(case: Case) -> str:
    """Whether a call raised and should return, or the other way round, or raised another error."""
    number = first_wrong_call(case)
    if number is None or not isinstance(case.expected[number], Refusal):
        return "raised"
    return "refused_otherwise" if isinstance(case.actual[number], Raised) else "not_refused"
