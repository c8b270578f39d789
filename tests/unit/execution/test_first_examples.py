"""Which examples an exploration draws."""

from __future__ import annotations

from itertools import pairwise
from operator import eq

import hypothesis
import pytest
from hypothesis import strategies as st

from statecheck.campaign.scheduler import FIRST_EXAMPLES
from statecheck.execution import profiles
from statecheck.execution.example import Example, ExecutionContext
from statecheck.execution.in_process import InProcess
from tests.helpers.cases import a_property, toy

_NUMBERS = st.tuples(*[st.integers(0, 1000)] * 20)


def examples(seed: int, max_examples: int) -> list[tuple[int, ...]]:
    """The 20 numbers of each example of an exploration."""
    found = list[tuple[int, ...]]()

    def body(trial: Example, numbers: tuple[int, ...]) -> None:  # noqa: ARG001 - a body has both
        found.append(numbers)

    profiles.register()
    subject = toy(cdiv=lambda x, y: -(-x // y))
    tested = a_property(body, strategies={"numbers": _NUMBERS})
    tested.explore(ExecutionContext(subject, InProcess(subject, "cpu")), seed=seed, max_examples=max_examples)
    return found


def nonzero(numbers: tuple[int, ...]) -> int:
    return sum(number != 0 for number in numbers)


@pytest.mark.skipif(
    hypothesis.__version_info__ < (6, 120),
    reason="earlier versions of Hypothesis begin with ten simple examples, however few are asked for",
)
def test_the_second_example_of_the_first_pass_is_no_simple_one() -> None:
    drawn = [examples(seed, FIRST_EXAMPLES) for seed in range(5)]
    assert [nonzero(example[0]) for example in drawn] == [0] * 5
    assert min(nonzero(example[1]) for example in drawn) > 10
    # What the number of examples of the first pass is chosen by.
    assert max(nonzero(examples(seed, 10)[1]) for seed in range(5)) < 5


def test_no_example_is_made_from_parts_of_the_one_before() -> None:
    # The first tenth is simple, and much the same.
    shared = [sum(map(eq, *pair)) for pair in pairwise(examples(1, 100)[20:])]
    assert len(shared) >= 70
    assert max(shared) < 10
