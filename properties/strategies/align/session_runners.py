"""The calls that take a history through its steps, in rows and in slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from properties.strategies.align.batches import BatchLayout, table_by_slot
from properties.strategies.align.batches_after_forward import BatchAfterForward
from properties.strategies.align.requests import RequestAfterStep
from properties.strategies.align.runner import cleanup, scheduler_output
from properties.strategies.align.runners import InRows, InSlots
from properties.strategies.align.sessions import History, next_count
from properties.strategies.align.setup import column_of
from statecheck.case.values import Call, Let, Step, Value, int32


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
        sampled = [one.accepted for one in history.steps[number].values()]
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
        yield from self._runner.step(slots, [one.length for one in now.values()])
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
        counts = self._by_slot({request: one.accepted for request, one in done.items()})
        computed = self._by_slot({request: one.computed_after for request, one in done.items()})
        yield from self._runner.after(len(self.history.steps[number]), counts, computed)

    def _done(self, number: int) -> dict[int, RequestAfterStep]:
        """The last step of each request so far."""
        return {r: one for step in self.history.steps[: number + 1] for r, one in step.items()}


def look(history: History) -> Call:
    """A call that changes nothing and observes all pools."""
    nothing = cleanup(scheduler_output(()))
    return replace(nothing, observes=(*history.cache.observes, "state_idx"))


HistoryRunner = HistoryInRows | HistoryInSlots
