"""Enumerations: each layer has as many inputs as a formula says, no input twice, and shows planted defects in its smallest input."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import partial
from itertools import chain, count, permutations, product
from pathlib import Path
from typing import Any

import pytest

from properties.engine.scenarios import Scenario
from properties.enumerations.functions import in_slots, rising, sequences, sums
from properties.enumerations.lifecycle import Living, schedules
from statecheck.execution.enumerations import Slice, enumerations
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from subjects import Subject
from tests.helpers.planted import broken_subject, defect_named
from tests.helpers.slow import slow_after


def layer(decision: str, bound: int) -> list[Mapping[str, Any]]:
    return list(enumerations()[decision].inputs(bound))


PACKED, STARTING, SCHEDULED = (1, 1, 3, 8), (1, 3, 8, 19), (1, 1, 7, 33)
BOUNDARIES, RELEASED = (1, 5, 15, 35), (1, 7, 49, 343)
COUNTS: Mapping[str, tuple[int, ...]] = {
    "chunks": PACKED,
    "chunk indices": PACKED,
    "chunk offsets": PACKED,
    "conv programs": (1, 18, 18**2, 18**3),
    "split": (4, 24, 96, 328),
    "columns": (1, 4, 11, 25),
    "boundary of V1": BOUNDARIES,
    "boundary of V2": BOUNDARIES,
    "copies": STARTING,
    "next columns": STARTING,
    "conv copies": (2, 12, 44, 124),
    "temporal copies": (1, 6, 22, 62),
    "prefixes": (2, 4, 12, 32),
    "rows with drafts": (4, 12, 40, 120),
    "schedules of V1": SCHEDULED,
    "schedules of V2": SCHEDULED,
    "schedules without copies": SCHEDULED,
    "schedules of the release's V1": RELEASED,
    "schedules of the release's V2": RELEASED,
}
"""Inputs of the bounds 0 to 3: how many ways there are to share out so many tokens, rows and choices, counted by combinations."""


@pytest.mark.parametrize("decision", COUNTS)
def test_a_layer_has_all_inputs_of_its_bound_and_none_twice(decision: str) -> None:
    for bound, count_of_inputs in enumerate(COUNTS[decision]):
        inputs = layer(decision, bound)
        assert len(inputs) == count_of_inputs, bound
        assert len({repr(input_) for input_ in inputs}) == len(inputs)


def test_every_decision_is_counted_but_slots_which_are_compared_one_by_one() -> None:
    assert enumerations().keys() - COUNTS.keys() == {"slots"}


def test_requests_stand_in_slots_in_every_way_but_for_the_order_of_rows() -> None:
    """All batches of two requests that come to three, in any order of rows, without drafts."""
    for spare in (0, 1):
        sizes = ((first, more) for first in range(3) for more in range(3))
        every = {
            frozenset(zip(slots, requests, strict=True))
            for requests in product(list(sizes), repeat=2)
            for slots in permutations(range(2 + spare), 2)
            if sum(map(sum, requests)) == 2
        }
        batches = [input_["batch"] for input_ in in_slots(4 + spare)]
        tried = {
            frozenset(
                (slot, (request.first_state, request.length - 1))
                for slot, request in zip(batch.slots, batch.requests, strict=True)
            )
            for batch in batches
            if (batch.rows.spare, len(batch.requests), batch.setup.block_size) == (spare, 2, 1)
        }
        assert tried == every


def test_sums_sequences_and_rising_ones_are_those_of_all_tuples() -> None:
    every = [row for length in range(5) for row in product(range(5), repeat=length)]
    assert set(sums(4, 3)) == {row for row in every if len(row) == 3 and sum(row) == 4}
    assert set(sequences(4)) == {row for row in every if len(row) + sum(row) == 4}
    assert set(rising(4)) == {row for row in every if len(row) + sum(row) == 4 and sorted(row) == list(row)}
    assert len(list(rising(4))) == len(set(rising(4)))


def test_slices_of_a_layer_are_all_of_it() -> None:
    whole = layer("chunks", 4)
    parts = [list(Slice("chunks", 4, part, 3).inputs()) for part in range(3)]
    assert sorted(map(repr, chain.from_iterable(parts))) == sorted(map(repr, whole))
    assert list(Slice("chunks", 4, 1, 3, done=2).inputs()) == parts[1][2:]


def test_a_batch_has_the_requests_of_inputs_of_one_model() -> None:
    inputs = layer("boundary of V1", 3)
    batches = list(Slice("boundary of V1", 3).batches(4))
    assert [input_ for _, each in batches for input_ in each] == inputs
    assert max(len(each) for _, each in batches) == 4
    for together, each in batches:
        batch = together["batch"]
        assert batch.requests == tuple(request for input_ in each for request in input_["batch"].requests)
        assert {input_["batch"].setup for input_ in each} == {batch.setup}
    assert [each for _, each in Slice("boundary of V1", 3).batches(1)] == [[input_] for input_ in inputs]


def test_a_schedule_ends_with_a_step_of_requests_that_are_there() -> None:
    assert all(isinstance(steps[-1], partial) and steps[-1].func is Scenario.step for steps in schedules(4))
    assert list(schedules(1, Living((), waits=False))) == []


FIRST_SHOWN = tomllib.loads(Path(__file__).with_name("first_shown.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", slow_after(5, FIRST_SHOWN))
@pytest.mark.usefixtures("on_cpu")
def test_a_planted_defect_shows_at_its_bound(name: str, tmp_path: Path) -> None:
    expected = FIRST_SHOWN[name]
    with broken_subject(defect_named(name).variant, tmp_path) as subject:
        bound, drawn = first_failing(expected["decision"], subject)
    assert (bound, expected["part"] in drawn) == (expected["bound"], True), drawn


def first_failing(decision: str, subject: Subject) -> tuple[int, str]:
    """The bound and the first input of it that fails."""
    enumeration, context = enumerations()[decision], ExecutionContext(subject, ordinary_port(subject, "cpu"))
    tested = load_properties()[enumeration.property]
    for bound in count():
        for drawn in enumeration.inputs(bound):
            try:
                tested.example(context, **drawn)
            except Falsified:
                return bound, repr(drawn)
    raise AssertionError
