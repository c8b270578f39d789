"""The values that a strategy draws, and the value that it shrinks to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def drawn(strategy: SearchStrategy[Any], runs: Iterable[int] = range(5)) -> tuple[Any, ...]:
    """Runs of 100 examples, as a property makes them; the seeds make them the same every time."""
    found: list[Any] = []
    for run in runs:

        @seed(run)
        @settings(
            max_examples=100,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def collect(value: object) -> None:
            found.append(value)

        collect()
    return tuple(found)


def minimal(
    strategy: SearchStrategy[T], condition: Callable[[T], bool] = lambda value: True, start: int = 0
) -> T:
    """The value that Hypothesis ends with under `condition`; another `start` draws others to begin with."""
    quiet = settings(
        max_examples=2000,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    return find(strategy, condition, settings=quiet, random=Random(start))
