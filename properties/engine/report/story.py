"""Keeps the last moments of an engine, and makes block tables of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from oracle.lifecycle.blocks import NULL_BLOCK
from oracle.lifecycle.ledger import NOTHING, Held, StateLedger
from oracle.lifecycle.scheduler import Scheduler
from properties.engine.flaws import Flaw
from properties.engine.metadata import ForwardBatch
from properties.engine.report.contents import Content, Contents, Pools
from properties.engine.report.words import tokens as token_count
from statecheck.case.timeline import Cell, Moment, TableRow, Timeline, WrongCell

KEPT = 18
"""Moments that block tables show at most."""


@dataclass(frozen=True)
class Snapshot:
    """What was promised at a moment: tables by request and group, contents by (group, block)."""

    title: str
    tables: dict[str, list[list[int]]]
    held: dict[tuple[int, int], Held]
    columns: dict[str, int]
    published: frozenset[int]
    pools: Pools | None = None
    """The pools once they were looked at; None where the moment was not over."""


@dataclass(eq=False)
class Story:
    """The last moments of an engine."""

    scheduler: Scheduler
    ledger: StateLedger
    contents: Contents
    _snapshots: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=KEPT))

    def before(self, step: int, batch: ForwardBatch) -> None:
        """The moment between the copies in front of a forward and the forward."""
        self._keep(f"step {step}, before the forward: {_work(batch)}", batch)

    def forwarded(self, step: int, batch: ForwardBatch) -> None:
        """The moment between the forward and the copies behind it."""
        self._keep(f"step {step}, after the forward", batch)

    def after(self, step: int, batch: ForwardBatch, accepted: Mapping[str, int]) -> None:
        """The moment after everything."""
        counts = ", ".join(f"{row.id} accepts {accepted[row.id]}" for row in batch.rows if row.samples)
        self._keep(f"step {step}, after it: {counts or 'no request samples'}", batch)

    def _keep(self, title: str, batch: ForwardBatch) -> None:
        ids = tuple(row.id for row in batch.rows)
        tables = {request: [list(table) for table in self.ledger.tables[request]] for request in ids}
        published = frozenset(self.scheduler.pool.registered)
        held = dict(self.ledger.held)
        self._snapshots.append(Snapshot(title, tables, held, dict(self.ledger.columns), published))

    def look(self) -> None:
        """Keep a copy of the pools with the last moment, which is over."""
        if self._snapshots:
            self._snapshots[-1] = replace(self._snapshots[-1], pools=self.contents.copied())

    def timeline(self, flaw: Flaw) -> Timeline:
        """The block tables of a violation: the moments up to it, and the wrong cell where a table has the block."""
        if self._snapshots and self._snapshots[-1].pools is None:
            self.look()
        moments = tuple(self._moment(snapshot, flaw, last) for snapshot, last in self._with_last())
        return Timeline(moments, self._finding(flaw, moments))

    def _with_last(self) -> list[tuple[Snapshot, bool]]:
        count = len(self._snapshots)
        return [(snapshot, number == count - 1) for number, snapshot in enumerate(self._snapshots)]

    def _moment(self, snapshot: Snapshot, flaw: Flaw, last: bool) -> Moment:
        rows = [
            self._row(snapshot, request, group, flaw if last else None)
            for request, tables in snapshot.tables.items()
            for group in range(len(tables))
        ]
        return Moment(snapshot.title, tuple(rows))

    def _row(self, snapshot: Snapshot, request: str, group: int, flaw: Flaw | None) -> TableRow:
        cells = tuple(self._cell(snapshot, group, block, flaw) for block in snapshot.tables[request][group])
        return TableRow(request, group, snapshot.columns[request], cells)

    def _cell(self, snapshot: Snapshot, group: int, block: int, flaw: Flaw | None) -> Cell:
        if block == NULL_BLOCK:
            return Cell(block, "", published=block in snapshot.published)
        held = snapshot.held.get((group, block), NOTHING)
        found = self._found(snapshot, group, block, held)
        accused = flaw is not None and (flaw.group, flaw.block) == (group, block)
        tokens = None if found.prefix is None else self.scheduler.prefixes.length(found.prefix)
        owner = "" if found.prefix is None else self._owner(found.prefix)
        part, expected = ("" if found.row is None else f"row {found.row}: "), ""
        if found.promised is not None:
            count = self.scheduler.prefixes.length(found.promised)
            expected = f"{token_count(count)} {self._owner(found.promised)}" if count else "zeros"
        wrong = accused or bool(expected)
        published = block in snapshot.published
        return Cell(block, part + found.words, tokens, owner, published, wrong, expected)

    def _found(self, snapshot: Snapshot, group: int, block: int, held: Held) -> Content:
        if snapshot.pools is not None:
            return self.contents.of(snapshot.pools, group, block, held)
        prefix = held.temporal if held.temporal is not None else held.window.end if held.window else None
        words = "no promise" if prefix is None else token_count(self.scheduler.prefixes.length(prefix))
        return Content(words, prefix)

    def _owner(self, prefix: int) -> str:
        count = self.scheduler.prefixes.length(prefix)
        for request in self.scheduler.requests.values():
            if count < len(request.prefixes) and request.prefixes[count] == prefix:
                return request.id
        return "drafts"

    def _finding(self, flaw: Flaw, moments: tuple[Moment, ...]) -> WrongCell | None:
        if flaw.request:
            return self._first_wrong(flaw, moments)
        place = self._last_place(flaw.group, flaw.block)
        if place is None or flaw.group is None:
            return None
        request, column = place
        return WrongCell(len(moments) - 1, request, flaw.group, column, flaw.message)

    def _first_wrong(self, flaw: Flaw, moments: tuple[Moment, ...]) -> WrongCell | None:
        """The wrong cell of a wrong output: the first block with a wrong state; without any, the column of the last run."""
        if not moments:
            return None
        for number, moment in enumerate(moments):
            for row in moment.rows:
                for column, cell in enumerate(row.cells):
                    if cell.expected:
                        text = f"{cell.holds} instead of {cell.expected}; {flaw.message}"
                        return WrongCell(number, row.request, row.group, column, text)
        last = (row for row in moments[-1].rows if row.request == flaw.request and row.run is not None)
        ran = next(last, None)
        if ran is None or ran.run is None or ran.run >= len(ran.cells):
            return None
        return WrongCell(len(moments) - 1, ran.request, ran.group, ran.run, flaw.message)

    def _last_place(self, group: int | None, block: int | None) -> tuple[str, int] | None:
        """The request and the column that a block has in the last moment."""
        if not self._snapshots or group is None or not block:
            return None
        for request, tables in self._snapshots[-1].tables.items():
            if group < len(tables) and block in tables[group]:
                return request, tables[group].index(block)
        return None


def _work(batch: ForwardBatch) -> str:
    """What each request computes."""
    return ", ".join(
        f"{row.id} drafts {len(row.drafts)}" if row.drafts else f"{row.id} computes {row.length}"
        for row in batch.rows
    )
