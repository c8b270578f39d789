"""Global random generators in a search with a seed: each example begins with the same states, and the search leaves none behind."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from statecheck.execution.example import Example, ExecutionContext
from statecheck.execution.in_process import InProcess
from statecheck.execution.private.hypothesis import states_kept_once
from tests.helpers.cases import a_property, toy

# Where the variable CI is set, Hypothesis derandomizes every search that does not say otherwise.
_SEARCHED = settings(max_examples=20, database=None, deadline=None, derandomize=False)


def _numbers_drawn_by_examples() -> list[tuple[int, float, float]]:
    found = []

    @seed(3)
    @_SEARCHED
    @given(st.integers())
    def search(number: int) -> None:
        generator = np.random.RandomState(np.random.randint(1 << 30))  # noqa: NPY002 - the global one is meant
        found.append((number, random.random(), float(generator.normal())))

    search()
    return found


def test_examples_begin_with_the_states_that_hypothesis_gives_them() -> None:
    alone = _numbers_drawn_by_examples()
    with states_kept_once():
        together = _numbers_drawn_by_examples()
    assert together == alone
    assert len({drawn[1:] for drawn in together}) == 1


def test_states_are_afterwards_what_they_were_before_the_search() -> None:
    random.seed(11)
    np.random.seed(12)  # noqa: NPY002 - the global one is meant
    with states_kept_once():
        _numbers_drawn_by_examples()
    after = random.random(), np.random.random()  # noqa: NPY002 - the global one is meant
    random.seed(11)
    np.random.seed(12)  # noqa: NPY002 - the global one is meant
    assert after == (random.random(), np.random.random())  # noqa: NPY002 - the global one is meant


def test_a_search_without_a_seed_is_not_repeated() -> None:
    drawn = list[int]()

    def body(trial: Example, number: int) -> None:  # noqa: ARG001 - a body has both
        drawn.append(number)

    tested = a_property(body, strategies={"number": st.integers(0, 1 << 60)})
    subject = toy(cdiv=lambda x, y: -(-x // y))
    context = ExecutionContext(subject, InProcess(subject, "cpu"))
    tested.run(context, _SEARCHED)
    first = drawn.copy()
    drawn.clear()
    tested.run(context, _SEARCHED)
    assert drawn != first
