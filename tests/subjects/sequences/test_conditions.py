"""Conditions of known defects: which histories of sequences they hold of, and which names they know."""

from __future__ import annotations

from typing import Any

import pytest

from oracle.profile import DOCUMENTS
from statecheck.case import Case
from statecheck.case.values import Call, Name, Returned, call, record
from subjects.sequences.conditions import CONDITIONS

Operation = tuple[str, dict[str, Any]]


def extend(*rows: tuple[int, int]) -> Operation:
    """Rows of a sequence's number and its number of tokens."""
    return "extend", {
        "context": 0,
        "rows": [(number, (1,) * tokens) for number, tokens in rows],
        "features": {},
    }


def named(name: str, /, **arguments: Any) -> Operation:
    return name, {"context": 0, **arguments}


def holds(condition: str, *operations: Operation, refused: int | None = None, **features: Any) -> bool:
    first: Call = call("Sequences", model="lfm2", seed=0, features=features, bind="library")
    calls = [call(f"Sequences.{name}", self=Name("library"), **arguments) for name, arguments in operations]
    outcomes = [Returned(record("SequenceStep", happened=number != refused)) for number in range(len(calls))]
    actual = (Returned(record("Sequences")), *outcomes)
    case = Case("p", "", "s", (first, *calls), (), actual, None)
    return CONDITIONS[condition](case, DOCUMENTS)


ROLL_BACK, FORK = named("roll_back", sequence=0, n=1), named("fork", source=0, target=1)
SAVE, LOAD = named("save", sequence=1, name="a"), named("load", sequence=2, name="a")
HISTORIES: dict[str, tuple[tuple[tuple[Operation, ...], bool], ...]] = {
    "long-rollback": (
        ((extend((0, 3)), ROLL_BACK), False),
        ((extend((0, 2)), ROLL_BACK, ROLL_BACK), True),
        ((extend((0, 3)), extend((0, 1)), ROLL_BACK), True),
        (
            (
                extend((0, 3)),
                named("save", sequence=0, name="a"),
                named("load", sequence=0, name="a"),
                ROLL_BACK,
            ),
            True,
        ),
    ),
    "fork-after-rollback": (
        ((extend((0, 3)), ROLL_BACK, FORK), True),
        ((extend((0, 3)), ROLL_BACK, extend((0, 1)), FORK), False),
    ),
    "rows-of-several-tokens": (
        ((extend((0, 2), (1, 2)),), True),
        ((extend((0, 1), (1, 1)),), False),
        ((extend((0, 1), (1, 5), (2, 5)),), True),
        ((extend((0, 80)),), False),
    ),
    "several-rows": (((extend((0, 1), (3, 1)),), True), ((extend((0, 1)),), False)),
    "load-of-a-new-fork": (
        ((extend((0, 3)), FORK, SAVE, LOAD), True),
        ((extend((0, 3)), FORK, extend((0, 1)), SAVE, LOAD), False),
        ((extend((0, 3)), FORK, SAVE), False),
    ),
}


@pytest.mark.parametrize(
    ("name", "operations", "expected"),
    [(name, *row) for name, rows in HISTORIES.items() for row in rows],
)
def test_a_history_is_told_from_others_like_it(
    name: str, operations: tuple[Operation, ...], expected: bool
) -> None:
    assert holds(f"history:{name}", *operations) is expected


def test_what_was_refused_is_no_part_of_a_history() -> None:
    assert holds("history:long-rollback", extend((0, 1)), ROLL_BACK)
    assert not holds("history:long-rollback", extend((0, 1)), ROLL_BACK, refused=1)


def test_features_are_those_of_the_context_with_one_of_the_values() -> None:
    assert holds("features:snapshots,micro_batch=1|2", extend((0, 1)), snapshots=4, micro_batch=2)
    assert not holds("features:snapshots,micro_batch=1|2", extend((0, 1)), snapshots=4, micro_batch=7)
    assert not holds("features:snapshots", extend((0, 1)), micro_batch=7)


@pytest.mark.parametrize("name", ["", "model:a", "models:", "history:nothing", "models:a history:nothing"])
def test_other_names_are_no_conditions(name: str) -> None:
    assert name not in CONDITIONS
