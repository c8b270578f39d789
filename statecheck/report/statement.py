"""What a report says of a failing case in words: its first line, the statement that is false, the rule that is broken, and what a server would show.

Several properties about whole engines and libraries check the same laws, each on inputs of its own. What the property is named for, such as a
reordering, need not be in the input that was found.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from oracle.align.decisions import after_step, after_v1_steps, after_v2_steps
from oracle.lifecycle.broken_laws import BrokenLaws
from oracle.sequences import SequenceLaws
from statecheck.case import Case
from statecheck.case.bucket import cause_of, first_wrong_call
from statecheck.case.failure import Failure
from statecheck.case.values import Raised, Record, Refusal, Returned
from statecheck.reference import rule_for
from statecheck.report.scenario_timeline import broken_law
from statecheck.subject import Subject, load

_LAWS = {laws.__name__: laws for laws in (BrokenLaws, SequenceLaws)}
_NO_FAILURE = "No call fails that an engine or a library offers: none raises an error, ends the process, or takes too long."
_BETTER_SAID_BY = dict.fromkeys((after_v1_steps, after_v2_steps), after_step)
"""Rules that only say for which rows another one decides."""
_SOURCE = re.compile(r"\bSource:\s+(.*?)\.?\s*\Z", re.DOTALL)
_SERVED_TEXTS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("served_text.toml").read_text(encoding="utf-8")
)


def subject_of(case: Case) -> Subject | None:
    """The case's subject, None where it cannot be imported here."""
    try:
        return load(case.subject)
    except Exception:
        # A report is written all the same, also where the subject is another machine's.
        return None


def titled(name: str, subject: Subject | None) -> str:
    """The subject's name, with its release where it has one."""
    return f"{name} {subject.release}" if subject is not None and subject.release else name


def headline(case: Case) -> str:
    """The first line of everything that is written of a case: the subject, its release and model, and what does not hold."""
    model = f", {case.model}" if case.model else ""
    statement = (law_of(case) or case.sentence).rstrip(".")
    return f"{titled(case.subject, subject_of(case))}{model}: {statement}"


def should_hold(case: Case) -> str:
    """The statement, and the id to type for the property."""
    sentence = law_of(case) or case.sentence
    return f"{sentence} ({case.property_id})"


def law_of(case: Case) -> str:
    """The broken law's sentence; "" where the failure is about none."""
    failure = case.failure
    if failure is None or failure.call is None or failure.call >= len(case.expected):
        return ""
    expected = case.expected[failure.call]
    step = expected.value if isinstance(expected, Returned) else None
    broken = dict(step.fields).get("broken") if isinstance(step, Record) else None
    laws = _LAWS.get(broken.type) if isinstance(broken, Record) else None
    if laws is None:
        return ""
    if not isinstance(case.actual[failure.call], Returned):
        return _NO_FAILURE
    sentences = {law.name: str(law.metadata["sentence"]) for law in fields(laws)}
    return sentences.get(failure.part.rpartition(".")[2], "")


@dataclass(frozen=True)
class Rule:
    """A rule in a sentence or two, and its place in the documents or the contract, or in the oracle."""

    words: str
    source: str


def rule_of(case: Case) -> Rule | None:
    """The rule of the call that went wrong first; None where there is none, or it has no words."""
    cause = cause_of(case)
    rule = rule_for(cause.function)
    if rule is None:
        return None
    words = (inspect.getdoc(_BETTER_SAID_BY.get(rule, rule)) or "").partition("\n\n")[0]
    words = " ".join(words.partition("Source:")[0].split())
    source = _SOURCE.search(inspect.getdoc(rule) or "")
    named = f"`{rule.__module__}.{rule.__name__}`" if source is None else " ".join(source[1].split())
    named += f"; PROTOCOL.md, `{cause.own}`" if cause.own else ""
    return Rule(words, named) if words else None


def served_text(case: Case) -> str:
    """The sentence; "" if the case has no failure, or nothing is known of the function that was called."""
    failure = case.failure
    if failure is None:
        return ""
    return _sentence(case, failure).format(wrong_state=_SERVED_TEXTS["wrong_state"])


def _sentence(case: Case, failure: Failure) -> str:
    wrong_state = "{wrong_state}"
    if failure.kind in _SERVED_TEXTS["kinds"]:
        return str(_SERVED_TEXTS["kinds"][failure.kind])
    if failure.kind == "refusal":
        return str(_SERVED_TEXTS[_of_refusal(case)])
    if failure.place == "output":
        return str(_SERVED_TEXTS["output"])
    if law := broken_law(case):
        return str(_SERVED_TEXTS["laws"].get(law, wrong_state))
    function = cause_of(case).function
    fitting = (
        one
        for one in _SERVED_TEXTS["functions"]
        if any(fnmatchcase(function, name) for name in one["patterns"])
    )
    found = next(fitting, None)
    return str(found["sentence"]) if found else wrong_state if case.timeline is not None else ""


def _of_refusal(case: Case) -> str:
    """Whether a call raised and should return, or the other way round, or raised another error."""
    number = first_wrong_call(case)
    if number is None or not isinstance(case.expected[number], Refusal):
        return "raised"
    return "refused_otherwise" if isinstance(case.actual[number], Raised) else "not_refused"
