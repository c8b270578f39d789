"""Enumerations: each layer has as many inputs as a formula says, no input twice, and shows planted defects in its smallest input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import chain, count, permutations, product
from math import comb
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


def packed(k: int) -> int:
    # Compositions of k, each with as many chunk sizes as it has tokens, and one more.
    return 1 if not k else sum(comb(k - 1, s - 1) * (k - s + 1) for s in range(1, k + 1))


def marked(k: int) -> int:
    return 2 * 3 ** (k - 1) if k else 1


def partitions(k: int, most: int) -> int:
    return 1 if not k else sum(partitions(k - part, part) for part in range(1, min(k, most) + 1))


def splittings(k: int) -> int:
    return 4 * sum(marked(w) * comb(k - w + 3, 3) for w in range(k + 1))


def tables(k: int) -> int:
    return sum(partitions(w, w) * comb(k - w + 2, 2) for w in range(k + 1))


def starting(k: int) -> int:
    # Of all five numbers, without new requests that have accepted or rejected something.
    return comb(k + 4, 4) - comb(k + 3, 3) + k + 1


def copies(k: int) -> int:
    return sum((s // 2 + 1) * comb(k - s + 4, 4) for s in range(k + 1))


def rows(k: int, kinds: Callable[[int], int]) -> int:
    """Sequences of rows that come to k, of which a row of size s + 1 may be of so many kinds."""
    return 1 if not k else sum(kinds(s) * rows(k - s - 1, kinds) for s in range(k))


def in_order(k: int, decodes: Callable[[int], int]) -> int:
    """Decodes, then chunks of prompts, both with at least a computed token, then first chunks."""
    return sum(rows(a, decodes) * rows(b, lambda s: s) * rows(c, lambda s: 1) for a, b, c in sums(k, 3))


def with_prefixes(k: int) -> int:
    return 2 * sum(in_order(w, lambda s: s) for w in range(k + 1))


def with_drafts(k: int) -> int:
    total = 0
    for w, spec in product(range(k + 1), repeat=2):
        if w + spec <= k:

            def decodes(s: int, spec: int = spec) -> int:
                # Tokens before and in the step share what the accepted drafts leave.
                return 2 * sum(s - a for a in range(min(s, spec) + 1))

            total += 4 * in_order(w, decodes)
    return total


@cache
def scheduled(depth: int, alive: int = 1, waits: bool = True, stepped: bool = False) -> int:
    """Schedules of that cost with so many requests alive, each of them parts of a step and what comes before it."""
    total = int(not depth)
    for reset, arrival, ended in product((0, 1), (0, 1), range(alive + 1)):
        left, there = depth - reset - arrival - ended, alive - ended + arrival
        if there and reset <= (stepped and alive > 0) and arrival <= waits:
            ways = comb(alive, ended) * 2**arrival
            steps = {1 + odd: comb(there, odd) * 4**odd for odd in range(there + 1)}
            steps[2] = steps.get(2, 0) + there * stepped
            total += ways * sum(
                number * scheduled(left - cost, there, waits and not arrival, True)
                for cost, number in steps.items()
                if cost <= left
            )
    return total


FORMULAS: Mapping[str, Callable[[int], int]] = {
    "chunks": packed,
    "chunk indices": packed,
    "chunk offsets": packed,
    "conv programs": lambda k: 18**k,
    "split": splittings,
    "columns": tables,
    "boundary of V1": lambda k: comb(k + 4, 4),
    "boundary of V2": lambda k: comb(k + 4, 4),
    "copies": starting,
    "next columns": starting,
    "conv copies": lambda k: 2 * copies(k),
    "temporal copies": copies,
    "prefixes": with_prefixes,
    "rows with drafts": with_drafts,
    "schedules of V1": scheduled,
    "schedules of V2": scheduled,
    "schedules without copies": scheduled,
    "schedules of the release's V1": lambda k: 7**k,
    "schedules of the release's V2": lambda k: 7**k,
}


@pytest.mark.parametrize("decision", FORMULAS)
def test_a_layer_has_as_many_inputs_as_the_formula_says_and_none_twice(decision: str) -> None:
    for bound in range(4):
        inputs = layer(decision, bound)
        assert len(inputs) == FORMULAS[decision](bound), bound
        assert len({repr(one) for one in inputs}) == len(inputs)


def test_every_decision_has_a_formula_but_slots_which_are_counted_one_by_one() -> None:
    assert enumerations().keys() - FORMULAS.keys() == {"slots"}


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
        batches = [one["batch"] for one in in_slots(4 + spare)]
        tried = {
            frozenset(
                (slot, (one.first_state, one.length - 1))
                for slot, one in zip(batch.slots, batch.requests, strict=True)
            )
            for batch in batches
            if (batch.rows.spare, len(batch.requests), batch.setup.block_size) == (spare, 2, 1)
        }
        assert tried == every


def test_sums_sequences_and_rising_ones_are_those_of_all_tuples() -> None:
    every = [one for length in range(5) for one in product(range(5), repeat=length)]
    assert set(sums(4, 3)) == {one for one in every if len(one) == 3 and sum(one) == 4}
    assert set(sequences(4)) == {one for one in every if len(one) + sum(one) == 4}
    assert set(rising(4)) == {one for one in every if len(one) + sum(one) == 4 and sorted(one) == list(one)}
    assert len(list(rising(4))) == len(set(rising(4)))


def test_slices_of_a_layer_are_all_of_it() -> None:
    whole = layer("chunks", 4)
    parts = [list(Slice("chunks", 4, part, 3).inputs()) for part in range(3)]
    assert sorted(map(repr, chain.from_iterable(parts))) == sorted(map(repr, whole))
    assert list(Slice("chunks", 4, 1, 3, done=2).inputs()) == parts[1][2:]


def test_a_batch_has_the_requests_of_inputs_of_one_model() -> None:
    inputs = layer("boundary of V1", 3)
    batches = list(Slice("boundary of V1", 3).batches(4))
    assert [one for _, each in batches for one in each] == inputs
    assert max(len(each) for _, each in batches) == 4
    for together, each in batches:
        batch = together["batch"]
        assert batch.requests == tuple(request for one in each for request in one["batch"].requests)
        assert {one["batch"].setup for one in each} == {batch.setup}
    assert [each for _, each in Slice("boundary of V1", 3).batches(1)] == [[one] for one in inputs]


def test_a_schedule_ends_with_a_step_of_requests_that_are_there() -> None:
    assert all(isinstance(one[-1], partial) and one[-1].func is Scenario.step for one in schedules(4))
    assert list(schedules(1, Living((), waits=False))) == []


FIRST_SHOWN = {
    "a sequence is cut at multiples counted from its own start": ("chunks", 5, "lens=(1, 2), chunk_size=2"),
    "a sequence that ends at a boundary gets an empty chunk": ("chunks", 2, "lens=(1,), chunk_size=1"),
    "empty sequences are not counted in the chunk indices": ("chunk indices", 3, "lens=(0, 1), chunk_size=1"),
    "the last tokens of a row that do not fill a program are dropped": ("conv programs", 1, "lens=(1,)"),
    "a decode may have one token more than the threshold": ("split", 2, "query_len=2"),
    "decodes are counted wherever they stand": ("split", 2, "prefilling=True"),
    "a row of padding looks in the column before the first": ("columns", 1, "seq_lens=(0,)"),
    "a full block runs on the next one": ("columns", 1, "seq_lens=(0,)"),
    "a conv copy starts at the first row, whatever was accepted": ("conv copies", 1, "num_accepted_tokens=2"),
    "the temporal state is always that of the running block": ("temporal copies", 1, "num_accepted_tokens=2"),
    "the first block to write is the last one": ("prefixes", 2, "query_len=2, num_computed=0"),
    "a boundary that the sampled token reaches is not stored": (
        "boundary of V1",
        2,
        "computed=0, length=3, drafts=1, accepted=1",
    ),
    "decodes read the state before the tokens that they accepted": (
        "rows with drafts",
        4,
        "num_computed=1, prefilling=False, accepted=2",
    ),
    "states come from the column that they go to": ("schedules of V1", 2, ""),
    "only states that go back are precopied": ("next columns", 1, "first_state=1, length=1"),
    "slots that come in get no column": ("slots", 1, ""),
}
"""Planted defects: the decision and the bound at which they first show, and a part of the input."""


@pytest.mark.parametrize("name", slow_after(5, FIRST_SHOWN))
@pytest.mark.usefixtures("on_cpu")
def test_a_planted_defect_shows_at_its_bound(name: str, tmp_path: Path) -> None:
    decision, bound, part = FIRST_SHOWN[name]
    with broken_subject(defect_named(name).variant, tmp_path) as subject:
        shown = first_failing(decision, subject)
    assert (shown[0], part in shown[1]) == (bound, True), shown


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
