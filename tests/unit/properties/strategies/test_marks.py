"""Every named situation is reached by a property, and is noted for the examples that it came up in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from lab.marks import drawing_only, explored, rules_context
from oracle.types import cdiv
from properties.strategies.chunks import Packed
from statecheck.campaign import marks
from statecheck.campaign.marks import expected, reachable
from statecheck.campaign.worker import noted
from statecheck.execution.example import Example
from statecheck.execution.property import ExampleMachine, MachineProperty
from statecheck.execution.registry import Property, load_properties
from statecheck.reference.situations import Situation, every_situation, situations_of

EXAMPLES, SCENARIOS = 3000, 400
"""Examples that a property is explored with, at most; a scenario takes as long as dozens of other examples."""
NO_LIMIT = float("inf")
"""Seconds: how far a slow machine comes decides nothing."""
EASIEST = 8
"""How many of the properties that reach a mark are asked for it, the easiest ones."""
ROUNDED = "a negative quotient is rounded up"
EMPTY = "a sequence without tokens has no chunk"
CHUNKS = "varlen-chunks/ends"


def assigned() -> dict[str, list[str]]:
    """Few properties, which reach all marks between them, and the marks that each of them is asked for."""
    left = {name: names[:EASIEST] for name, names in marks.table().items()}
    found: dict[str, list[str]] = {}
    while any(left.values()):
        counted = Counter(name for names in left.values() for name in names)
        chosen = max(sorted(counted), key=counted.__getitem__)
        found[chosen] = [id_ for id_, names in left.items() if chosen in names]
        left = {id_: names for id_, names in left.items() if chosen not in names}
    return found


ASSIGNED = assigned()


# Marks and properties.


@pytest.mark.slow
@pytest.mark.parametrize("name", ASSIGNED)
def test_a_property_reaches_its_marks(name: str) -> None:
    wanted = ASSIGNED[name]
    missing = set(wanted) - reached(load_properties()[name], wanted)
    # What is drawn follows from all constants in the sources, so that a property may miss a rare mark one day.
    for mark in sorted(missing):
        others = [load_properties()[other] for other in marks.table()[mark] if other != name]
        if any(mark in reached(other, [mark]) for other in others[:3]):
            missing.discard(mark)
    assert missing == set()


def reached(tested: Property, wanted: Iterable[str]) -> set[str]:
    most = SCENARIOS if isinstance(tested, MachineProperty) else EXAMPLES
    return set(explored(tested, rules_context(), seconds=NO_LIMIT, max_examples=most, wanted=wanted))


def test_every_mark_that_is_declared_is_reached_by_a_property() -> None:
    load_properties()
    assert marks.table().keys() == every_situation().keys()
    assert [name for name, names in marks.table().items() if not names] == []


def test_a_property_whose_strategy_is_cut_down_misses_its_mark() -> None:
    whole = load_properties()[CHUNKS]
    cut = replace(whole, strategies={**whole.strategies, "packed": st.just(Packed((3, 5), 4))})
    found = [
        EMPTY in explored(tested, rules_context(), seconds=NO_LIMIT, max_examples=100)
        for tested in (whole, cut)
    ]
    assert found == [True, False]


# Examples.


def halved(trial: Example, number: int) -> None:
    """Half of the number, rounded up."""
    trial.holds(cdiv(-number, 2) <= 0, "the quotient is positive")


HALVES = Property("halves", "Halves.", "algebra", (), halved, {"number": st.integers(0, 9)}, __name__)


class Halving(ExampleMachine):
    """Halves, one after the other."""

    steps = 3
    seen: list[bool]

    @rule(number=st.integers(0, 9))
    def halve(self, number: int) -> None:
        cdiv(-number, 2)


def notes(tested: Property) -> list[frozenset[str]]:
    """The marks that each of 40 examples reached."""
    found: list[frozenset[str]] = []
    with drawing_only():
        noted(tested, found.append).explore(rules_context(), seed=1, max_examples=40)
    return found


def test_a_mark_is_noted_for_the_examples_that_reached_it_and_for_no_other() -> None:
    numbers: list[int] = []

    def body(trial: Example, number: int) -> None:
        numbers.append(number)
        halved(trial, number)

    found = notes(replace(HALVES, body=body))
    assert found == [frozenset({ROUNDED} if number % 2 else ()) for number in numbers]
    assert {frozenset(), frozenset({ROUNDED})} == set(found)


def test_a_mark_is_noted_for_the_scenarios_that_reached_it_and_for_no_other() -> None:
    scenarios: list[list[int]] = []

    class Watched(Halving):
        def __init__(self, trial: Example) -> None:
            super().__init__(trial)
            scenarios.append([])

        @rule(number=st.integers(0, 9))
        def halve(self, number: int) -> None:
            scenarios[-1].append(number)
            super().halve(number)

    whole = MachineProperty("scenarios", "Scenarios.", "algebra", (), halved, {}, __name__, machine=Watched)
    found = notes(whole)
    assert found == [
        frozenset({ROUNDED} if any(number % 2 for number in scenario) else ()) for scenario in scenarios
    ]
    assert len(set(found)) == 2


def test_marks_reached_while_an_example_is_drawn_are_not_noted() -> None:
    drawn = st.integers(0, 9).map(lambda number: 2 * number + 0 * cdiv(-1, 2))
    assert set(notes(replace(HALVES, strategies={"number": drawn}))) == {frozenset()}


def test_an_example_that_fails_has_its_marks() -> None:
    def body(trial: Example, number: int) -> None:  # noqa: ARG001 - as of a property
        cdiv(-1, 2)
        raise AssertionError

    found: list[frozenset[str]] = []
    failing = noted(replace(HALVES, body=body), found.append)
    with drawing_only(), pytest.raises(AssertionError):
        failing.explore(rules_context(), seed=1, max_examples=5)
    assert set(found) == {frozenset({ROUNDED})}


# Declarations.


def test_a_name_is_taken_once() -> None:
    with pytest.raises(
        ValueError, match=r"name = '.*', but should be a name of its own, which types has taken \[situation\]"
    ):
        situations_of("elsewhere")(ROUNDED)


# What may be expected.


def names_of(found: list[Situation]) -> set[str]:
    return {situation.name for situation in found}


def test_a_property_is_expected_to_reach_what_it_is_known_to_reach() -> None:
    assert names_of(expected([CHUNKS], "cpu")) == reachable([CHUNKS]) >= {EMPTY}


def test_marks_that_need_a_gpu_are_expected_there_only() -> None:
    by_device = {device: names_of(expected(load_properties(), device)) for device in ("cpu", "cuda")}
    needing = {name for name, situation in every_situation().items() if situation.device == "cuda"}
    assert by_device["cuda"] - by_device["cpu"] == needing != set()
    assert by_device["cuda"] == every_situation().keys()


def test_a_mark_that_no_single_property_reaches_is_expected_of_all_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marks, "table", lambda: marks_without(EMPTY))
    some = [name for name in load_properties() if name != CHUNKS]
    assert EMPTY in names_of(expected(load_properties(), "cpu"))
    assert EMPTY not in names_of(expected(some, "cpu"))


KNOWN = marks.table()


def marks_without(name: str) -> dict[str, list[str]]:
    """The table without the properties that reach one of the marks."""
    return {**KNOWN, name: []}
