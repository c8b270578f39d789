"""The laws of slots that are free, cached or a request's say which slot has two owners or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from oracle.lifecycle.live import LiveLaws
from oracle.lifecycle.observed import ObservedStep, SlotPool
from oracle.lifecycle.pools import broken_by_pools


def pool(
    free: Sequence[int], cached: Sequence[int], held: Mapping[str, Sequence[int]], *, shared: bool = False
) -> SlotPool:
    return SlotPool(1, range(1, 5), free, cached, held, shared)


def broken(*pools: SlotPool) -> list[tuple[str, str]]:
    return [(law, seen) for law, seen, *_ in broken_by_pools(ObservedStep(pools=pools))]


def test_slots_with_an_owner_each_break_nothing() -> None:
    assert broken(pool([1], [2], {"r0": [3], "r1": [4]})) == []


def test_requests_share_the_keys_of_a_cached_prefix() -> None:
    assert broken(pool([3, 4], [1], {"r0": [1, 2], "r1": [1]}, shared=True)) == []


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (
            pool([1, 1], [2], {"r0": [3, 4]}),
            ("owned", "slot 1 of group 1 belongs to the free list and the free list"),
        ),
        (
            pool([1], [1], {"r0": [2, 3, 4]}),
            ("owned", "slot 1 of group 1 belongs to the free list and the cache"),
        ),
        (
            pool([1], [2, 2], {"r0": [3, 4]}),
            ("owned", "slot 2 of group 1 belongs to the cache and the cache"),
        ),
        (pool([1], [2], {"r0": [3, 4], "r1": [4]}), ("owned", "slot 4 of group 1 belongs to r0 and r1")),
        (pool([1], [2, 3], {"r0": [3, 4]}), ("owned", "slot 3 of group 1 belongs to the cache and r0")),
        (pool([1], [2], {"r0": [3]}), ("free", "slots [4] of group 1 belong to no request and no prefix")),
        (
            pool([1], [], {"r0": [2, 3], "r1": [3, 4]}, shared=True),
            ("owned", "slot 3 of group 1 belongs to r0 and r1"),
        ),
        (
            pool([1, 2], [2], {"r0": [2, 3, 4]}, shared=True),
            ("owned", "slot 2 of group 1 belongs to the free list and the cache and r0"),
        ),
    ],
)
def test_a_slot_with_two_owners_or_none_is_named(wrong: SlotPool, found: tuple[str, str]) -> None:
    assert broken(wrong) == [found]


def test_a_slot_is_not_free_while_it_is_copied_to_host_memory() -> None:
    late = replace(pool([1, 2], [3], {"r0": [4]}), copied=[2, 3, 4])
    assert broken(late) == [("saved", "slot 2 of group 1 is free, and a copy to host memory still reads it")]


def test_the_first_slot_with_two_owners_is_reported_with_a_request_that_has_it() -> None:
    wrong = pool([1], [], {"r0": [2, 3], "r1": [3, 2], "r2": [4]})
    [(law, seen, rule, about)] = broken_by_pools(ObservedStep(pools=[wrong]))
    assert (law, rule, about) == ("owned", "should have one owner", {"group": 1, "block": 2, "request": "r0"})
    assert seen == "slot 2 of group 1 belongs to r0 and r1"


def test_a_slot_with_two_owners_that_are_no_requests_names_none() -> None:
    [(_, _, _, about)] = broken_by_pools(ObservedStep(pools=[pool([1, 1, 2, 3, 4], [], {})]))
    assert about == {"group": 1, "block": 1}


def test_a_request_has_a_shared_slot_once() -> None:
    wrong = pool([3, 4], [1, 2], {"r0": [1, 1]}, shared=True)
    assert broken(wrong) == [("owned", "slot 1 of group 1 belongs to the cache and r0 and r0")]


def test_an_engine_that_counts_no_references_is_held_to_the_laws_of_its_pools() -> None:
    laws = LiveLaws((1, 8), window=3, num_blocks=0)
    assert laws.step(ObservedStep(pools=[pool([1, 2, 3, 4], [], {})])) == []
    assert [law for law, *_ in laws.step(ObservedStep(pools=[pool([1, 2, 3], [], {})]))] == ["free"]


def test_a_prefix_is_named_after_a_request_whose_prompt_or_output_begins_with_it() -> None:
    laws = LiveLaws((1, 8), window=3, num_blocks=0)
    laws.known.vocabulary = 7
    laws.add("r0", (1, 2))
    said = laws.requests["r0"].token(2)
    assert 1000 <= said < 1007
    assert laws.known.named_by((1, 2, said)) == ("r0", 3)
    assert laws.known.named_by((1, 2)) == ("r0", 2)
    assert laws.known.named_by((1, 2, said + 1)) == ("", 0)


def test_a_prefix_may_hold_tokens_that_a_request_has_not_said_yet() -> None:
    known, other = (
        LiveLaws((1, 8), window=3, num_blocks=0).known,
        LiveLaws((1, 8), window=3, num_blocks=0).known,
    )
    for each in (known, other):
        each.add("r0", (1, 2))
    said = other.requests["r0"].token(2)
    assert known.named_by((1, 2, said)) == ("r0", 3)
