"""Which declared defect a case shows, and what becomes of a case whose condition raises."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.profile import DOCUMENTS
from statecheck.campaign.corpus import Corpus, replayed
from statecheck.campaign.known_defects import KnownDefects
from statecheck.case import Case, Failure
from statecheck.case.values import Returned, call
from statecheck.diagnose.replay import FAILED, replay_case
from statecheck.execution.example import Example, ExecutionContext, Falsified
from statecheck.execution.executors.in_process import InProcess
from statecheck.subject import KnownDefectIndex
from statecheck.subject.deviation import Condition, any_matches
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
    return KnownDeviation("toys_divide", "bug", SYMPTOM, condition, id=fields.pop("id", "x"), **fields)


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
    assert list(subject.defect_index.errors.values()) == [message]
    answer = replay_case(saved[0], subject, "cpu")
    assert (answer.verdict, message in answer.message) == (FAILED, True)
    corpus = Corpus(tmp_path)
    corpus.add(saved[0], first_seen={})
    (entry,) = corpus.entries()
    assert replayed(entry, subject, "cpu")[0].verdict == FAILED
    defects = KnownDefects([declared(condition)])
    assert (defects.matcher.name_of(saved[0]), defects.matcher.errors) == (None, (message,))


def test_a_case_may_show_another_defect_than_the_one_whose_condition_raises() -> None:
    raising, sound = declared(CONDITIONS["key"][0]), declared(lambda case: True, id="sound")
    index = KnownDefectIndex((raising, sound), DOCUMENTS)
    assert (index.find(CASE), list(index.errors)) == (sound, ["x"])


@pytest.mark.usefixtures("default_signals")
def test_an_interrupted_condition_ends_the_run() -> None:
    def interrupted(_: Case) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        KnownDefectIndex((declared(interrupted),), DOCUMENTS).find(CASE)


class _Counted(KnownDeviation):
    asked = 0

    def fitting(self, case: Case) -> tuple[Symptom, ...]:
        _Counted.asked += 1
        return super().fitting(case)


def test_ten_thousand_declarations_are_compared_once_with_failures_of_the_same_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a pattern is compiled")

    many = tuple(
        _Counted(
            (f"toys_{n}*", f"other_{n}*"), "bug", Symptom("value", f"f{n}_*", f"result.{n}_*"), id=f"{n}"
        )
        for n in range(10_000)
    )
    index = KnownDefectIndex((*many, declared(lambda case: True)), DOCUMENTS)
    _Counted.asked = 0
    monkeypatch.setattr("re.compile", refused)
    for x in range(2, 302):
        found = index.find(replace(CASE, steps=(call("cdiv", x=x, y=2),)))
        assert found is not None
        assert found.id == "x"
    assert _Counted.asked == len(many)


def test_defects_of_one_id_have_names_that_differ() -> None:
    defects = KnownDefects([declared(lambda case: True)] * 3 + [declared(lambda case: True, id="x-2")] * 2)
    assert len(defects.all) == 5


@given(st.text("ab*", max_size=6), st.text("ab", max_size=6))
def test_a_star_stands_for_any_characters(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None
    assert any_matches(pattern, name) is expected
    assert any_matches(("other", pattern), name) is expected


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
    known = KnownDeviation("toys_divide", "bug", slip, id="x")
    message = f"Known defect x is declared for {field}, and differs in nothing else." if field else ""
    index = KnownDefectIndex((known,), DOCUMENTS)
    assert index.nearest(CASE) == message
    answer = replay_case(CASE, toy(known, cdiv=lambda x, y: x // y), "cpu")
    assert message in answer.message


def test_a_declared_defect_of_another_property_is_not_named() -> None:
    known = KnownDeviation("others_divide", "bug", Symptom("value", "cdiv", "resutl"), id="x")
    assert KnownDefectIndex((known,), DOCUMENTS).nearest(CASE) == ""


@pytest.mark.parametrize(("holds", "names_it"), [(True, True), (False, False)])
def test_a_declared_defect_of_other_inputs_is_not_named(holds: bool, names_it: bool) -> None:
    condition = Condition(inputs=lambda case, profile: holds)
    slip = Symptom("value", "cdiv", "resutl", condition=condition)
    known = KnownDeviation("toys_divide", "bug", slip, id="x")
    assert bool(KnownDefectIndex((known,), DOCUMENTS).nearest(CASE)) is names_it
