"""Laws of blocks and of what they are promised to hold, whatever requests do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.lifecycle.ledger import ConvRows, Held
from oracle.lifecycle.requests import Geometry, Request, ScheduledRequest, SchedulerStep, Stage
from tests.oracle.lifecycle_scenarios import ALIGN, CONV_ROWS, Scenario, Turn


@dataclass(frozen=True)
class Event:
    """Something that happens to the engine; `number` says to which request, `turns` are the parts of all requests in a step."""

    what: str
    number: int = 0
    like: int = 0
    own: int = 1
    turns: tuple[tuple[int, int, int], ...] = ()


def deeds() -> st.SearchStrategy[list[Event]]:
    numbers = st.integers(0, 5)
    parts = st.tuples(st.sampled_from((64, 4, 64, 1, 0)), st.sampled_from((3, 0, 1, 2)), st.integers(1, 4))
    step = st.builds(Event, st.just("step"), turns=st.lists(parts, min_size=1, max_size=4).map(tuple))
    arrive = st.builds(Event, st.just("arrive"), numbers, st.integers(0, 20), st.integers(1, 9))
    others = st.builds(Event, st.sampled_from(("preempt", "finish", "reset")), numbers)
    return st.lists(st.one_of(step, step, step, step, arrive, others), min_size=20, max_size=40)


@st.composite
def geometries(draw: st.DrawFn, modes: Sequence[str] = ("align", "all", "none")) -> Geometry:
    """Small engines, of which some have blocks that are no longer than a token and its drafts."""
    mode = draw(st.sampled_from(modes))
    spec = 0 if mode == "all" else draw(st.integers(0, 3))
    size = 32 if mode == "none" else 1 + spec + draw(st.sampled_from((0, 1, 3)))
    groups, seqs = draw(st.sampled_from((1, 2))), draw(st.integers(1, 3))
    return Geometry(mode, size, spec, groups, draw(st.integers(6, 40)), seqs, 32)


class Laws(Scenario):
    """Holds every moment of a scenario against the laws."""

    def execute_all(self, deeds: Iterable[Event]) -> Laws:
        for number, deed in enumerate(deeds):
            self.execute(deed, f"r{number}")
            self.blocks_are_held_or_free()
        return self

    def live(self) -> list[Request]:
        return [
            request for request in self.scheduler.requests.values() if request.stage is not Stage.FINISHED
        ]

    def execute(self, deed: Event, name: str) -> None:
        live, known = self.live(), list(self.scheduler.requests.values())
        if deed.what == "arrive" or not live:
            first = known[deed.number % len(known)].tokens[: deed.like] if known else []
            self.arrive(name, [*first, *self.new(deed.own)][:28])
        elif deed.what == "step":
            self.step_all(deed)
        elif deed.what == "finish":
            self.scheduler.finish(live[deed.number % len(live)].id)
        elif deed.what == "reset":
            self.scheduler.reset()
        elif running := self.scheduler.running:
            self.step(preempted=[running[deed.number % len(running)].id])

    def step_all(self, deed: Event) -> None:
        for request in self.live():
            if len(request.tokens) >= 28:
                self.scheduler.finish(request.id)
        parts = {
            request_.id: deed.turns[number % len(deed.turns)] for number, request_ in enumerate(self.live())
        }
        turns = [
            Turn(name, tokens, drafts, accepts) for name, (tokens, drafts, accepts) in parts.items() if tokens
        ]
        before = dict(self.scheduler.pool.registered)
        step = self.step(*turns)
        assert not self.written & before.keys() - set(step.lost), "a step writes what was registered before"

    def _execute(self, step: SchedulerStep, accepts: dict[str, int]) -> None:
        writable = self.scheduler.writable(step)
        taken = {row.id: min(accepts[row.id], 1 + len(row.drafts)) for row in step.rows}
        before = self.ledger.held
        self.ledger.held = dict(before)
        super()._execute(step, taken)
        changed = {place for place, held in self.ledger.held.items() if before.get(place) != held}
        self.written = {block for _, block in writable}
        assert changed <= writable, f"{changed - writable} are promised, but no request may write them"
        assert not {block for _, block in self.ledger.held} & set(step.lost) - self.written
        self.registered_blocks_are_promised_exactly()
        for row in step.rows:
            self.is_found_where_the_next_step_reads(row, taken[row.id])
        self.workers_know_the_blocks()

    def holdings(self) -> Iterator[tuple[int, int]]:
        """The group and block of each column that is not null."""
        for request in self.live():
            for group, blocks in enumerate(request.lists):
                yield from ((group, block) for block in blocks.columns if block)

    def blocks_are_held_or_free(self) -> None:
        pool, holdings = self.scheduler.pool, list(self.holdings())
        count = Counter(block for _, block in holdings)
        blocks = range(1, self.geometry.num_blocks)
        assert {block: pool.holders(block) for block in blocks if pool.holders(block)} == count
        assert pool.num_free == len(blocks) - len(count)
        for group, block in set(holdings):
            if block not in pool.registered:
                assert count[block] == 1, f"{block} has two holders, but no request can have hit it"
            else:
                assert pool.registered[block][0] == group

    def registered_blocks_are_promised_exactly(self) -> None:
        for block, (group, prefix) in self.scheduler.pool.registered.items():
            assert self.ledger.held[group, block] == Held(prefix, ConvRows(prefix))
            assert self.scheduler.prefixes.length(prefix) % self.geometry.block_size == 0

    def is_found_where_the_next_step_reads(self, row: ScheduledRequest, accepts: int) -> None:
        """I1 and I5: the state after the tokens that will be computed is `accepts` - 1 behind, or in front."""
        known = row.end - len(row.drafts) + accepts - 1
        prefix = row.prefixes[known - row.computed - 1]
        run, size = self.ledger.columns[row.id], self.geometry.block_size
        front = self.geometry.mode == "align" and known == row.end and known % size == 0
        offset = 0 if front or row.is_prefilling else accepts - 1
        for group in range(self.geometry.num_groups):
            assert self.ledger.at(row.id, group, run + offset).temporal == prefix
            window = self.ledger.at(row.id, group, run).window
            assert window is not None
            rows = self.scheduler.prefixes.last(window.end, CONV_ROWS + window.newest)
            assert rows[offset : offset + CONV_ROWS] == self.scheduler.prefixes.last(prefix, CONV_ROWS)

    def workers_know_the_blocks(self) -> None:
        for request in self.scheduler.running:
            for blocks, listed in zip(request.lists, self.ledger.tables.get(request.id, []), strict=True):
                assert len(listed) == len(blocks.columns)
                assert all(slot in (0, known) for slot, known in zip(blocks.columns, listed, strict=True))


@settings(max_examples=40)
@given(geometries(), deeds())
def test_blocks_and_promises_keep_the_laws_whatever_requests_do(
    geometry: Geometry, deeds: list[Event]
) -> None:
    Laws(geometry).execute_all(deeds)


@settings(max_examples=40)
@given(deeds())
def test_everything_is_free_when_everybody_has_ended(deeds: list[Event]) -> None:
    scenario = Laws(replace(ALIGN, num_blocks=24, max_model_len=32)).execute_all(deeds)
    for request in scenario.live():
        scenario.scheduler.finish(request.id)
    assert scenario.scheduler.pool.num_free == 23
