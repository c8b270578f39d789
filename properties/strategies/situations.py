"""Named situations of generated inputs, made visible through Hypothesis's events.

Every generated dataclass names the situations that it can be in; those that a rule tells apart are named, and decided, in
`properties.situations`. `noted` reports those that hold as events, so that
the statistics of a run show what was reached, and the tests of the strategies ask the same method how often.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Protocol, TypeVar

from hypothesis import currently_in_test_context, event

from statecheck.reference.situations import Situation


class Situated(Protocol):
    def situations(self) -> set[str]: ...


class NamedSituations(ABC):
    """A generated input that also knows the names of the situations that it is not in."""

    @abstractmethod
    def conditions(self) -> dict[str, bool]:
        """Every situation that such an input can be in, and whether this one is; the names are the same for all."""

    def situations(self) -> set[str]:
        return {name for name, holds in self.conditions().items() if holds}


def named(possible: Iterable[Situation], found: Iterable[AbstractSet[Situation]]) -> dict[str, bool]:
    """Conditions of an input: by name the situations of rules that it can be in, and whether one of its parts is."""
    there = set[Situation]().union(*found)
    return {one.name: one in there for one in possible}


T = TypeVar("T", bound=Situated)


def all_situations(value: NamedSituations) -> set[str]:
    """What `value` and every other input of its kind can be in."""
    return set(value.conditions())


def noted(value: T) -> T:
    """`value`, its situations reported as events of the running example."""
    if currently_in_test_context():
        for situation in sorted(value.situations()):
            event(f"{type(value).__name__}: {situation}")
    return value
