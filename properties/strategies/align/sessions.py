"""Requests over several steps of align mode, as either runner takes them through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, Self

from hypothesis import strategies as st

from oracle.profile import DOCUMENTS, Profile
from oracle.situations.align import decisions
from properties.strategies.align.cache import PLAIN, Cache, Filling
from properties.strategies.align.requests import RequestAfterStep
from properties.strategies.align.runner import Scheduled
from properties.strategies.align.setup import Setup
from properties.strategies.align.setups import setups
from properties.strategies.align.states import Recurrence, places
from properties.strategies.bounds import MANY_ROWS, crowded, crowds
from properties.strategies.orders import schedules
from properties.strategies.situations import NamedSituations, named, noted
from statecheck.case.values import Overwrite, Step, Value


@dataclass(frozen=True)
class SessionStep:
    """A step of a request: how many tokens are scheduled, how many of them are drafts, and how many it accepts."""

    length: int = 1
    drafts: int = 0
    accepted: int = 1


@dataclass(frozen=True)
class SessionRequest:
    """A request: blocks that a prefix hit gives it, and its steps."""

    turns: tuple[SessionStep, ...]
    hit: int = 0

    def steps(self, block_size: int) -> list[RequestAfterStep]:
        """Each step as it stands after its forward."""
        found: list[RequestAfterStep] = []
        computed = self.hit * block_size
        for turn in self.turns:
            found.append(RequestAfterStep(computed, turn.length, turn.drafts, turn.accepted))
            computed = found[-1].computed_after
        return found


def next_count(one: RequestAfterStep, block_size: int) -> int:
    """The accepted count that the step after `one` starts with."""
    return (
        1
        if one.published(block_size) == one.running(block_size) and one.bias(block_size) >= 0
        else one.accepted
    )


@dataclass(frozen=True)
class History(NamedSituations):
    """Requests that start together and take a step at a time, until each has taken all of its own."""

    setup: Setup
    requests: tuple[SessionRequest, ...]
    slots: int = 0
    filling: Filling = PLAIN
    schedule: str = ""
    profile: Profile = field(default=DOCUMENTS, repr=False, kw_only=True)
    """Of the release whose steps it makes."""

    def of_release(self, profile: Profile) -> Self:
        return replace(self, profile=profile)

    @cached_property
    def steps(self) -> list[dict[int, RequestAfterStep]]:
        """The requests in each step, in the order of rows."""
        every = [request.steps(self.setup.block_size) for request in self.requests]
        last = max(map(len, every), default=0)
        return [{r: steps[k] for r, steps in enumerate(every) if k < len(steps)} for k in range(last)]

    @cached_property
    def cache(self) -> Cache:
        """Every column that a request ever has, has a block of its own from the beginning."""
        columns = []
        for request in self.requests:
            ends = [step.running(self.setup.block_size) for step in request.steps(self.setup.block_size)]
            columns.append(tuple(range(max(ends) + 1 + self.setup.num_spec)))
        return Cache(self.setup, tuple(columns), tuple(range(len(self.requests))), self.filling)

    def rows(self, number: int) -> list[Scheduled]:
        """The requests in step `number`."""
        return [
            Scheduled(f"r{request}", request, one.computed, one.length, one.drafts)
            for request, one in self.steps[number].items()
        ]

    def tables(self, rows: tuple[int | None, ...]) -> Iterator[Step]:
        """Write block tables with these requests in their rows."""
        moved = replace(self.cache, rows=rows)
        for group in range(len(self.setup.groups)):
            yield Overwrite(f"table{group}", moved.table(group).elements or ())

    @cached_property
    def recurrence(self) -> Recurrence:
        return Recurrence(self.cache)

    def hits(self) -> Iterator[Step]:
        """Write what prefix hits promise: the state at the end of their last block."""
        for number, request in enumerate(self.requests):
            for place in places(self.cache) if request.hit else ():
                tokens = request.hit * self.setup.block_size
                yield from self.recurrence.written(place, number, request.hit - 1, tokens)

    def forward(self, number: int) -> Iterator[Step]:
        """Write the states that the forward of step `number` leaves.

        Of a decode, one temporal state per token, in a column each, and one conv state with all tokens' rows.
        """
        for request, one in self.steps[number].items():
            run, prompt = one.running(self.setup.block_size), number == 0
            for place in places(self.cache):
                if prompt:
                    yield from self.recurrence.written(place, request, run, one.computed + one.length)
                elif self.recurrence.rows(place):
                    newest = one.length - 1
                    yield from self.recurrence.written(place, request, run, one.computed + 1, newest)
                else:
                    for token in range(one.length):
                        tokens = one.computed + 1 + token
                        yield from self.recurrence.written(place, request, run + token, tokens)

    def misread(self, number: int, left: Mapping[str, Value], counts: Mapping[int, int]) -> str:
        """What the forward of step `number` would read that is not the state of its computed tokens, in words.

        Args:
            left: the pools before the forward.
            counts: by request, the accepted tokens whose state it starts from.
        """
        for request, one in self.steps[number].items():
            if one.computed:
                run = one.running(self.setup.block_size)
                message = self._wrong(request, run, counts[request] - 1, one.computed, left)
                if message:
                    return f"before step {number}, {message}"
        return ""

    def misstored(self, number: int, left: Mapping[str, Value]) -> str:
        """Which block that is full after step `number` does not have the state at its end, in words."""
        for request, one in self.steps[number].items():
            if one.bias(self.setup.block_size) >= 0:
                column, tokens = one.published(self.setup.block_size), one.boundary(self.setup.block_size)
                message = self._wrong(request, column, 0, tokens, left)
                if message:
                    return f"after step {number}, {message}"
        return ""

    def _wrong(self, request: int, column: int, offset: int, tokens: int, left: Mapping[str, Value]) -> str:
        pools = {name: bytes(left[name].elements) for name in self.setup.pools}
        for place in places(self.cache):
            found = self.recurrence.read(place, request, column, offset, pools)
            right = self.recurrence.right(place, request, tokens)
            if found != right:
                which = f"state {place.number} of group {place.group} in {place.pool}"
                further = f" and {offset} tokens on" if offset else ""
                what = f"{which}, column {column}{further} of request {request}"
                return f"{what} = {found.hex(' ')}, but should be {right.hex(' ')}, the state after {tokens} tokens"
        return ""

    def conditions(self) -> dict[str, bool]:
        size = self.setup.block_size
        every = [one for step in self.steps for one in step.values()]
        pairs = [pair for request in self.requests for pair in pairwise(request.steps(size))]
        changes = (
            decisions.at_change(one.running(size), other.running(size), next_count(one, size))
            for one, other in pairs
        )
        return {
            "several steps": len(self.steps) > 1,
            "several requests": len(self.requests) > 1,
            "a request ends before another": len({len(request.turns) for request in self.requests}) > 1,
            "a prefix hit": any(request.hit for request in self.requests),
            "stored in another column": any(
                one.bias(size) >= 0 and one.published(size) != one.running(size) for one in every
            ),
            "shifted in place": any(
                one.bias(size) > 0 and one.published(size) == one.running(size) for one in every
            ),
            **named((decisions.COMES_OFFSET, decisions.STAYS_OFFSET, decisions.BACK), changes),
            "channel-first layout": self.setup.layout == "DS",
            "two groups": len(self.setup.groups) > 1,
            "slots out of order": self.slots > 0,
            "more requests than eight": len(self.requests) > 8,
            "five drafts accepted or more": any(one.accepted > 5 for one in every),
        }


def histories(
    *, min_spec: int = 1, max_requests: int = 3, max_decodes: int = 4
) -> st.SearchStrategy[History]:
    """Requests with a prompt each, then decodes."""
    return _histories(setups(min_spec=min_spec, large=False), max_requests, max_decodes).map(noted)


@st.composite
def _histories(
    draw: st.DrawFn, models: st.SearchStrategy[Setup], max_requests: int, max_decodes: int
) -> History:
    setup = draw(models)
    many = draw(_CROWDS) if setup.block_size < MOST_CROWDED_BLOCK else 0
    parts = draw(_parts(setup.block_size, setup.num_spec, max_requests, max_decodes))
    requests = crowded(parts.pop("requests"), many)[: setup.most_requests(max(max_requests, many))]
    return History(setup, tuple(requests), **parts)


MOST_CROWDED_BLOCK = 2**20
"""Tokens of a block from which on a step of many prompts has more tokens than an int32 counts."""
_CROWDS = crowds(MANY_ROWS[:1])


@cache
def _parts(size: int, spec: int, max_requests: int, max_decodes: int) -> st.SearchStrategy[dict[str, Any]]:
    """What a history is made of beside its model, as keywords; made once, which takes longer than drawing."""

    def decode(accepted: int, rejected: int) -> SessionStep:
        drafts = accepted + min(rejected, spec - accepted)
        return SessionStep(1 + drafts, drafts, 1 + accepted)

    drafts = st.integers(0, spec)
    decodes = st.builds(decode, drafts, drafts)
    rejecting = st.builds(lambda drafts: (decode(0, drafts), decode(0, 0)), drafts)
    turns = st.lists(decodes, max_size=max_decodes) | rejecting
    request = st.builds(
        lambda prompt, turns, hit: SessionRequest((SessionStep(prompt), *turns), hit),
        st.integers(1, 2 * size + 1),
        turns,
        st.sampled_from((0, 0, 1)),
    )
    return st.builds(
        dict,
        requests=st.lists(request, min_size=1, max_size=max_requests).map(tuple),
        slots=st.integers(0, 3),
        filling=st.builds(Filling, shuffle=st.integers(0, 2), seed=st.integers(0, 3)),
        schedule=schedules(),
    )
