"""Written examples run once in an execution context, and a failing one is shown where no drawn example fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from statecheck.case.values import call
from statecheck.execution.example import Example, ExecutionContext, Falsified, Observer
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import Property
from tests.helpers.cases import a_property, toy

WRITTEN = ({"x": 1000}, {"x": -1000})


def with_written(body: Callable[..., None]) -> Property:
    return a_property(body, strategies={"x": st.integers(0, 9)}, written=WRITTEN)


def context(observer: Observer | None = None) -> ExecutionContext:
    subject = toy(cdiv=lambda x, y: -(-x // y))
    return ExecutionContext(subject, InProcess(subject, "cpu"), observer or Observer())


def test_written_examples_run_first_and_once() -> None:
    inputs, here = list[int](), context()
    recording = with_written(lambda trial, x: inputs.append(x))
    recording.explore(here, seed=1, max_examples=3, simplest=False)
    assert not {1000, -1000} & set(inputs)
    inputs.clear()
    recording.explore(here, seed=2, max_examples=3)
    assert inputs[:2] == [1000, -1000]
    recording.explore(here, seed=3, max_examples=3)
    assert len([x for x in inputs if abs(x) == 1000]) == 2


def test_after_a_written_example_that_fails_the_next_search_goes_on_with_the_next() -> None:
    def fails(trial: Example, x: int) -> None:
        trial.run(call("cdiv", x=x, y=1))
        trial.holds(abs(x) < 1000, f"x = {x}")

    here = context()
    for seen in ("x = 1000", "x = -1000"):
        with pytest.raises(Falsified, match=seen):
            with_written(fails).search(here)
    with_written(fails).search(here)


def test_a_drawn_example_that_fails_is_shown_in_place_of_a_written_one() -> None:
    def fails(trial: Example, x: int) -> None:
        trial.run(call("cdiv", x=x, y=1))
        trial.holds(x < 5, f"x = {x}")

    for search in ("explore", "search"):
        here = context()
        options = {"seed": 1, "max_examples": 50} if search == "explore" else {}
        with pytest.raises(Falsified, match="x = 5"):
            getattr(with_written(fails), search)(here, **options)


def test_a_written_example_that_the_property_does_not_want_is_discarded() -> None:
    here = context()
    with_written(lambda trial, x: assume(x < 1000)).search(here)
    assert here.counts.discarded == 1


def test_a_written_example_that_the_end_of_a_search_prevents_runs_in_the_next_search() -> None:
    class TimeIsUp(BaseException):
        pass

    class Ending(Observer):
        def example_begins(self) -> None:
            if here.counts.examples == 1:
                raise TimeIsUp

    inputs = list[Any]()
    recording = with_written(lambda trial, x: inputs.append(x))
    here = context(Ending())
    with pytest.raises(TimeIsUp):
        recording.explore(here, seed=1, max_examples=3)
    here.observer = Observer()
    recording.explore(here, seed=1, max_examples=3)
    assert inputs[:2] == [1000, -1000]
