"""The statement that a failing case shows to be false: the law that is broken, or the sentence of the property that met it.

Several properties about whole engines and libraries check the same laws, each on inputs of its own. What the property is named for, such as a
reordering, need not be in the input that was found.
"""

from __future__ import annotations

from dataclasses import fields

from oracle.lifecycle.broken_laws import BrokenLaws
from oracle.sequences import SequenceLaws
from statecheck.case import Case
from statecheck.case.values import Record, Returned

_LAWS = {laws.__name__: laws for laws in (BrokenLaws, SequenceLaws)}
_NO_FAILURE = "No call fails that an engine or a library offers: none raises an error, ends the process, or takes too long."


def should_hold(case: Case) -> str:
    """The statement, and the id to type for the property."""
    sentence = law_of(case) or case.sentence
    return f"{sentence} ({case.property_id})" if case.property_id else sentence


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
