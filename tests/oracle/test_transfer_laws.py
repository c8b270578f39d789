"""The laws of blocks that a connector loads and saves say what a step breaks, and nothing of a step that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oracle.lifecycle.named_states import states_after
from oracle.lifecycle.observed import ObservedStep, Transfers
from tests.oracle.observed_steps import PROMPT, about, laws, of_group, of_row, of_step, prefill

STATES = states_after(PROMPT)
LOADING = {(0, 5): "r1", (1, 6): "r1"}
Change = Callable[[ObservedStep], None]


def connected() -> ObservedStep:
    """The prompt of r0 is computed, its state in block 2 is saved, and blocks 5 and 6 are being loaded for r1."""
    seen = prefill()
    seen.rows[0].table, seen.rows[0].slots = (1,), (4, 5, 6, 7)
    seen.owners_after = [*seen.owners, ("r1", 0, 0, 5), ("r1", 1, 0, 6)]
    seen.references = [(1, 1), (2, 2), (5, 1), (6, 1)]
    seen.free = 3
    contents = [("conv", tuple(STATES[2:])), ("temporal", STATES[3])]
    seen.transfers = Transfers(
        LOADING, LOADING, frozenset(), frozenset({(1, 2)}), [(1, 2, "r0", 4, contents)], {2: 1}
    )
    return seen


def broken_by(seen: ObservedStep) -> list[Any]:
    checker = laws()
    checker.add("r1", (*PROMPT, 5))
    return [(law, about) for law, _, _, about in checker.step(seen)]


def place(request: str, group: int, block: int) -> dict[str, Any]:
    return {"request": request, "group": group, "block": block}


def test_a_step_that_loads_and_saves_as_it_should_breaks_nothing() -> None:
    assert broken_by(connected()) == []


def moved(**changed: Any) -> Change:
    def change(seen: ObservedStep) -> None:
        assert seen.transfers is not None
        seen.transfers = replace(seen.transfers, **changed)

    return change


GIVEN_AWAY = of_step(
    owners_after=connected().owners_after[:-1], references=connected().references[:-1], free=4
)


@pytest.mark.parametrize(
    ("change", "law", "about"),
    [
        (moved(loading={(0, 5): "r0"}, loading_after={}), "loading", {"request": "r0"}),
        (moved(loading={(0, 1): "r1"}, loading_after={}), "loading", place("r1", 0, 1)),
        (GIVEN_AWAY, "loading", place("r1", 1, 6)),
        (moved(loading={}, loading_after={(1, 2): "r0"}), "loading", place("r0", 1, 2)),
        (of_row(0, table=(1, 5)), "loading", place("r1", 0, 5)),
        (of_group(0, initial=True, blocks=(6, 2)), "loading", place("r1", 1, 6)),
        (of_row(0, slots=(4, 20)), "loading", place("r1", 0, 5)),
        (moved(saving=frozenset({(1, 2)})), "saved", place("r0", 1, 2)),
        (moved(saving=frozenset({(0, 1), (1, 9)})), "saved", place("r0", 0, 1)),
        (moved(saving_after=frozenset({(1, 4)})), "saved", {"group": 1, "block": 4}),
        (moved(freed=frozenset({2})), "saved", {"block": 2}),
        (
            moved(saved=[(1, 2, "r0", 4, [("temporal", STATES[2])])]),
            "saved",
            about("r0", 4, (("r0", 3, ()),), 1, 2),
        ),
        (
            moved(arrived=[(1, 6, "r1", 4, [("temporal", STATES[2])])]),
            "loaded",
            about("r1", 4, (("r0", 3, ()),), 1, 6),
        ),
        (
            moved(arrived=[(0, 5, "r1", 4, [("keys", (*STATES[:3], 0))])]),
            "loaded",
            about("r1", 4, (("", 0, ()),), 0, 5),
        ),
        (moved(kept={}), "owned", {}),
    ],
)
def test_a_violation_in_a_step_has_the_name_of_its_law(
    change: Change, law: str, about: dict[str, Any]
) -> None:
    seen = connected()
    change(seen)
    assert broken_by(seen) == [(law, about)]


def test_blocks_saved_but_not_written_and_blocks_not_read_break_nothing() -> None:
    seen = connected()
    moved(saving=frozenset({(1, 9)}))(seen)
    of_group(0, blocks=(6, 6))(seen)
    assert broken_by(seen) == []


@pytest.mark.parametrize(("in_flight", "broken"), [(1, [("loading", place("r1", 0, 1))]), (0, [])])
def test_a_load_begins_in_no_block_that_a_batch_in_flight_writes(in_flight: int, broken: list[Any]) -> None:
    checker, loading = laws(), {(0, 1): "r1"}
    checker.add("r1", (*PROMPT, 5))
    checker.step(connected())
    moves = Transfers(loading, loading, frozenset(), frozenset(), [], {})
    seen = ObservedStep(owners_after=[("r1", 0, 0, 1)], references=[(1, 1)], free=6, transfers=moves)
    seen.in_flight = in_flight
    assert [(law, about) for law, _, _, about in [*checker.step(seen), *checker.step(seen)]] == broken
