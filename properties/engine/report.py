"""The report of a scenario: what its blocks hold, in words and as tables of blocks over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from oracle.lifecycle.blocks import NULL_BLOCK
from oracle.lifecycle.ledger import NOTHING, Held, StateLedger
from oracle.lifecycle.scheduler import Scheduler
from properties.engine.flaws import Flaw
from properties.engine.metadata import ForwardBatch
from properties.engine.models import Fingerprints, LayerState, Model, Recurrences
from properties.engine.places import Bytes, Mirror, StatePlace
from properties.engine.world import NEVER
from statecheck.case.timeline import Cell, Moment, TableRow, Timeline, WrongCell

_SHOWN = 8


def token_count(count: int) -> str:
    """So many tokens."""
    return "1 token" if count == 1 else f"{count} tokens"


@dataclass(eq=False)
class Words:
    """The vocabulary of violations."""

    scheduler: Scheduler
    ledger: StateLedger
    model: Model

    def prefix(self, prefix: int, *, row: bool = False) -> str:
        """A prefix by its number of tokens, and a request that has it."""
        count = self.scheduler.prefixes.length(prefix)
        if not count:
            return "zeros, as before the first token"
        ancestor, drafts = prefix, ""
        while ancestor and self.request_with(ancestor) is None:
            # The prefix ends with a request's drafts.
            ancestor, drafts = self.scheduler.prefixes.parent(ancestor), " and its drafts"
        request = self.request_with(ancestor)
        owner = "no request" if request is None else request + drafts
        position = "that of the last of" if row else "the state after"
        return f"{position} {token_count(count)} of {owner}"

    def request_with(self, prefix: int) -> str | None:
        """The request whose tokens begin with those of the prefix."""
        count = self.scheduler.prefixes.length(prefix)
        for request in self.scheduler.requests.values():
            if count < len(request.prefixes) and request.prefixes[count] == prefix:
                return request.id
        return None

    def source(self, place: StatePlace, found: bytes) -> int | None:
        """The prefix whose state these bytes are, in any layer."""
        if not isinstance(self.model, Fingerprints):
            return None
        return self.model.meaning(place, found)

    def bytes_of(self, place: StatePlace, found: bytes, source: int | None) -> str:
        if source:
            return self.prefix(source, row=bool(place.window))
        if not any(found):
            return "zeros"
        if set(found) == {NEVER}:
            return "memory that was never written"
        shown = found[:_SHOWN].hex(" ")
        return f"{shown}{' ...' if len(found) > _SHOWN else ''}, which is no state"

    def holder(self, group: int, block: int) -> str:
        """Which column of which request a block is."""
        found = [f"column {column} of {request}" for request, column in self._holders(group, block)]
        return " and ".join(found) or "which the prefix cache has"

    def _holders(self, group: int, block: int) -> list[tuple[str, int]]:
        requests = self.scheduler.requests
        return [
            (name, table[group].index(block))
            for name, table in self.ledger.tables.items()
            if block in table[group]
            and group < len(requests[name].lists)
            and block in requests[name].lists[group].columns
        ]

    def belongs(self, block: int) -> str:
        """Whose a block is, and why."""
        for group in range(self.scheduler.geometry.num_groups):
            holders = self._holders(group, block)
            if holders:
                requests = " and ".join(request for request, _ in holders)
                columns = " and ".join(f"column {column} of {request}" for request, column in holders)
                return f"block {block} belongs to {requests}, because it stands in {columns}"
        return f"block {block} {self.owner(block)}"

    def owner(self, block: int) -> str:
        """Whose a block is that was written to, although no request of this step may write it."""
        for group in range(self.scheduler.geometry.num_groups):
            holder = self.holder(group, block)
            if not holder.startswith("which"):
                known = block in self.scheduler.pool.registered
                return f"is {holder}{', which the prefix cache has published' if known else ''}"
        if block in self.scheduler.pool.registered:
            return "is published by the prefix cache, and held by no request"
        return "is free"


Pools = Mapping[str, Bytes]


@dataclass(frozen=True)
class Content:
    """The content of a block: `words`, and the prefix that a state in it is of.

    `promised` is the prefix that it should be the state after, where it holds something else; `row` is the conv row in which
    it does, None of a temporal state.
    """

    words: str
    prefix: int | None = None
    promised: int | None = None
    row: int | None = None


@dataclass(eq=False)
class Contents:
    """Reads blocks in copies of an engine's pools, which are made while it runs and read when a picture is wanted."""

    scheduler: Scheduler
    ledger: StateLedger
    mirror: Mirror
    model: Model
    _states: dict[int, tuple[LayerState, ...]] = field(default_factory=dict)

    def copied(self) -> Pools:
        """The pools as they are now."""
        return {name: pool.copy() for name, pool in self.mirror.pools.items()}

    def of(self, pools: Pools, group: int, block: int, held: Held) -> Content:
        """The content of a block of a group, of which `held` is promised."""
        places = [self._seen(place, pools) for place in self.mirror.of_group(group)]
        prefix = held.temporal if held.temporal is not None else held.window.end if held.window else None
        if prefix is None:
            found = _bytes_of(places, block)
            stale = any(found) and set(found) != {NEVER}
            return Content("stale" if stale else _unknown(found))
        # A temporal state says more than a row of a window.
        wrong = min(
            self._wrong(places, block, held), key=lambda mismatch: mismatch[2] is not None, default=None
        )
        if wrong is None:
            return Content(token_count(self.ledger.prefixes.length(prefix)), prefix)
        if set(_bytes_of(places, block)) == {NEVER}:
            return Content(_unknown(wrong[1]), None, prefix)
        place, found, row, promised = wrong
        source = self._meaning(place, found)
        return Content(
            token_count(self.ledger.prefixes.length(source)) if source else _unknown(found),
            source,
            promised,
            row,
        )

    def _seen(self, place: StatePlace, pools: Pools) -> StatePlace:
        """The place in a copy of its pool."""
        offset = place.array.ctypes.data - self.mirror.pools[place.pool].ctypes.data
        strides = place.array.strides
        return replace(
            place, array=np.ndarray(place.array.shape, np.uint8, pools[place.pool], offset, strides)
        )

    def _wrong(
        self, places: list[StatePlace], block: int, held: Held
    ) -> Iterator[tuple[StatePlace, bytes, int | None, int]]:
        """States, and rows of windows, that are not those of the promised prefix, as far as these are known."""
        for place in places:
            if not place.window:
                promised = [] if held.temporal is None else [held.temporal]
                seen: tuple[bytes, ...] = (place.temporal(block),)
            elif held.window is not None:
                promised = self.ledger.prefixes.last(held.window.end, place.window + held.window.newest)
                seen = place.rows(block, 0, len(promised))
            else:
                continue
            for row, (prefix, found) in enumerate(zip(promised, seen, strict=False)):
                right = self._right(place, prefix)
                if right is not None and found != right:
                    yield place, found, row if place.window else None, prefix

    def _right(self, place: StatePlace, prefix: int) -> bytes | None:
        """The state after a prefix, or the row of its last token."""
        if not isinstance(self.model, Recurrences):
            return self.model.right(place, prefix)
        if not prefix:
            return bytes(place.row_bytes if place.window else place.array.shape[1])
        return self.model.by_place(self._after(prefix))[place.number]

    def _after(self, prefix: int) -> tuple[LayerState, ...]:
        """The states of a real model's layers after the tokens of a prefix, in one run."""
        assert isinstance(self.model, Recurrences)
        if prefix not in self._states:
            states = self.model.recurrent.initial()
            for token in self.ledger.prefixes.tokens(prefix):
                states, _ = self.model.recurrent.advance(states, token)
            self._states[prefix] = states
        return self._states[prefix]

    def _meaning(self, place: StatePlace, found: bytes) -> int | None:
        """The prefix whose state, or whose last token's row, these bytes are."""
        if isinstance(self.model, Fingerprints):
            return self.model.meaning(place, found)
        known = {prefix for request in self.scheduler.requests.values() for prefix in request.prefixes}
        return next(
            (prefix for prefix in sorted(known) if prefix and self._right(place, prefix) == found), None
        )


def _bytes_of(places: list[StatePlace], block: int) -> bytes:
    return b"".join(place.array[block].tobytes() for place in places)


def _unknown(found: bytes) -> str:
    if not any(found):
        return "zeros"
    return "never written" if set(found) == {NEVER} else "no state"


KEPT = 18
"""Moments that block tables show at most."""


@dataclass(frozen=True)
class Snapshot:
    """Promises of a moment: tables by request and group, contents by (group, block)."""

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
    words: Words
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
        moments = tuple(
            self._moment(snapshot, flaw if number == len(self._snapshots) else None)
            for number, snapshot in enumerate(self._snapshots, 1)
        )
        return Timeline(moments, self._first_wrong(flaw, moments) if flaw.request else self._last_wrong(flaw))

    def _moment(self, snapshot: Snapshot, flaw: Flaw | None) -> Moment:
        """The tables of a moment; of the last one also the wrong cell."""
        rows = []
        for request, tables in snapshot.tables.items():
            for group, table in enumerate(tables):
                cells = tuple(self._cell(snapshot, group, block, flaw) for block in table)
                rows.append(TableRow(request, group, snapshot.columns[request], cells))
        return Moment(snapshot.title, tuple(rows))

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
        return self.words.request_with(prefix) or "drafts"

    def _last_wrong(self, flaw: Flaw) -> WrongCell | None:
        """The cell of the flaw's block in the last moment, if a table has it."""
        if not self._snapshots or flaw.group is None or not flaw.block:
            return None
        for request, tables in self._snapshots[-1].tables.items():
            if flaw.group < len(tables) and flaw.block in tables[flaw.group]:
                column = tables[flaw.group].index(flaw.block)
                return WrongCell(len(self._snapshots) - 1, request, flaw.group, column, flaw.message)
        return None

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


def _work(batch: ForwardBatch) -> str:
    """Tokens and drafts that each request computes, in words."""
    return ", ".join(
        f"{row.id} drafts {len(row.drafts)}" if row.drafts else f"{row.id} computes {row.length}"
        for row in batch.rows
    )
