"""Rules that are watched: who watches them sees what they are asked and what they answer, and changes nothing."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from oracle.rules import Refused, require, rule
from statecheck.reference.situations import unwatched, watches, watches_change


def halves() -> Any:
    """A rule of its own for each test, as watchers stay."""

    @rule
    def half(number: int, *, rest: int = 0) -> int:
        """Half of a number."""
        require(number % 2 == rest, "number", number, "be even")
        return number // 2

    return half


def test_a_watcher_sees_the_answer_and_the_arguments_that_it_names() -> None:
    half, seen = halves(), list[tuple[int, ...]]()

    @watches(half)
    def _all(answer: int, number: int, rest: int) -> None:
        seen.append((answer, number, rest))

    @watches(half)
    def _some(answer: int) -> None:
        seen.append((answer,))

    assert (half(6), half(number=5, rest=1)) == (3, 2)
    assert seen == [(3, 6, 0), (3,), (2, 5, 1), (2,)]


def test_watchers_are_not_called_while_rules_are_unwatched() -> None:
    half, seen = halves(), list[int]()
    watches(half)(seen.append)

    @watches_change(half)
    def _changed(number: int) -> Generator[None, Any, None]:
        seen.append(number)
        yield

    with unwatched():
        assert half(6) == 3
    assert seen == []
    half(8)
    assert seen == [8, 4]


def test_a_refused_input_of_a_rule_has_no_answer_to_see() -> None:
    half, seen = halves(), list[int]()
    watches(half)(seen.append)
    with pytest.raises(Refused, match="number = 5"):
        half(5)
    assert seen == []


def test_a_watcher_that_names_no_argument_of_the_rule_is_refused() -> None:
    def _other(_: int, numbers: int) -> None:
        """A rule with the name in the plural."""

    with pytest.raises(
        ValueError, match=r"_other asks for 'numbers', but should for some of \['number', 'rest'\]"
    ):
        watches(halves())(_other)


def test_a_watched_rule_is_still_named_and_documented() -> None:
    half = halves()
    assert (half.__name__, half.__doc__, half.__module__) == ("half", "Half of a number.", __name__)


def test_a_change_is_seen_from_before_it_to_after_it() -> None:
    class Sum:
        """Numbers that are added up."""

        def __init__(self) -> None:
            self.total = 0

        @rule
        def add(self, number: int) -> int:
            self.total += number
            return self.total

    seen = list[tuple[int, int, int]]()

    @watches_change(Sum.add)
    def _added(owner: Sum, number: int) -> Generator[None, int, None]:
        before = owner.total
        answer = yield
        seen.append((before, number, answer))

    counted = Sum()
    assert (counted.add(2), counted.add(3)) == (2, 5)
    assert seen == [(0, 2, 2), (2, 3, 5)]
