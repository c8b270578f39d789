"""Conditions of known defects: which histories of sequences they hold of, and which names they know."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from statecheck.case import Case
from statecheck.case.values import Call, Name, Returned, call, record
from statecheck.subject.profile import DOCUMENTS
from subjects.sequences.conditions import CONDITIONS, DROPPED, RESET, UNCROPPABLE

Operation = tuple[str, dict[str, Any]]


def extend(*rows: tuple[int, int], **features: Any) -> Operation:
    """Rows of a sequence's number and its number of tokens."""
    return "extend", {
        "context": 0,
        "rows": [(number, (1,) * tokens) for number, tokens in rows],
        "features": features,
    }


def shared(tokens: int, *sequences: int) -> Operation:
    """Tokens that all sequences have."""
    return extend(*((number, tokens) for number in sequences), shared_tokens=True)


def named(name: str, /, **arguments: Any) -> Operation:
    return name, {"context": 0, **arguments}


def holds(condition: str, *operations: Operation, refused: int | None = None, **features: Any) -> bool:
    first: Call = call("Sequences", model="lfm2", seed=0, features=features, bind="library")
    calls = [call(f"Sequences.{name}", self=Name("library"), **arguments) for name, arguments in operations]
    counts, outcomes = Counter[int](), []
    for number, (name, arguments) in enumerate(operations):
        if name == "extend":
            counts.update({sequence: len(tokens) for sequence, tokens in arguments["rows"]})
        lengths = tuple((0, *item) for item in counts.items())
        happened = number != refused and name != "load_damaged"
        outcomes.append(Returned(record("SequenceStep", happened=happened, lengths=lengths)))
    actual = (Returned(record("Sequences")), *outcomes)
    case = Case("p", "", "s", (first, *calls), (), actual, None)
    return CONDITIONS[condition](case, DOCUMENTS)


def beside(**features: Any) -> Operation:
    """The batch generator, with other prompts as the features say."""
    return named("generate", sequence=0, n=1, features={"engine": "BatchGenerator", **features})


def twice(history: str = "continued, whole prompt", mode: str = "lookup") -> Operation:
    """Candidates behind a cache, with the whole prompt unless the history is another one."""
    return named("generate", sequence=0, n=3, features={"history": history, "mode": mode})


ROLL_BACK, FORK = named("roll_back", sequence=0, n=1), named("fork", source=0, target=1)
SAVE_FIRST, SAVE = (named("save", sequence=number, name="a") for number in range(2))
LOAD_FIRST, LOAD_SECOND, LOAD = (named("load", sequence=number, name="a") for number in range(3))
HALF, ANOTHERS, *OTHER_DAMAGES = (
    (extend((0, 3)), SAVE_FIRST, named("load_damaged", sequence=0, damage=damage, name="a"))
    for damage in ("half", "another model", "no bytes", "first byte")
)
HISTORIES: dict[str, tuple[tuple[tuple[Operation, ...], bool], ...]] = {
    "long-rollback": (
        ((extend((0, 3)), ROLL_BACK), False),
        ((extend((0, 2)), ROLL_BACK, ROLL_BACK), True),
        ((extend((0, 3)), extend((0, 1)), ROLL_BACK), True),
        ((extend((0, 3)), SAVE_FIRST, LOAD_FIRST, ROLL_BACK), True),
    ),
    "padded-row": (
        ((extend((0, 1), (1, 2)), extend((0, 1))), True),
        ((extend((0, 1), (1, 2)), extend((1, 1))), False),
        ((extend((0, 1), (1, 2)),), False),
        ((extend((0, 2), pads=1), extend((0, 1))), True),
        ((extend((0, 2), (1, 2)), extend((0, 1))), False),
        ((extend((0, 1), (1, 2)), FORK, extend((1, 1))), True),
        ((extend((1, 1), (0, 2)), FORK, extend((1, 1))), False),
        ((extend((1, 1), (0, 2)), SAVE, LOAD, extend((2, 1))), True),
        ((extend((0, 1), (1, 2)), SAVE, LOAD, extend((2, 1))), False),
        ((extend((0, 1), (1, 2)), named("reorder", order=(1, 0)), extend((1, 1))), True),
        ((extend((0, 1), (1, 2)), named("reorder", order=(1, 0)), extend((0, 1))), False),
        ((extend((0, 1), (1, 2)), named("drop", sequence=0), extend((0, 1))), False),
        ((extend((0, 1)), beside(neighbours=1)), True),
        ((extend((0, 1)), beside()), False),
        ((extend((0, 1)), beside(neighbours=1, late=1)), False),
        ((extend((0, 1)), beside(neighbours=1, together=1)), False),
        ((extend((0, 1)), beside(neighbours=1), extend((0, 1))), True),
        ((extend((0, 1), (1, 2)), beside(), extend((0, 1))), False),
    ),
    "fork-after-rollback": (
        ((extend((0, 3)), ROLL_BACK, FORK), True),
        ((extend((0, 3)), ROLL_BACK, extend((0, 1)), FORK), False),
    ),
    "shared-tokens-behind-the-lowest": (
        ((shared(2, 0, 1),), True),
        ((shared(2, 1, 0),), False),
        ((shared(1, 0, 1),), True),
        ((shared(1, 1, 0), shared(1, 1, 0)), False),
        ((extend((0, 1), (1, 1)), shared(1, 0, 1)), True),
        ((shared(1, 1, 0, 2),), True),
        ((extend((0, 2), (1, 2)),), False),
    ),
    "refused-load": (
        ((*HALF, extend((0, 1))), True),
        ((*ANOTHERS, beside()), True),
        ((*HALF, FORK, extend((1, 1))), True),
        ((*HALF, extend((1, 1))), False),
        ((*HALF, LOAD_FIRST, extend((0, 1))), False),
        *(((*others, extend((0, 1))), False) for others in OTHER_DAMAGES),
    ),
    "prompt-processed-twice": (
        ((extend((0, 3)), twice()), True),
        ((extend((0, 3)), twice(mode="plain")), False),
        ((extend((0, 3)), twice(history="continued")), False),
        ((extend((0, 3)), twice(), extend((0, 1))), True),
        ((extend((0, 3), (1, 3)), twice(), extend((1, 1))), False),
        ((extend((0, 3)), twice(), FORK, extend((1, 1))), True),
        ((extend((0, 3)), twice(), twice(mode="plain")), True),
        ((extend((0, 3)), twice(), twice(history="none"), extend((0, 1))), False),
    ),
    "several-rows": (((extend((0, 1), (3, 1)),), True), ((extend((0, 1)),), False)),
    "pending-copy": (
        ((extend((0, 3)), FORK, SAVE, LOAD), True),
        ((extend((0, 3)), FORK, extend((0, 1)), SAVE, LOAD), False),
        ((extend((0, 3)), FORK, SAVE), False),
        ((extend((0, 3)), SAVE_FIRST, FORK, LOAD_FIRST), True),
        ((extend((0, 3)), SAVE_FIRST, FORK, LOAD_SECOND), True),
        ((extend((0, 3)), SAVE_FIRST, FORK, extend((3, 1)), LOAD_SECOND), False),
    ),
}


@pytest.mark.parametrize(
    ("name", "operations", "expected"), [(name, *row) for name, rows in HISTORIES.items() for row in rows]
)
def test_a_history_is_told_from_others_like_it(
    name: str, operations: tuple[Operation, ...], expected: bool
) -> None:
    assert holds(f"history:{name}", *operations) is expected


def test_a_refused_operation_is_no_part_of_a_history() -> None:
    assert holds("history:long-rollback", extend((0, 1)), ROLL_BACK)
    assert not holds("history:long-rollback", extend((0, 1)), ROLL_BACK, refused=1)


def test_features_are_those_of_the_context_with_one_of_the_values() -> None:
    assert holds("features:snapshots,micro_batch=1|2", extend((0, 1)), snapshots=4, micro_batch=2)
    assert not holds("features:snapshots,micro_batch=1|2", extend((0, 1)), snapshots=4, micro_batch=7)
    assert not holds("features:snapshots", extend((0, 1)), micro_batch=7)


def test_an_unchecked_crop_is_told_by_its_effect() -> None:
    def case(*effects: str) -> Case:
        step = Returned(record("SequenceStep", happened=True, effects=effects))
        return Case("p", "", "s", (), (), (Returned(record("Sequences")), step), None)

    condition = CONDITIONS["history:crop-of-an-uncroppable-cache"]
    assert condition(case("roll_back: a cache was cropped", UNCROPPABLE), DOCUMENTS)
    assert not condition(case("roll_back: a cache was cropped"), DOCUMENTS)


@pytest.mark.parametrize(
    ("effects", "last", "expected"),
    [
        ((DROPPED,), extend((2, 1)), True),
        ((DROPPED,), named("cancel", sequence=2, tokens=(1,), after=0), True),
        ((), extend((2, 1)), False),
        ((DROPPED,), extend((2, 1), (3, 1)), False),
        ((DROPPED,), extend((0, 1)), False),
        ((DROPPED,), extend((2, 1), packed_rows=True), False),
        ((DROPPED, RESET), extend((2, 1)), False),
    ],
)
def test_a_sequence_begins_with_a_reset_cache_only_while_one_waits(
    effects: tuple[str, ...], last: Operation, expected: bool
) -> None:
    calls = [call(f"Sequences.{name}", **given) for name, given in (ROLL_BACK, ROLL_BACK, last)]
    steps = [Returned(record("SequenceStep", effects=(name,), lengths=((0, 0, 3),))) for name in effects]
    case = Case("p", "", "s", (*calls[2 - len(steps) :],), (), tuple(steps), None)
    assert CONDITIONS["history:begins-with-a-reset-cache"](case, DOCUMENTS) is expected


@pytest.mark.parametrize(
    "name",
    ["", "model:a", "models:", "history:nothing", "models:a history:nothing", "models:mamba colour:red"],
)
def test_other_names_are_no_conditions(name: str) -> None:
    assert name not in CONDITIONS


def prompt(sequence: int, *tokens: int, **features: Any) -> Operation:
    return "extend", {"context": 0, "rows": [(sequence, tokens)], "features": features}


ONE, LONGER, LIKE = prompt(0, 1), prompt(0, 15), prompt(2, 3, 10)
OTHER = prompt(1, 3, ahead=3)
AT_ONCE = named("extend", rows=[(1, (3,)), (0, (1,) * 5)], features={"at_once": True, "ahead": 3})
FIVE, SIX = prompt(0, 1, 2, 3, 4, 5), prompt(0, 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (AT_ONCE, True),
        (prompt(0, 1, 2, at_once=True, between="image"), True),
        (prompt(0, 1, 2, at_once=True), False),
        (prompt(0, 1, 2, between="image"), False),
    ],
)
def test_a_request_between_others_may_come_at_the_same_time(operation: Operation, expected: bool) -> None:
    assert holds("history:requests-at-once", operation) is expected


@pytest.mark.parametrize(
    ("operations", "slots", "expected"),
    [
        ((ONE, LONGER, OTHER, LIKE), 1, True),
        ((FIVE, OTHER, LIKE), 1, True),
        ((FIVE, prompt(1, 3), LIKE), 1, False),
        ((FIVE, prompt(1, 3, 10), LIKE), 1, True),
        ((SIX, OTHER, LIKE), 1, False),
        ((ONE, LONGER, prompt(1, 1, 3), prompt(2, 1, 4)), 1, False),
        ((ONE, LONGER, OTHER, prompt(2, 4, 10)), 1, False),
        ((OTHER, LIKE, ONE, LONGER), 1, False),
        ((FIVE, OTHER, named("generate", sequence=1, n=2, features={})), 1, True),
        ((FIVE, prompt(1, 3, 4), named("roll_back", sequence=1, n=1), prompt(1, 5)), 1, True),
        ((FIVE, OTHER, LIKE), 4, False),
        ((FIVE, prompt(3, 7), prompt(3, 7), prompt(3, 7), OTHER, LIKE), 4, True),
        ((FIVE, prompt(1, 3, slot="own", ahead=3), LIKE), 4, True),
        ((AT_ONCE, LIKE), 1, True),
    ],
)
def test_the_checkpoint_of_another_first_token_takes_three_prompts(
    operations: tuple[Operation, ...], slots: int, expected: bool
) -> None:
    given = {} if slots == 4 else {"slots": slots}
    assert holds("history:checkpoint-of-another-token", *operations, **given) is expected
