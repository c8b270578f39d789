"""What is said of a failing case, in one place: the headline, which is the first line of every output, and the rows below it.

Reports, scripts, a terminal, pytest, JUnit, annotations of GitHub and the pages of a campaign have an `Entry` of it, and each shows it in its own
form (`render`). A report goes on with the sections of `sections`.

Several properties about whole engines and libraries check the same laws, each on inputs of its own. What the property is named for, such as a
reordering, need not be in the input that was found.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from oracle.align.decisions import after_step, after_v1_steps, after_v2_steps
from oracle.lifecycle.broken_laws import BrokenLaws
from oracle.sequences import SequenceLaws
from statecheck.case import Case
from statecheck.case.bucket import cause_of, first_wrong_call, own_name, wrong_calls
from statecheck.case.failure import Failure, brief_outcome, call_text, compared_part, unchecked
from statecheck.case.values import Expected, Outcome, Raised, Record, Refusal, Returned
from statecheck.reference import rule_for
from statecheck.report.scenario_timeline import broken_law
from statecheck.subject import Subject, is_engine
from statecheck.subject.loading import project_of
from statecheck.util.text import brief, first_names

_LAWS = {laws.__name__: laws for laws in (BrokenLaws, SequenceLaws)}
_NO_FAILURE = "No call fails that an engine or a library offers: none raises an error, ends the process, or takes too long."
_IF_REFUSED = (
    "Where the library refuses this in words, the port raises NotImplementedError; where it reports that nothing has changed, "
    "the port returns False (docs/sequences.md#what-an-operation-says)."
)
_BETTER_SAID_BY = dict.fromkeys((after_v1_steps, after_v2_steps), after_step)
"""Rules that only say for which rows another one decides."""
_SOURCE = re.compile(r"\bSource:\s+(.*?)\.?\s*\Z", re.DOTALL)
_SERVED_TEXTS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("served_text.toml").read_text(encoding="utf-8")
)
_LONGEST, _LONGEST_ROW, _MOST_NAMES = 200, 400, 5
TYPED = frozenset({"seen", "call", "expected", "actual", "smallest input", "run it again"})
"""Labels of rows that are code."""
STEPS = frozenset({"smallest input"})
"""Labels of rows that are calls, a line each."""
PATHS = frozenset({"run it again", "report"})
"""Labels of rows that are pasted, or opened."""


@dataclass(frozen=True)
class Entry:
    """Something that is wrong, as plain text: a line, and rows of a label and a text. The text of a row of `STEPS` has a line for each step."""

    headline: str
    rows: tuple[tuple[str, str], ...] = ()

    @property
    def on_one_line(self) -> Entry:
        """The same with each row on one line, for an output without lines of code."""
        rows = ((label, text.replace("\n", "; ") if label in STEPS else text) for label, text in self.rows)
        return Entry(self.headline, tuple(rows))

    def without(self, *labels: str) -> Entry:
        """The same with fewer rows, for an output that has less room."""
        return Entry(self.headline, tuple(row for row in self.rows if row[0] not in labels))

    @property
    def brief(self) -> Entry:
        """As a terminal has room for it."""
        return self.without("in a served text", "rule")


def headline(case: Case, release: str = "") -> str:
    """The first line of everything that is written of a case: the subject with its release and model, the function, and what went wrong.

    A step of an engine or a library says itself what breaks a law.
    """
    subject = ", ".join(filter(None, (titled(case.subject, release), case.model)))
    failure, breach = case.failure, _breach_of_law(case)
    if failure is None or breach:
        return brief(f"{subject}: {breach or case.message}", _LONGEST)
    name = own_name(case, failure.call) if failure.call is not None else ""
    return brief(": ".join(filter(None, (subject, name or failure.function, failure.sentence))), _LONGEST)


def failure_entry(case: Case, release: str = "", note: str = "") -> Entry:
    """What is said of a case in every output; an output that has less room leaves rows out.

    Args:
        release: of the subject, "" where it is not known.
        note: how it was confirmed, and what it depends on.
    """
    return Entry(
        headline(case, release), tuple((label, text) for label, text in _rows(case, release, note) if text)
    )


def _rows(case: Case, release: str, note: str) -> Iterator[tuple[str, str]]:
    yield "should hold", should_hold(case)
    failure, rule = case.failure, rule_of(case)
    if failure is not None:
        breach, number = _breach_of_law(case), failure.call
        is_said = breach or failure.sentence in headline(case, release)
        yield "seen", "" if is_said else brief(failure.sentence, _LONGEST_ROW)
        whole = is_engine(failure.function)
        yield "call", "" if whole else brief(failure.shown, _LONGEST_ROW)
        # A step of an engine says little without what came before it.
        steps = (f"{call.bind} = {call_text(call)}" if call.bind else call_text(call) for call in case.calls)
        yield "smallest input", "\n".join(_lines_within(_LONGEST_ROW, steps)) if whole else ""
        # Of a condition on several calls, each of which is right alone, no outcome says anything.
        if number is not None and number in wrong_calls(case):
            expected, actual = case.expected[number], case.actual[number]
            if failure.place != "the call" and not breach:
                yield "expected", brief(brief_outcome(expected), _LONGEST_ROW)
                yield "actual", brief(brief_outcome(compared_part(expected, actual)), _LONGEST_ROW)
            # The other fields of a step tell the laws what happened; no rule has a value for them.
            yield "not compared", "" if whole else first_names(unchecked(expected, actual), _MOST_NAMES)
    yield "if refused", _IF_REFUSED if _may_be_refused(case) else ""
    yield "in a served text", served_text(case)
    yield "rule", f"{rule.words} ({rule.source})" if rule is not None else ""
    yield "confirmed", note


def _may_be_refused(case: Case) -> bool:
    """Whether a call of a user's own port of a library raised: the ports of releases know what their libraries refuse."""
    failure = case.failure
    if failure is None or failure.call is None or not case.model or project_of(case.subject) is not None:
        return False
    outcome = case.actual[failure.call]
    return isinstance(outcome, Raised) and outcome.kind == "refusal"


def _lines_within(room: int, texts: Iterable[str]) -> Iterator[str]:
    """The texts, a line each, as long as there is room; a last line says that there are more."""
    for text in texts:
        if room <= 0:
            yield "…"
            return
        yield brief(text, room)
        room -= len(text)


def _laws(case: Case, outcomes: Sequence[Expected | Outcome]) -> Record | None:
    """The laws that a step reports, in an outcome of the call that failed; None where it reports none."""
    failure = case.failure
    if failure is None or failure.call is None or failure.call >= len(outcomes):
        return None
    outcome = outcomes[failure.call]
    step = outcome.value if isinstance(outcome, Returned) else None
    broken = dict(step.fields).get("broken") if isinstance(step, Record) else None
    return broken if isinstance(broken, Record) and broken.type in _LAWS else None


def _breach_of_law(case: Case) -> str:
    """What breaks the law that the failure is about, in the words of the step that reports it; "" where it is about none."""
    laws = _laws(case, case.actual)
    return str(dict(laws.fields).get(_law_name(case), "")) if laws is not None else ""


def _law_name(case: Case) -> str:
    return case.failure.part.rpartition(".")[2] if case.failure is not None else ""


def release_of(subject: Subject | None) -> str:
    """The subject's release, "" where it is not known."""
    return subject.release if subject is not None else ""


def titled(name: str, release: str) -> str:
    """The subject's name, with its release where it has one."""
    return f"{name} {release}".strip()


def should_hold(case: Case) -> str:
    """The statement that is false: the law that is broken, or the property's own; with the id to type for the property."""
    return f"{_law_of(case) or case.sentence} ({case.property_id})"


def _law_of(case: Case) -> str:
    """The broken law's sentence; "" where the failure is about none."""
    laws = _laws(case, case.expected)
    if laws is None or case.failure is None or case.failure.call is None:
        return ""
    if not isinstance(case.actual[case.failure.call], Returned):
        return _NO_FAILURE
    sentences = {law.name: str(law.metadata["sentence"]) for law in fields(_LAWS[laws.type])}
    return sentences.get(_law_name(case), "")


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
        entry
        for entry in _SERVED_TEXTS["functions"]
        if any(fnmatchcase(function, name) for name in entry["patterns"])
    )
    found = next(fitting, None)
    return str(found["sentence"]) if found else wrong_state if case.timeline is not None else ""


def _of_refusal(case: Case) -> str:
    """Whether a call raised and should return, or the other way round, or raised another error."""
    number = first_wrong_call(case)
    if number is None or not isinstance(case.expected[number], Refusal):
        return "raised"
    return "refused_otherwise" if isinstance(case.actual[number], Raised) else "not_refused"
