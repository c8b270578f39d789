"""A failure names the call that it comes from, by the name that the port's author gave it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from examples import numpy_port
from properties.strategies.chunks import Packed
from statecheck.case import Case
from statecheck.case.bucket import cause_of
from statecheck.case.values import call, int32
from statecheck.diagnose.attribution import with_own_calls
from statecheck.diagnose.replay import replay
from statecheck.execution.example import Example, ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.report.failure import failure_entry
from statecheck.report.render import report_text
from subjects import Subject
from subjects.plain import adapted
from tests.helpers.cases import a_property, subject_of

PACKED = Packed((5, 3), 2)


def port_with(**functions: Any) -> Subject:
    port = ModuleType("toy_port")
    vars(port).update(vars(numpy_port) | functions)
    return adapted(port)


def falsified(subject: Subject, body: Any, **drawn: Any) -> Case:
    context = ExecutionContext(subject, InProcess(subject, "cpu"))
    with pytest.raises(Falsified) as error:
        a_property(body).example(context, **drawn)
    return error.value.case


def one_chunk_late(cu_seqlens: Any, chunk_size: int) -> Any:
    return [(sequence, chunk + 1) for sequence, chunk in numpy_port.chunk_indices(cu_seqlens, chunk_size)]


def without_the_last(cu_seqlens: Any, chunk_size: int) -> Any:
    return list(numpy_port.chunk_offsets(cu_seqlens, chunk_size))[:-1]


@pytest.mark.parametrize(
    ("function", "wrong"), [("chunk_indices", one_chunk_late), ("chunk_offsets", without_the_last)]
)
def test_a_condition_on_two_calls_shows_the_one_that_is_wrong(function: str, wrong: Any) -> None:
    load_properties()
    subject = port_with(**{function: wrong})
    case = falsified(subject, load_properties()["fla-chunks/partition"].body, packed=PACKED)
    assert case.failure is not None
    for shown in (case, with_own_calls(case, subject)):
        assert f"[{function}(cu_seqlens=" in shown.message
        assert "prepare_" not in shown.message
        rows = dict(failure_entry(shown).rows)
        assert rows["expected"] != rows["actual"]
        assert rows["call"].startswith(f"{function}(")
        assert cause_of(shown).own == function


def test_a_condition_on_right_outcomes_shows_all_calls_and_no_difference() -> None:
    def body(trial: Example) -> None:
        for starts in ([0, 5], [0, 9]):
            trial.returns(call("prepare_chunk_offsets", cu_seqlens=int32(starts), chunk_size=4))
        trial.holds(False, "the two results differ", "should be the same", place="result")

    subject = port_with()
    case = with_own_calls(falsified(subject, body), subject)
    shown = "chunk_offsets(cu_seqlens=[0, 5], chunk_size=4); chunk_offsets(cu_seqlens=[0, 9], chunk_size=4)"
    assert case.message == f"the two results differ, but should be the same [{shown}]"
    assert not {"expected", "actual"} & dict(failure_entry(case).rows).keys()
    text = report_text(case, subject_of(case))
    assert "## Calls, each of which is right alone" in text
    assert "difference" not in text
    assert "\nexpected " not in text
    assert Case.from_json(case.to_json()) == case


def test_values_that_differ_fail_with_their_place_and_both_values() -> None:
    def body(trial: Example) -> None:
        ends = trial.returns(call("prepare_chunk_offsets", cu_seqlens=int32([0, 5]), chunk_size=4)).values()
        trial.equals("chunk_offsets", ends, (0, 2))
        trial.equals("chunk_offsets", ends, (0, 3))

    failure = falsified(port_with(), body).failure
    assert failure is not None
    assert (failure.place, failure.observed) == ("chunk_offsets", "chunk_offsets = (0, 2)")
    assert failure.expected == "should be (0, 3)"


def test_a_replayed_failure_has_the_ports_own_name() -> None:
    subject = port_with(chunk_offsets=without_the_last)

    def agrees(trial: Example) -> None:
        trial.agrees(call("prepare_chunk_offsets", cu_seqlens=int32([0, 5]), chunk_size=4))

    case = falsified(subject, agrees)
    again = replay(case, InProcess(subject, "cpu"), subject)
    assert again is not None
    assert again.message == case.message
    assert "[chunk_offsets(" in case.message
