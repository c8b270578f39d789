"""Requests over several steps of align mode, as either runner takes them through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Any, Self

from hypothesis import strategies as st

from oracle.profile import DOCUMENTS, Profile
from oracle.situations.align import decisions
from properties.harness.case.values import Call, Let, Overwrite, Step, Value, int32
from properties.strategies.align import Setup, column_of, setups
from properties.strategies.align_batches import After, Before, Standing
from properties.strategies.align_cache import PLAIN, Cache, Filling
from properties.strategies.align_requests import Sampled
from properties.strategies.align_runner import (
    Scheduled,
    buffers,
    cleanup,
    postprocess,
    preprocess,
    scheduler_output,
    stage,
)
from properties.strategies.align_states import Recurrence, places
from properties.strategies.orders import schedules, without_warps
from properties.strategies.situations import NamedSituations, named, noted


@dataclass(frozen=True)
class Turn:
    """A step of a request: how many tokens are scheduled, how many of them are drafts, and how many it accepts."""

    length: int = 1
    drafts: int = 0
    accepted: int = 1


@dataclass(frozen=True)
class Life:
    """A request: blocks that a prefix hit gives it, and its steps."""

    turns: tuple[Turn, ...]
    hit: int = 0

    def steps(self, block_size: int) -> list[Sampled]:
        """Each step as it stands after its forward."""
        found: list[Sampled] = []
        computed = self.hit * block_size
        for turn in self.turns:
            found.append(Sampled(computed, turn.length, turn.drafts, turn.accepted))
            computed = found[-1].computed_after
        return found


def next_count(one: Sampled, block_size: int) -> int:
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
    lives: tuple[Life, ...]
    slots: int = 0
    filling: Filling = PLAIN
    schedule: str = ""
    profile: Profile = field(default=DOCUMENTS, repr=False, kw_only=True)
    """Of the release whose steps it makes."""

    def of_release(self, profile: Profile) -> Self:
        return replace(self, profile=profile)

    @cached_property
    def steps(self) -> list[dict[int, Sampled]]:
        """The requests in each step, in the order of rows."""
        lives = [life.steps(self.setup.block_size) for life in self.lives]
        last = max(map(len, lives), default=0)
        return [{r: life[k] for r, life in enumerate(lives) if k < len(life)} for k in range(last)]

    @cached_property
    def cache(self) -> Cache:
        """Every column that a request ever has, has a block of its own from the beginning."""
        columns = []
        for life in self.lives:
            ends = [one.running(self.setup.block_size) for one in life.steps(self.setup.block_size)]
            columns.append(tuple(range(max(ends) + 1 + self.setup.num_spec)))
        return Cache(self.setup, tuple(columns), tuple(range(len(self.lives))), self.filling)

    def rows(self, number: int) -> list[Scheduled]:
        """The requests in step `number`."""
        return [
            Scheduled(f"r{request}", request, one.computed, one.length, one.drafts)
            for request, one in self.steps[number].items()
        ]

    @cached_property
    def recurrence(self) -> Recurrence:
        return Recurrence(self.cache)

    def hits(self) -> Iterator[Step]:
        """Write what prefix hits promise: the state at the end of their last block."""
        for request, life in enumerate(self.lives):
            for place in places(self.cache) if life.hit else ():
                tokens = life.hit * self.setup.block_size
                yield from self.recurrence.written(place, request, life.hit - 1, tokens)

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
        pairs = [pair for life in self.lives for pair in _pairs(life.steps(size))]
        changes = (
            decisions.at_change(one.running(size), other.running(size), next_count(one, size))
            for one, other in pairs
        )
        return {
            "several steps": len(self.steps) > 1,
            "several requests": len(self.lives) > 1,
            "a request ends before another": len({len(life.turns) for life in self.lives}) > 1,
            "a prefix hit": any(life.hit for life in self.lives),
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
        }


def _pairs(steps: list[Sampled]) -> list[tuple[Sampled, Sampled]]:
    return list(pairwise(steps))


class ByRow:
    """The runner that keeps requests in rows, through device tables or through lists of pointers."""

    def __init__(self, history: History, *, pointers: bool) -> None:
        self.history, self.pointers = history, pointers
        self.size = max(1, len(history.lives))

    def begin(self) -> Iterator[Step]:
        yield from self.history.cache.steps()
        yield buffers(self.history.setup, self.size)
        yield from self.history.hits()
        yield Let("state_idx", {})
        yield Let("counts", int32([1] * self.size))
        yield Let("accepted", int32([1] * self.size).on_host())

    def before(self, number: int) -> Iterator[Step]:
        """Up to the forward; the last call leaves its accepted counts in `accepted`."""
        history, rows = self.history, self.history.rows(number)
        known = {row.id for row in rows}
        gone = [row.id for row in history.rows(number - 1) if row.id not in known] if number else []
        output = scheduler_output(rows, finished=gone)
        if gone:
            yield from self._condense(number)
        yield preprocess(
            history.cache,
            rows,
            output,
            pointers=self.pointers,
            copy_bufs="bufs.preprocess",
            schedule=history.schedule,
        )

    def counts(self, number: int, left: Mapping[str, Value]) -> dict[int, int]:
        """The accepted counts that `before` left, by request."""
        return dict(zip(self.history.steps[number], left["accepted"].values(), strict=False))

    def after(self, number: int) -> Iterator[Step]:
        """From the forward on."""
        history, rows = self.history, self.history.rows(number)
        yield stage(history.cache, rows, scheduler_output(rows), "bufs.postprocess_align")
        yield from history.forward(number)
        yield Overwrite("counts", self._by_row([one.accepted for one in history.steps[number].values()]))
        yield postprocess(history.cache, rows, schedule=history.schedule)

    def _condense(self, number: int) -> Iterator[Step]:
        """Rows of finished requests are filled with those behind them; tables and counts move along."""
        history, before = self.history, self.history.steps[number - 1]
        live = tuple(history.steps[number])
        moved = replace(history.cache, rows=live + (None,) * (self.size - len(live)))
        for group in range(len(history.setup.groups)):
            yield Overwrite(f"table{group}", moved.table(group).elements or ())
        counts = [next_count(before[request], history.setup.block_size) for request in live]
        yield Overwrite("accepted", self._by_row(counts))

    def _by_row(self, values: list[int]) -> tuple[int, ...]:
        return (*values, *(1,) * (self.size - len(values)))


class BySlot:
    """The runner that keeps requests in slots: decisions are the device's, from counts that stay there."""

    def __init__(self, history: History) -> None:
        self.history = history
        requests = tuple(Sampled() for _ in history.lives)
        self.slots = After(history.setup, requests, Standing(slots=history.slots)).slots

    def begin(self) -> Iterator[Step]:
        history, size = self.history, max(1, len(self.slots))
        yield from history.cache.steps()
        yield from history.hits()
        yield history.setup.create(size)
        yield history.setup.initialize()
        first = [
            column_of(life.hit * history.setup.block_size, history.setup.block_size) for life in history.lives
        ]
        computed = [life.hit * history.setup.block_size for life in history.lives]
        for name, values in {
            "columns": first,
            "computed": computed,
            "counts": [1] * size,
            "src_col": [0] * size,
            "bias": [0] * size,
        }.items():
            yield Let(name, int32(self._by_slot(dict(enumerate(values)), size)))

    def _by_slot(self, values: dict[int, int], size: int) -> tuple[int, ...]:
        found = [1] * size
        for request, value in values.items():
            found[self.slots[request]] = value
        return tuple(found)

    def before(self, number: int) -> Iterator[Step]:
        """As of `ByRow`; the counts are left in `counts`."""
        history, now = self.history, self.history.steps[number]
        live = tuple(now)
        tables = replace(history.cache, rows=self._table_order(live))
        for group in range(len(history.setup.groups)):
            yield Overwrite(f"table{group}", tables.table(group).elements or ())
        yield Let("mapping", int32([self.slots[request] for request in live]))
        yield Let("starts", int32(tuple(accumulate((one.length for one in now.values()), initial=0))))
        launches = Before(history.setup, (), Standing(), history.filling, history.schedule)
        yield _with_rows(launches.preprocess(), len(live))
        copied = self._on(launches.precopy(), len(live))
        yield replace(copied, observes=(*copied.observes, "counts"))

    def _table_order(self, live: tuple[int, ...]) -> tuple[int | None, ...]:
        """The request of each row of the block tables."""
        if not self.history.profile.tables_by_slot:
            return live + (None,) * (len(self.slots) - len(live))
        by_slot = {self.slots[request]: request for request in live}
        return tuple(by_slot.get(slot) for slot in range(len(self.slots)))

    def counts(self, number: int, left: Mapping[str, Value]) -> dict[int, int]:
        """As of `ByRow`."""
        return {
            request: left["counts"].values()[self.slots[request]] for request in self.history.steps[number]
        }

    def after(self, number: int) -> Iterator[Step]:
        """From the forward on."""
        history, size = self.history, max(1, len(self.slots))
        yield from history.forward(number)
        done = self._done(number)
        yield Overwrite("counts", self._by_slot({r: one.accepted for r, one in done.items()}, size))
        yield Overwrite("computed", self._by_slot({r: one.computed_after for r, one in done.items()}, size))
        after = After(history.setup, (), Standing(), history.filling, history.schedule)
        yield self._on(after.postprocess_align(), len(history.steps[number]))

    def _done(self, number: int) -> dict[int, Sampled]:
        """The last step of each request so far."""
        return {r: one for step in self.history.steps[: number + 1] for r, one in step.items()}

    def _on(self, launch: Call, num_reqs: int) -> Call:
        arguments = dict(launch.arguments) | {"num_reqs": num_reqs}
        own = tuple(name for name in launch.observes if not name.startswith("pool"))
        return replace(
            launch, arguments=tuple(arguments.items()), observes=(*self.history.cache.observes, *own)
        )


def _with_rows(launch: Call, num_reqs: int) -> Call:
    named = dict(launch.arguments)
    named["arguments"] = named["arguments"] | {"num_reqs": num_reqs}
    return replace(launch, arguments=tuple(named.items()))


def look(history: History) -> Call:
    """A call that changes nothing and observes all pools."""
    nothing = cleanup(scheduler_output(()))
    return replace(nothing, observes=(*history.cache.observes, "state_idx"))


def histories(*, min_spec: int = 1, max_lives: int = 3, max_decodes: int = 4) -> st.SearchStrategy[History]:
    """Requests with a prompt each, then decodes."""
    return _histories(setups(min_spec=min_spec, large=False), max_lives, max_decodes).map(noted)


@st.composite
def _histories(
    draw: st.DrawFn, models: st.SearchStrategy[Setup], max_lives: int, max_decodes: int
) -> History:
    setup = draw(models)
    parts = draw(_parts(setup.block_size, setup.num_spec, max_lives, max_decodes))
    lives = parts.pop("lives")[: setup.most_requests(max_lives)]
    history = History(setup, lives, **parts)
    turns = sum(len(life.turns) for life in lives)
    if turns * setup.num_copies <= _MOST_BY_WARPS:
        return history
    return replace(history, schedule=without_warps(history.schedule))


_MOST_BY_WARPS = 8
"""States that all steps together may copy by several warps."""


@cache
def _parts(size: int, spec: int, max_lives: int, max_decodes: int) -> st.SearchStrategy[dict[str, Any]]:
    """What a history is made of beside its model, as keywords; made once, which takes longer than drawing."""

    def decode(accepted: int, rejected: int) -> Turn:
        drafts = accepted + min(rejected, spec - accepted)
        return Turn(1 + drafts, drafts, 1 + accepted)

    drafts = st.integers(0, spec)
    decodes = st.builds(decode, drafts, drafts)
    rejecting = st.builds(lambda drafts: (decode(0, drafts), decode(0, 0)), drafts)
    turns = st.lists(decodes, max_size=max_decodes) | rejecting
    life = st.builds(
        lambda prompt, turns, hit: Life((Turn(prompt), *turns), hit),
        st.integers(1, 2 * size + 1),
        turns,
        st.sampled_from((0, 0, 1)),
    )
    return st.builds(
        dict,
        lives=st.lists(life, min_size=1, max_size=max_lives).map(tuple),
        slots=st.integers(0, 3),
        filling=st.builds(Filling, shuffle=st.integers(0, 2), seed=st.integers(0, 3)),
        schedule=schedules(),
    )


Runner = ByRow | BySlot
