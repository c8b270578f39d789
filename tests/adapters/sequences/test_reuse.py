"""A library that says what it knew of a sequence, and how much of it it processed, has processed no more than the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from oracle.sequences import REUSE, most_processed
from statecheck.case import Case
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import adapted
from tests.adapters.sequences import reference_port
from tests.adapters.sequences.reference_port import SmallContext
from tests.adapters.sequences.test_compared import port


@pytest.mark.parametrize(
    ("known", "whole", "most"),
    [
        ((1, 2), (1, 2, 3), 1),
        ((), (1, 2, 3), 3),
        ((1, 2, 3), (1, 2, 3), 4),
        ((1, 2, 3, 9), (1, 2, 3), 4),
        ((1, 5), (1, 2, 3), None),
        ((1, 5, 3), (1, 2, 3), None),
    ],
)
def test_the_tokens_behind_what_is_known_are_processed(
    known: tuple[int, ...], whole: tuple[int, ...], most: int | None
) -> None:
    assert most_processed(known, whole, again=4) == most


def _context(misses: str = "") -> ExecutionContext:
    """Of a port that knows each sequence's tokens, and processes a sequence from its beginning after the operation `misses`."""
    after: dict[tuple[SmallContext, int], str] = {}
    reported: dict[tuple[SmallContext, int], tuple[list[int], int]] = {}
    tokens: dict[tuple[SmallContext, int], list[int]] = {}

    def extend(context: SmallContext, rows: Sequence[tuple[int, Sequence[int]]]) -> list[list[float]]:
        for sequence, new in rows:
            key, has = (context, sequence), len(context.states.get(sequence, []))
            known = tokens.get(key, [])[:has]
            missed = misses and after.pop(key, "") == misses
            reported[key] = known, len(new) + (has if missed else 0)
            tokens[key] = [*known, *new]
        return reference_port.extend(context, rows)

    def roll_back(context: SmallContext, sequence: int, n: int) -> None:
        reference_port.roll_back(context, sequence, n)
        after[context, sequence] = "roll_back"

    def reuse(context: SmallContext, sequence: int) -> Any:
        return reported.pop((context, sequence), None)

    subject = adapted(
        port(
            "reusing_port",
            extend=extend,
            roll_back=roll_back,
            reuse=reuse,
            fork=None,
            load=None,
            generate=None,
        )
    )
    return ExecutionContext(subject, ordinary_port(subject, "cpu"))


def _explored(context: ExecutionContext) -> None:
    load_properties()["sequences/again"].explore(context, seed=1, max_examples=60)


def test_a_port_that_processes_new_tokens_alone_passes() -> None:
    context = _context()
    _explored(context)
    assert context.counts.compared > 10


def test_a_prompt_that_is_processed_from_its_beginning_is_found_and_shrunk() -> None:
    with pytest.raises(Falsified) as raised:
        _explored(_context("roll_back"))
    case: Case = raised.value.case
    assert "tokens were processed, at most 1 with the state after" in str(case.failure)
    functions = [call.function.rpartition(".")[2] for call in case.calls]
    # What is drawn first depends on the modules that are loaded: around some inputs no smaller one is near.
    assert functions in (["Sequences", *["extend"] * n, "roll_back", "extend"] for n in (1, 2))


def test_the_property_is_not_applicable_to_a_port_that_does_not_say_it() -> None:
    subject = adapted(port())
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    assert load_properties()["sequences/again"].not_applicable(context) == f"compared_port has no {REUSE}"
