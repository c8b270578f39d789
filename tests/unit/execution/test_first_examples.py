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
    reason="earlier versions of Hypothesis draw bytes, of which statecheck knows no simplest rest",
)
@pytest.mark.parametrize("max_examples", [FIRST_EXAMPLES, 100])
def test_the_first_example_alone_is_a_simple_one(max_examples: int) -> None:
    for first, *others in (examples(seed, max_examples) for seed in range(5)):
        assert nonzero(first) == 0
        assert min(map(nonzero, others)) > 10


def test_no_example_is_made_from_parts_of_the_one_before() -> None:
    shared = [sum(map(eq, *pair)) for pair in pairwise(examples(1, 100))]
    assert len(shared) >= 90
    assert max(shared) < 10
