"""Keeps what a picture of an engine's last steps needs, and draws the block tables from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from oracle.lifecycle.blocks import NULL_BLOCK
from oracle.lifecycle.ledger import NOTHING, Held, Ledger
from oracle.lifecycle.scheduler import Scheduler
from properties.engine.flaws import Flaw
from properties.engine.metadata import Batch
from properties.engine.words import tokens as told
from properties.harness.timeline import Arrow, Cell, Finding, Moment, TableRow, Timeline

KEPT = 18
"""Moments that a picture shows at most."""


@dataclass(frozen=True)
class Snapshot:
    """What was promised at a moment: tables by request and group, contents by (group, block)."""

    title: str
    tables: dict[str, list[list[int]]]
    held: dict[tuple[int, int], Held]
    columns: dict[str, int]
    published: frozenset[int]
    present: tuple[str, ...]


@dataclass(eq=False)
class Story:
    """The last moments of an engine."""

    scheduler: Scheduler
    ledger: Ledger
    _snapshots: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=KEPT))

    def before(self, step: int, batch: Batch) -> None:
        """The moment between the copies in front of a forward and the forward."""
        self._keep(f"step {step}, before the forward: {_work(batch)}", batch)

    def forwarded(self, step: int, batch: Batch) -> None:
        """The moment between the forward and the copies behind it."""
        self._keep(f"step {step}, after the forward", batch)

    def after(self, step: int, batch: Batch, accepted: Mapping[str, int]) -> None:
        """The moment after everything."""
        counts = ", ".join(f"{row.id} accepts {accepted[row.id]}" for row in batch.rows if row.samples)
        self._keep(f"step {step}, after it: {counts or 'nobody samples'}", batch)

    def _keep(self, title: str, batch: Batch) -> None:
        ids = tuple(row.id for row in batch.rows)
        tables = {request: [list(table) for table in self.ledger.tables[request]] for request in ids}
        published = frozenset(self.scheduler.pool.registered)
        held = dict(self.ledger.held)
        self._snapshots.append(Snapshot(title, tables, held, dict(self.ledger.columns), published, ids))

    def timeline(self, flaw: Flaw) -> Timeline:
        """The picture of a violation: the moments up to it, and the wrong block where it is in a table."""
        moments = tuple(self._moment(snapshot, flaw, last) for snapshot, last in self._with_last())
        return Timeline(moments, tuple(self._arrows()), self._finding(flaw))

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
        held = snapshot.held.get((group, block), NOTHING)
        prefix = held.temporal if held.temporal is not None else held.window.end if held.window else None
        wrong = flaw is not None and (flaw.group, flaw.block) == (group, block) and block != NULL_BLOCK
        tokens = None if prefix is None else self.scheduler.prefixes.length(prefix)
        words = "" if block == NULL_BLOCK else "nothing" if tokens is None else told(tokens)
        owner = "" if prefix is None else self._owner(prefix)
        return Cell(block, words, tokens, owner, block in snapshot.published, wrong)

    def _owner(self, prefix: int) -> str:
        count = self.scheduler.prefixes.length(prefix)
        for request in self.scheduler.requests.values():
            if count < len(request.prefixes) and request.prefixes[count] == prefix:
                return request.id
        return "drafts"

    def _arrows(self) -> list[Arrow]:
        """Where a moment promises in a column what another one promised in the moment before."""
        found = []
        snapshots = list(self._snapshots)
        for number, (old, new) in enumerate(pairwise(snapshots), 1):
            for request in new.present:
                found += self._copied(number, old, new, request)
        return found

    def _copied(self, number: int, old: Snapshot, new: Snapshot, request: str) -> list[Arrow]:
        if request not in old.tables:
            return []
        arrows = []
        for group, table in enumerate(new.tables[request]):
            before = {
                old.held[group, block].temporal: column
                for column, block in enumerate(old.tables[request][group])
                if (group, block) in old.held
            }
            for column, block in enumerate(table):
                held = new.held.get((group, block), NOTHING)
                changed = held != old.held.get((group, block), NOTHING)
                source = before.get(held.temporal) if held.temporal is not None else None
                if changed and source is not None and source != column:
                    arrows.append(Arrow(number, request, group, source, column))
        return arrows

    def _finding(self, flaw: Flaw) -> Finding | None:
        place = self._place(len(self._snapshots) - 1, flaw.group, flaw.block)
        if place is None or flaw.group is None:
            return None
        moment, request, column = place
        return Finding(moment, request, flaw.group, column, flaw.message, self._origin(flaw))

    def _place(self, moment: int, group: int | None, block: int | None) -> tuple[int, str, int] | None:
        if moment < 0 or group is None or not block:
            return None
        for request, tables in self._snapshots[moment].tables.items():
            if group < len(tables) and block in tables[group]:
                return moment, request, tables[group].index(block)
        return None

    def _origin(self, flaw: Flaw) -> tuple[int, str, int, int] | None:
        """The last moment and column at which the wrong bytes were promised somewhere."""
        if not flaw.source or flaw.is_row or flaw.group is None:
            return None
        for moment in range(len(self._snapshots) - 1, -1, -1):
            held = self._snapshots[moment].held
            for (group, block), promised in held.items():
                place = self._place(moment, group, block) if promised.temporal == flaw.source else None
                if place is not None and group == flaw.group and block != flaw.block:
                    return (moment, place[1], group, place[2])
        return None


def _work(batch: Batch) -> str:
    """What each request computes."""
    return ", ".join(
        f"{row.id} drafts {len(row.drafts)}" if row.drafts else f"{row.id} computes {row.length}"
        for row in batch.rows
    )
