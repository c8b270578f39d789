"""Which declared defect a case shows, and what becomes of a case whose condition raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from properties.strategies.recurrences import Batch, Row, Sizes
from statecheck.campaign.corpus import Corpus, replayed
from statecheck.campaign.state import KnownDefects
from statecheck.case import Case, Failure
from statecheck.case.values import Returned, call
from statecheck.diagnose.replay import FAILED, replay_case
from statecheck.execution.example import Example, ExampleEnded, ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from statecheck.subject import KnownDefectMatcher, Subject
from statecheck.subject.known import Condition
from statecheck.subject.profile import DOCUMENTS
from subjects import KnownDeviation, Symptom
from tests.helpers.cases import a_case, a_property, toy
from tests.helpers.observers import FailureLog

SYMPTOM = Symptom("value", "cdiv", "result")
FAILURE = Failure("value", "result = 2", "should be 3", "cdiv", 0, "result")
STEPS = (call("cdiv", x=5, y=2),)
CASE = a_case(steps=STEPS, expected=(Returned(3),), actual=(Returned(2),), failure=FAILURE)


class _HasNoTruth:
    def __bool__(self) -> bool:
        raise TypeError("neither true nor false")


def _exits(_: Case) -> bool:
    raise SystemExit(0)


CONDITIONS: dict[str, tuple[Callable[[Case], Any], str]] = {
    "key": (lambda case: case.calls[0].named["z"] == 1, "KeyError: 'z'"),
    "exit": (_exits, "SystemExit: 0"),
    "truth": (lambda case: _HasNoTruth(), "TypeError: neither true nor false"),
}


def declared(condition: Callable[[Case], Any], **fields: Any) -> KnownDeviation:
    shown = replace(SYMPTOM, condition=Condition(lambda case, _: condition(case)))
    return KnownDeviation("toys/divide", "bug", shown, id=fields.pop("id", "x"), **fields)


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_case_is_new_and_saved_where_a_condition_raises(name: str, tmp_path: Path) -> None:
    condition, raised = CONDITIONS[name]
    message = f"a condition of known defect x raised {raised}: the case counts as new"
    subject = toy(declared(condition), cdiv=lambda x, y: x // y)
    log = FailureLog()
    context = ExecutionContext(subject, InProcess(subject, "cpu"), log)
    with pytest.raises(Falsified) as caught:
        Example(context, a_property(lambda trial: None)).agrees(*STEPS)
    saved = log.cases
    assert saved == [caught.value.case]
    assert subject.known_defects.errors == (message,)
    answer = replay_case(saved[0], subject, "cpu")
    assert (answer.verdict, message in answer.message) == (FAILED, True)
    corpus = Corpus(tmp_path)
    corpus.add(saved[0], first_seen={})
    (entry,) = corpus.entries()
    assert replayed(entry, subject, "cpu")[0].verdict == FAILED
    defects = KnownDefects([declared(condition)])
    assert (defects.matcher.find(saved[0]), defects.matcher.errors) == (None, (message,))


def test_a_case_may_show_another_defect_than_the_one_whose_condition_raises() -> None:
    raising, sound = declared(CONDITIONS["key"][0]), declared(lambda case: True, id="sound")
    index = KnownDefectMatcher((raising, sound), DOCUMENTS)
    assert (index.find(CASE), len(index.errors)) == (sound, 1)


@pytest.mark.usefixtures("default_signals")
def test_an_interrupted_condition_ends_the_run() -> None:
    def interrupted(_: Case) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        KnownDefectMatcher((declared(interrupted),), DOCUMENTS).find(CASE)


def test_two_defects_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="declared defects = 'x', but should be there once"):
        KnownDefectMatcher((declared(lambda case: True), declared(lambda case: True)), DOCUMENTS)


@pytest.mark.parametrize(
    ("field", "value"),
    [("function", "cd*"), ("place", "*sult"), ("exception", ("KeyError", "*Error")), ("function", "")],
)
def test_a_function_a_place_and_an_exception_are_names_and_no_patterns(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field} = .*, but should be a name"):
        replace(SYMPTOM, **{field: value})


@pytest.mark.parametrize(
    ("slip", "field"),
    [
        (Symptom("value", "cdiv", "resutl"), "place = 'resutl'. This failure has place = 'result'"),
        (Symptom("refusal", "cdiv", "result"), "kind = 'refusal'. This failure has kind = 'value'"),
        (Symptom("value", "cdiw", "result"), "function = 'cdiw'. This failure has function = 'cdiv'"),
        (
            Symptom("value", "cdiv", "result", exception="KeyError"),
            "exception = 'KeyError'. This failure has exception = ''",
        ),
        (Symptom("refusal", "cdiv", "resutl"), ""),
        (SYMPTOM, ""),
    ],
)
def test_a_new_failure_names_the_declared_defect_that_one_field_keeps_from_matching(
    slip: Symptom, field: str
) -> None:
    known = KnownDeviation("toys/divide", "bug", slip, id="x")
    message = f"Known defect x is declared for {field}, and differs in nothing else." if field else ""
    index = KnownDefectMatcher((known,), DOCUMENTS)
    assert index.nearest(CASE) == message
    answer = replay_case(CASE, toy(known, cdiv=lambda x, y: x // y), "cpu")
    assert message in answer.message


@pytest.mark.parametrize(
    ("name", "holds"), [("toys/divide", True), ("toys/divide", False), ("others_divide", True)]
)
def test_a_declared_defect_of_another_property_or_of_other_inputs_is_not_named(
    name: str, holds: bool
) -> None:
    slip = Symptom("value", "cdiv", "resutl", condition=Condition(inputs=lambda case, profile: holds))
    index = KnownDefectMatcher((KnownDeviation(name, "bug", slip, id="x"),), DOCUMENTS)
    assert bool(index.nearest(CASE)) is (name == "toys/divide" and holds)


def decode(known: KnownDeviation, function: Any) -> tuple[Subject, Callable[[], Any]]:
    """A subject with this declared defect and this decode of linear attention, and what holds the decode against the rules."""
    subject = toy(known, Recurrences=SimpleNamespace(linear_recurrent=function))
    example = Example(ExecutionContext(subject, InProcess(subject, "cpu"), FailureLog()), a_property())
    batch = Batch("linear_recurrent", Sizes(1, 1, 2, 2), (Row(0, 0, 1, (0,)),), 1)
    return subject, lambda: example.agrees(*batch.steps())


def test_a_declared_defect_of_a_result_does_not_hide_a_wrong_state() -> None:
    shown = Symptom("value", "Recurrences.linear_recurrent", "result")
    known = KnownDeviation("toys/divide", "bug", shown, id="x")
    subject, run = decode(known, lambda q, k, v, *_: torch.full_like(v, 9.0))
    with pytest.raises(Falsified, match=r"states0\[") as caught:
        run()
    assert "states0[" in replay_case(caught.value.case, subject, "cpu").message


def test_what_a_call_that_raises_leaves_is_no_failure_beside_the_exception() -> None:
    shown = Symptom("refusal", "Recurrences.linear_recurrent", "the call", exception="TypeError")
    _, run = decode(KnownDeviation("toys/divide", "bug", shown, id="x"), lambda: None)
    with pytest.raises(ExampleEnded):
        run()
