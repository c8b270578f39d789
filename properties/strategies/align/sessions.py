"""Requests over several steps of align mode, and the calls that take them through, in rows and in slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Self

from hypothesis import strategies as st

from properties.strategies.align.batches import BatchAfterForward, BatchLayout, table_by_slot
from properties.strategies.align.cache import PLAIN, Cache, Filling, Recurrence, places
from properties.strategies.align.requests import RequestAfterStep
from properties.strategies.align.runner import InRows, InSlots, Scheduled, cleanup, scheduler_output
from properties.strategies.align.setup import Setup, column_of, setups
from properties.strategies.bounds import MANY_ROWS, crowded, crowds
from properties.strategies.orders import schedules
from statecheck.case.values import Call, Let, Overwrite, Step, Value, int32
from statecheck.subject.profile import DOCUMENTS, Profile


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


def next_count(request: RequestAfterStep, block_size: int) -> int:
    """The accepted count that the request's next step starts with."""
    return (
        1
        if request.published(block_size) == request.running(block_size) and request.bias(block_size) >= 0
        else request.accepted
    )


@dataclass(frozen=True)
class History:
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
            Scheduled(f"r{request}", request, step.computed, step.length, step.drafts)
            for request, step in self.steps[number].items()
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
        for request, step in self.steps[number].items():
            run, prompt = step.running(self.setup.block_size), number == 0
            for place in places(self.cache):
                if prompt:
                    yield from self.recurrence.written(place, request, run, step.computed + step.length)
                elif self.recurrence.rows(place):
                    newest = step.length - 1
                    yield from self.recurrence.written(place, request, run, step.computed + 1, newest)
                else:
                    for token in range(step.length):
                        tokens = step.computed + 1 + token
                        yield from self.recurrence.written(place, request, run + token, tokens)

    def misread(self, number: int, left: Mapping[str, Value], counts: Mapping[int, int]) -> str:
        """The first wrong state that the forward of step `number` would read, in words; "" for none.

        Args:
            left: the pools before the forward.
            counts: by request, the accepted tokens whose state it starts from.
        """
        for request, step in self.steps[number].items():
            if step.computed:
                run = step.running(self.setup.block_size)
                message = self._wrong(request, run, counts[request] - 1, step.computed, left)
                if message:
                    return f"before step {number}, {message}"
        return ""

    def misstored(self, number: int, left: Mapping[str, Value]) -> str:
        """Which block that is full after step `number` does not have the state at its end, in words."""
        for request, step in self.steps[number].items():
            if step.bias(self.setup.block_size) >= 0:
                column, tokens = step.published(self.setup.block_size), step.boundary(self.setup.block_size)
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
                state = f"state {place.number} of group {place.group} in {place.pool}"
                further = f" and {offset} tokens on" if offset else ""
                location = f"{state}, column {column}{further} of request {request}"
                return f"{location} = {found.hex(' ')}, but should be {right.hex(' ')}, the state after {tokens} tokens"
        return ""


def histories(
    *, min_spec: int = 1, max_requests: int = 3, max_decodes: int = 4
) -> st.SearchStrategy[History]:
    """Requests with a prompt each, then decodes."""
    return _histories(setups(min_spec=min_spec, large=False), max_requests, max_decodes)


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
    """The parts of a history beside its model, as keywords; made once, which takes longer than drawing."""

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


class HistoryInRows:
    """A history that the runner takes through its steps which keeps requests in rows, by device tables or lists of pointers."""

    def __init__(self, history: History, *, pointers: bool) -> None:
        self.history, self.size = history, max(1, len(history.requests))
        self._runner = InRows(history.setup, self.size, pointers, history.schedule)

    def begin(self) -> Iterator[Step]:
        yield from self.history.cache.steps()
        yield self._runner.begin()
        yield from self.history.hits()
        yield from self._runner.named()

    def before(self, number: int) -> Iterator[Step]:
        """Up to the forward; the last call leaves its accepted counts in `accepted`."""
        rows = self.history.rows(number)
        known = {row.id for row in rows}
        gone = [row.id for row in self.history.rows(number - 1) if row.id not in known] if number else []
        if gone:
            yield from self._condense(number)
        yield self._runner.before(self.history.cache, rows, scheduler_output(rows, finished=gone))

    def counts(self, number: int, left: Mapping[str, Value]) -> dict[int, int]:
        """The accepted counts that `before` left, by request."""
        return dict(zip(self.history.steps[number], left["accepted"].values(), strict=False))

    def after(self, number: int) -> Iterator[Step]:
        """From the forward on."""
        history, rows = self.history, self.history.rows(number)
        yield self._runner.staged(history.cache, rows, scheduler_output(rows))
        yield from history.forward(number)
        sampled = [step.accepted for step in history.steps[number].values()]
        yield from self._runner.after(history.cache, rows, sampled)

    def _condense(self, number: int) -> Iterator[Step]:
        """Rows of finished requests are filled with those behind them; tables and counts move along."""
        history, before = self.history, self.history.steps[number - 1]
        live = tuple(history.steps[number])
        yield from history.tables(live + (None,) * (self.size - len(live)))
        yield self._runner.counted(
            [next_count(before[request], history.setup.block_size) for request in live]
        )


class HistoryInSlots:
    """As `HistoryInRows`, for the runner that keeps requests in slots: decisions are the device's, from counts that stay there."""

    def __init__(self, history: History) -> None:
        self.history = history
        requests = tuple(RequestAfterStep() for _ in history.requests)
        self.slots = BatchAfterForward(history.setup, requests, BatchLayout(slots=history.slots)).slots
        size = max(1, len(self.slots))
        self._runner = InSlots(history.setup, size, history.cache.observes, history.schedule)

    def begin(self) -> Iterator[Step]:
        history, size = self.history, self._runner.size
        yield from history.cache.steps()
        yield from history.hits()
        yield from self._runner.begin()
        computed = [request.hit * history.setup.block_size for request in history.requests]
        for name, values in {
            "columns": [column_of(tokens, history.setup.block_size) for tokens in computed],
            "computed": computed,
            "counts": [1] * size,
            "src_col": [0] * size,
            "bias": [0] * size,
        }.items():
            yield Let(name, int32(self._by_slot(dict(enumerate(values)))))

    def _by_slot(self, values: dict[int, int]) -> tuple[int, ...]:
        found = [1] * self._runner.size
        for request, value in values.items():
            found[self.slots[request]] = value
        return tuple(found)

    def before(self, number: int) -> Iterator[Step]:
        """As of `HistoryInRows`; the counts are left in `counts`."""
        now = self.history.steps[number]
        live = tuple(now)
        yield from self.history.tables(self._table_order(live))
        slots = [self.slots[request] for request in live]
        yield from self._runner.step(slots, [step.length for step in now.values()])
        yield self._runner.advance(len(live))
        yield self._runner.precopy(len(live), ("counts",))

    def _table_order(self, live: tuple[int, ...]) -> tuple[int | None, ...]:
        """The request of each row of the block tables."""
        if self.history.profile.tables_by_slot:
            return table_by_slot(live, [self.slots[request] for request in live], len(self.slots), None)
        return live + (None,) * (len(self.slots) - len(live))

    def counts(self, number: int, left: Mapping[str, Value]) -> dict[int, int]:
        """As of `HistoryInRows`."""
        return {
            request: left["counts"].values()[self.slots[request]] for request in self.history.steps[number]
        }

    def after(self, number: int) -> Iterator[Step]:
        """From the forward on."""
        yield from self.history.forward(number)
        done = self._done(number)
        counts = self._by_slot({request: step.accepted for request, step in done.items()})
        computed = self._by_slot({request: step.computed_after for request, step in done.items()})
        yield from self._runner.after(len(self.history.steps[number]), counts, computed)

    def _done(self, number: int) -> dict[int, RequestAfterStep]:
        """The last step of each request so far."""
        return {
            request: step for steps in self.history.steps[: number + 1] for request, step in steps.items()
        }


def look(history: History) -> Call:
    """A call that changes nothing and observes all pools."""
    nothing = cleanup(scheduler_output(()))
    return replace(nothing, observes=(*history.cache.observes, "state_idx"))


HistoryRunner = HistoryInRows | HistoryInSlots
