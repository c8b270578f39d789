"""Shards, and units of work for machines that come and go."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from statecheck.campaign.plan import Plan, shard_of
from statecheck.campaign.shards.units import UnitQueue

_EXAMPLES = Plan("night", examples=10)
_SECONDS = Plan("night", budget=100.0)


@pytest.mark.parametrize(
    ("environment", "option", "shard"),
    [
        ({}, "", (0, 1)),
        ({"SHARD": ""}, "", (0, 1)),
        ({"SHARD": "3/3"}, "", (2, 3)),
        ({"SHARD": "3/3"}, "2/8", (1, 8)),
    ],
)
def test_a_job_does_the_shard_of_its_option_or_else_of_its_variable(
    environment: dict[str, str], option: str, shard: tuple[int, int]
) -> None:
    assert shard_of(environment, option) == shard


@pytest.mark.parametrize(
    "text", ["0/8", "9/8", "1/0", "2", "2/", "/8", "-1/8", "2/8/1", "second/8", "2.0/8", "²/8"]
)
def test_a_shard_that_is_none_of_its_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^shard = {re.escape(repr(text))}, but should be a shard and"):
        shard_of({}, text)
    with pytest.raises(ValueError, match=rf"^SHARD = {re.escape(repr(text))}, but should be a shard and"):
        shard_of({"SHARD": text})


def _all_of(work: UnitQueue) -> list[Plan]:
    """Take every unit in hand."""
    return list(iter(lambda: work.next(0.0), None))


def test_units_have_all_the_examples_and_each_its_own_seed() -> None:
    units = _all_of(UnitQueue(_EXAMPLES, count=4))
    assert [one.examples for one in units] == [3, 3, 2, 2]
    assert [one.unit for one in units] == [0, 1, 2, 3]


def test_no_unit_is_empty() -> None:
    assert [one.examples for one in _all_of(UnitQueue(replace(_EXAMPLES, examples=2), count=4))] == [
        1,
        1,
    ]


def test_the_corpus_is_replayed_once() -> None:
    assert [one.replayed for one in _all_of(UnitQueue(_EXAMPLES, count=3))] == [True, False, False]


def test_a_unit_that_was_lost_is_the_same_when_it_is_done_again() -> None:
    work = UnitQueue(_EXAMPLES, count=4)
    first = _all_of(work)
    work.lose(2, "its machine is gone")
    assert (work.next(50.0), work.retried) == (first[2], 1)


def test_a_unit_that_fails_three_times_is_missing() -> None:
    work = UnitQueue(_EXAMPLES, count=1)
    for _ in range(3):
        _all_of(work)
        work.lose(0, "no space left")
    assert work.over(0.0)
    assert work.missing == [0]
    assert work.troubles == ["unit 0 failed 3 times and is given up: no space left"]


def test_work_is_over_when_every_unit_is_done() -> None:
    work = UnitQueue(_EXAMPLES, count=2)
    units = _all_of(work)
    assert not work.over(0.0)
    for one in units:
        work.finish(one.unit)
    assert work.over(0.0)
    assert work.missing == []


def test_units_are_begun_until_the_seconds_are_used_up() -> None:
    work = UnitQueue(_SECONDS, seconds=30.0)
    given = [None if one is None else one.budget for one in map(work.next, (0.0, 69.0, 75.0, 90.0, 91.0))]
    assert given == [30.0, 30.0, 25.0, 10.0, None]


def test_work_in_seconds_is_over_when_they_are_used_up_and_nothing_is_in_hand() -> None:
    work = UnitQueue(_SECONDS, seconds=30.0)
    work.next(0.0)
    assert not work.over(95.0)
    work.finish(0)
    assert (work.over(50.0), work.over(95.0)) == (False, True)


@pytest.mark.parametrize("plan", [Plan("night"), replace(_SECONDS, examples=1)])
def test_work_without_one_measure_is_refused(plan: Plan) -> None:
    with pytest.raises(ValueError, match=r"\(budget, examples\) = "):
        UnitQueue(plan)
