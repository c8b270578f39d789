"""Subjects, what they declare, and what trials make of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecheck.case import Case
from statecheck.case.findings import Access, RaceBetweenPrograms
from statecheck.case.values import Let, Name, Overwrite, call, int32
from statecheck.execution.example import Example, ExampleEnded, ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from subjects import Condition, KnownDeviation, Symptom, load
from tests.helpers.cases import a_property, toy
from tests.helpers.modules import module


def test_any_importable_module_is_a_subject_of_its_own_name(tmp_path: Path) -> None:
    with module(tmp_path, "toy_module", "def divide(x, y): ...\n") as name:
        subject = load(name)
    assert (subject.name, subject.has("divide"), subject.has("cdiv")) == ("toy_module", True, False)


def test_a_module_may_offer_a_subject_of_its_own(tmp_path: Path) -> None:
    source = """
import sys
from subjects import KnownDeviation, Subject, Symptom
WRONG = Symptom("value", "divide", "result")
SUBJECT = Subject(__name__, sys.modules[__name__], (KnownDeviation("toys/divide", "bug 1", WRONG),))
"""
    with module(tmp_path, "toy_declaring", source) as name:
        assert [known.link for known in load(name).known_deviations] == ["bug 1"]


@pytest.mark.parametrize("name", ["no_such_module", "properties.no_such", "", ".", "./a.py", "a-b", "a..b"])
def test_a_module_that_cannot_be_imported_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^subject = {re.escape(repr(name))}, but should be impl, vllm, sglang, .* or an"
    ):
        load(name)


def test_a_subject_whose_own_imports_fail_is_refused_with_the_reason(tmp_path: Path) -> None:
    with (
        module(tmp_path, "toy_unimportable", "from os import no_such_name\n") as name,
        pytest.raises(ValueError, match="no_such_name"),
    ):
        load(name)


@pytest.mark.parametrize("name", ["function", "inner.Class", "missing"])
def test_a_record_calls_nothing_but_a_class_of_the_subject(name: str) -> None:
    called: list[str] = []
    inner = toy(Class=type("Class", (), {"__init__": lambda self: called.append("class")})).module
    subject = toy(function=lambda: called.append("function"), inner=inner)
    subject.construct(name, {})
    assert called == []


DIVIDE = call("divide", x=6, y=2)


def context_of(*deviations: KnownDeviation, **names: Any) -> ExecutionContext:
    subject = toy(*deviations, **names)
    return ExecutionContext(subject, InProcess(subject, "cpu"), seed=5)


def trial_of(*deviations: KnownDeviation, **names: Any) -> Example:
    return context_of(*deviations, **names).begin(a_property())


def right(x: int, y: int) -> int:
    return x // y


def wrong(x: int, y: int) -> int:
    return x // y + 1


def test_a_wrong_answer_falsifies_the_property_and_the_error_carries_the_case() -> None:
    with pytest.raises(Falsified, match=r"^result = 4, but should be 3 \[divide\(x=6, y=2\)\]$") as caught:
        trial_of(divide=wrong).agrees(DIVIDE)
    case = caught.value.case
    assert (case.property_id, case.subject, case.seed) == ("toys/divide", "toy", 5)
    assert case.steps == (DIVIDE,)
    assert Case.from_json(case.to_json()) == case


def test_the_message_spells_the_call_that_went_wrong_not_the_last_one() -> None:
    with pytest.raises(Falsified, match=r"\[divide\(x=6, y=2\)\]$"):
        trial_of(divide=lambda x, y: 4 if x == 6 else 5).agrees(DIVIDE, call("divide", x=5, y=1))


def test_the_message_spells_the_values_at_the_time_of_the_call() -> None:
    step = call("cdiv", x=Name("a"), y=2)
    with pytest.raises(Falsified, match=r"\[cdiv\(x=int32\[1\], y=2\)\]$"):
        trial_of(cdiv=lambda x, y: None).agrees(Let("a", int32([1])), step, Overwrite("a", (9,)), step)


def test_the_expected_outcome_follows_what_was_overwritten() -> None:
    step = call("cdiv", x=Name("a"), y=2)
    trial = trial_of(cdiv=lambda x, y: (x + 1) // y)
    trial.agrees(Let("a", int32([1])), step, Overwrite("a", (9,)), step)


def test_a_call_that_should_return_and_raises_falsifies_the_property() -> None:
    with pytest.raises(Falsified, match="ZeroDivisionError"):
        trial_of(divide=lambda x, y: 1 // 0).returns(DIVIDE)


def test_a_failure_behind_a_finding_is_where_the_finding_was() -> None:
    def racing(*_: int, **__: int) -> int:
        stored = Access("store", (0, 0, 0), "kernel", "pool0", (3,), 0, 4, "kernels.py:8", "kernels.py:8", 1)
        raise RaceBetweenPrograms("programs race", stored)

    trial = trial_of(divide=racing, cdiv=lambda x, y: 1)
    trial.run(DIVIDE, call("cdiv", x=1, y=1))
    with pytest.raises(Falsified) as caught:
        trial.holds(False, "zeros", "should be the state of 3 tokens", place="read")
    failure = caught.value.case.failure
    assert failure is not None
    assert (failure.kind, failure.function, failure.part) == ("race", "divide", "pool")


def test_an_input_that_the_rules_accept_is_no_input_of_a_refusal() -> None:
    with pytest.raises(AssertionError, match="the rules accept"):
        trial_of(divide=right).refuses(DIVIDE)


WRONG = Symptom("value", "divide", "result")
RAISES = Symptom("refusal", "divide", "the call", "RuntimeError")
STATED = Symptom("value", "divide", "what is returned")


def declared(condition: Callable[[Case], bool] = lambda case: True) -> KnownDeviation:
    holds = Condition(lambda case, _: condition(case))
    shown = tuple(replace(symptom, condition=holds) for symptom in (WRONG, RAISES, STATED))
    return KnownDeviation("toys/divide", "https://example.org/1", shown)


@pytest.mark.parametrize(
    "body",
    [
        lambda trial: trial.agrees(DIVIDE),
        lambda trial: trial.returns(DIVIDE),
        lambda trial: trial.holds(trial.run(DIVIDE) is None, "none", place="what is returned"),
    ],
    ids=["agrees", "returns", "holds"],
)
def test_a_declared_failure_ends_the_example_and_is_noted(body: Callable[[Example], None]) -> None:
    def raising(x: int, y: int) -> int:
        raise RuntimeError(x, y)

    known = declared()
    context = context_of(known, divide=raising)
    a_property(body).example(context)
    assert context.known_failures == {known: 1}


@pytest.mark.parametrize(("x", "expected"), [(6, ExampleEnded), (8, Falsified)])
def test_a_declaration_with_a_condition_covers_the_cases_that_meet_it(
    x: int, expected: type[Exception]
) -> None:
    trial = trial_of(declared(lambda case: case.calls[0].named["x"] == 6), divide=wrong)
    with pytest.raises(expected):
        trial.agrees(call("divide", x=x, y=2))


@pytest.mark.parametrize(
    ("functions", "device", "reason"),
    [
        (("divide",), None, None),
        (("divide",), "cpu", None),
        (("divide", "cdiv", "Spec.size"), None, "toy has no cdiv, Spec.size"),
        (("divide",), "cuda", "needs cuda, runs on cpu"),
    ],
)
def test_a_property_that_does_not_apply_says_why(
    functions: tuple[str, ...], device: str | None, reason: str | None
) -> None:
    tested = a_property(functions=functions, device=device)
    assert tested.not_applicable(context_of(divide=right)) == reason


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--subject", "no_such_module"), "subject = 'no_such_module', but should be"),
        (("--device", "gpu"), "device = 'gpu', but should be auto, cpu or cuda"),
    ],
)
def test_a_pytest_session_with_an_option_that_means_nothing_is_a_usage_error(
    options: tuple[str, str], complaint: str, device: str
) -> None:
    # In this process: a session of its own costs seconds, and the hook is the whole of the matter.
    from statecheck.suite import options as pytest_options

    class Stub:
        stash = pytest.Stash()

        @staticmethod
        def getoption(name: str) -> str | None:
            return dict([("--subject", "impl"), ("--device", device), options]).get(name, None)

    with pytest.raises(pytest.UsageError, match=complaint):
        pytest_options.pytest_configure(Stub())  # type: ignore[arg-type]
