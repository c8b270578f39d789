"""What a strategy shrinks to."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


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
