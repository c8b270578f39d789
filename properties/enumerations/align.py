"""Requests of align mode up to a bound: which boundary they pass, where they go on, and in which slots they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import count, permutations
from typing import Any

from properties.enumerations.sizes import sums
from properties.strategies.align.batches import BatchAfterForward, BatchBeforeForward, BatchLayout
from properties.strategies.align.requests import RequestAfterStep, RequestBeforeStep
from properties.strategies.align.setup import Group, Kept, Setup
from statecheck.execution.enumerations import Enumeration

_MOST_SLOTS = 3


def _setup(block_size: int, spec: int) -> Setup:
    """A layer with a conv and a temporal state of two bytes a row, so that a shifted row shows."""
    states = Kept("conv", (2 + spec, 1)), Kept("temporal", (2,))
    return Setup((Group(states),), ("conv", "temporal"), block_size, spec)


def sampled(bound: int) -> Iterator[Mapping[str, Any]]:
    """One request after a forward: computed tokens, tokens and drafts of the step and block size add up to the bound."""
    for drafts, longer, computed, more in sums(bound, 4):
        for accepted in range(1, 2 + drafts):
            one = RequestAfterStep(computed, 1 + drafts + more, drafts, accepted)
            # A block has room for the drafts of a step.
            yield {"batch": BatchAfterForward(_setup(1 + drafts + longer, drafts), (one,))}


def starting(bound: int) -> Iterator[Mapping[str, Any]]:
    """One request before a forward: tokens, accepted and rejected drafts and block size add up to the bound."""
    for one, block_size, spec in _starting(bound):
        yield {"batch": BatchBeforeForward(_setup(block_size, spec), (one,))}


def joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The requests of both batches in one, if they are of one model: each row is decided by itself."""
    batch, more = one["batch"], other["batch"]
    if batch.setup != more.setup:
        return None
    return {"batch": replace(batch, requests=(*batch.requests, *more.requests))}


def _starting(bound: int) -> Iterator[tuple[RequestBeforeStep, int, int]]:
    """Requests, each with the least block size and number of drafts that it may have in this layer."""
    for accepted, rejected, longer, first, more in sums(bound, 5):
        spec = accepted + rejected
        # A new request has not accepted anything.
        if first or not spec:
            yield RequestBeforeStep(first, 1 + more, 1 + accepted, rejected), 1 + spec + longer, spec


def in_slots(bound: int) -> Iterator[Mapping[str, Any]]:
    """Up to three requests in every choice of up to three slots; their number, tokens and drafts and block size add up to the bound."""
    for number in range(1, min(bound, _MOST_SLOTS) + 1):
        for longer, spare, *sizes in sums(bound - number, number + 2):
            if number + spare <= _MOST_SLOTS:
                for requests in _rising_requests(sizes):
                    spec = max(one.accepted for one in requests) - 1
                    for slots in _choices(number + spare, number):
                        rows = BatchLayout(slots=_seeds(number + spare)[slots], spare=spare)
                        yield {"batch": BatchBeforeForward(_setup(1 + spec + longer, spec), requests, rows)}


def _rising_requests(sizes: list[int]) -> Iterator[tuple[RequestBeforeStep, ...]]:
    """Requests of these sizes, of those in another order the rising one: rows may stand in any order, as their slots do."""
    if not sizes:
        yield ()
        return
    for first, more, accepted in sums(sizes[0], 3):
        one = RequestBeforeStep(first, 1 + more, 1 + accepted)
        for rest in _rising_requests(sizes[1:]) if first or not accepted else ():
            if not rest or _key(one) <= _key(rest[0]):
                yield (one, *rest)


def _key(one: RequestBeforeStep) -> tuple[int, int, int]:
    return one.first_state, one.length, one.accepted


def _choices(capacity: int, rows: int) -> Iterator[tuple[int, ...]]:
    """The slots of the rows, in every way; the slots behind them in order, which makes no difference."""
    for chosen in permutations(range(capacity), rows):
        yield (*chosen, *(slot for slot in range(capacity) if slot not in chosen))


@cache
def _seeds(capacity: int) -> dict[tuple[int, ...], int]:
    """By order of the slots, a seed that shuffles them so."""
    found: dict[tuple[int, ...], int] = {}
    wanted = set(permutations(range(capacity)))
    for seed in count():
        if found.keys() == wanted:
            return found
        layout = BatchBeforeForward(_setup(1, 0), (RequestBeforeStep(),) * capacity, BatchLayout(slots=seed))
        found.setdefault(layout.slots, seed)
    raise AssertionError


_TOKENS: dict[str, Any] = {
    "bound": "tokens, drafts and block size - 1",
    "symmetry": "blocks are numbered in order",
    "left_out": "several groups and layers, wide states, other dtypes, the layout DS; rows that decide together",
    "joined": joined,
}
ENUMERATIONS = (
    Enumeration("boundary of V1", "v1-postprocess/boundary", sampled, **_TOKENS),
    Enumeration("boundary of V2", "v2-postprocess/boundary", sampled, **_TOKENS),
    Enumeration("copies", "precopy/running-column", starting, **_TOKENS),
    Enumeration("next columns", "preprocess-kernel/precopy", starting, **_TOKENS),
    Enumeration(
        "slots",
        "preprocess-kernel/columns",
        in_slots,
        bound="requests, tokens, accepted drafts and block size - 1",
        symmetry="of rows in another order the one with rising requests",
        left_out=f"more than {_MOST_SLOTS} slots, rejected drafts",
    ),
)
