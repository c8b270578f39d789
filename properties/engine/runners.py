"""Runners around the verified copies: the V1 order, with requests in rows and decisions on the host, and the V2 order, with requests in
slots and decisions on the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from oracle.lifecycle.requests import ScheduledRequest
from oracle.lifecycle.requests import SchedulerStep as Scheduled
from oracle.types import cdiv
from properties.engine.flaws import SubjectFailed, subject_raised
from properties.engine.metadata import ForwardBatch
from properties.engine.world import World
from properties.strategies.align import runner as align_runner
from properties.strategies.align.batches import table_by_slot
from properties.strategies.align.runner import InRows, InSlots
from statecheck.case.values import Call, Let, Outcome, Overwrite, Record, Returned, Step, Value, int32

Execute = Callable[[Step], Outcome | None]


@dataclass(eq=False)
class Runner(ABC):
    """Brings states to where the forward reads them, and keeps those at boundaries afterwards.

    `blocks` has each request's block ids, which only ever grow, and `accepted` the accepted count that its next forward has to
    apply. Calls that copy return what the pools hold after them.
    """

    world: World
    execute: Execute
    blocks: dict[str, list[list[int]]] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = [(0,) * self.world.width] * self.world.max_num_seqs
        self._tables = [list(rows) for _ in range(self.world.num_groups)]

    def call(self, step: Call) -> dict[str, Value]:
        """The contents of all memory that the call observes, after it.

        Raises:
            SubjectFailed: it raised.
        """
        outcome = self.execute(step)
        assert outcome is not None
        if not isinstance(outcome, Returned):
            raise subject_raised(step.function, outcome)
        if outcome.changed:
            seen = f"{step.function} wrote to {', '.join(outcome.changed)}"
            raise SubjectFailed(
                step.function, seen, "should leave it as it is", rule=f"{step.function}: writes"
            )
        return dict(outcome.after)

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def before(self, batch: ForwardBatch, scheduled: Scheduled) -> dict[str, bytes] | None: ...

    @abstractmethod
    def after(self, batch: ForwardBatch, sampled: Mapping[str, int]) -> dict[str, bytes] | None: ...

    def tell(self, scheduled: Scheduled) -> None:
        """The scheduler's output: requests that come in, grow, or are gone."""
        for row in scheduled.rows:
            if row.is_new or row.is_resumed:
                self.blocks[row.id] = [list(blocks) for blocks in row.new_blocks]
                self.accepted[row.id] = 1
            else:
                for known, new in zip(self.blocks[row.id], row.new_blocks, strict=True):
                    known.extend(new)

    def batch(self, rows: tuple[ScheduledRequest, ...], padding: int) -> ForwardBatch:
        return ForwardBatch(rows, padding, self.accepted)

    def table(self, group: int, batch: ForwardBatch) -> tuple[tuple[int, ...], ...]:
        """The group's block table as the forward sees it: the rows of the batch and of its padding."""
        return tuple(self._tables[group][: len(batch.rows) + batch.padding])

    def write_tables(self, batch: ForwardBatch) -> None:
        """Bring the tables into the batch's order; what lies behind a request's blocks is what the row held before."""
        for group, table in enumerate(self._tables):
            for number, row in enumerate(batch.rows):
                blocks = self.blocks[row.id][group]
                table[number] = (*blocks, *table[number][len(blocks) :])
            cells = tuple(block for row in self.copied_rows(table, batch) for block in row)
            self.execute(Overwrite(f"table{group}", cells))

    def copied_rows(self, table: list[tuple[int, ...]], batch: ForwardBatch) -> list[tuple[int, ...]]:  # noqa: ARG002
        """The rows of a group's table, which is in the batch's order, as the copies look blocks up."""
        return table

    def pools(self, after: Mapping[str, Value]) -> dict[str, bytes]:
        """Raises SubjectFailed where guard bytes around a pool are not what they were."""
        for name in self.world.setup.pools:
            if isinstance(after[name], Record):
                raise SubjectFailed("", f"bytes beside {name} were written", rule="bytes beside pools")
        return {name: bytes(after[name].elements) for name in self.world.setup.pools}


class _Tables:
    """A cache as the calls of a V1 runner read it; requests are known by their ids."""

    def __init__(self, world: World, blocks: dict[str, list[list[int]]]) -> None:
        self.setup, self.observes, self.num_groups = world.setup, world.setup.pools, world.num_groups
        self._blocks = blocks

    def block_ids(self, group: int, request: str) -> list[int]:
        return list(self._blocks[request][group])


@dataclass(eq=False)
class ByRow(Runner):
    """The V1 order, see `InRows`. A request that sits a step out keeps its accepted count."""

    _output: Record | None = None

    def begin(self) -> None:
        world = self.world
        self.cache = _Tables(world, self.blocks)
        if not world.copies:
            return
        self._runner = InRows(world.setup, world.max_num_seqs, world.pointers, world.schedule)
        self.call(self._runner.begin(with_postprocess=world.num_spec > 0))
        for step in self._runner.named():
            self.execute(step)

    def before(self, batch: ForwardBatch, scheduled: Scheduled) -> dict[str, bytes] | None:
        self.write_tables(batch)
        if not self.world.copies:
            return None
        rows = self._requests(batch)
        self._output = align_runner.scheduler_output(
            rows,
            finished=scheduled.finished,
            preempted=scheduled.preempted or None,
            resumed=scheduled.resumed,
        )
        self.execute(self._runner.counted([self.accepted[row.id] for row in batch.rows]))
        return self._noting_counts(batch, self._runner.before(self.cache, rows, self._output))

    def _requests(self, batch: ForwardBatch) -> list[align_runner.Scheduled]:
        return [
            align_runner.Scheduled(row.id, row.id, row.computed, row.length, len(row.drafts))
            for row in batch.rows
        ]

    def _noting_counts(self, batch: ForwardBatch, step: Call) -> dict[str, bytes]:
        after = self.call(step)
        for row, count in zip(batch.rows, after["accepted"].values(), strict=False):
            self.accepted[row.id] = count
        return self.pools(after)

    def after(self, batch: ForwardBatch, sampled: Mapping[str, int]) -> dict[str, bytes] | None:
        self.accepted.update(sampled)
        if not (self.world.copies and self.world.num_spec):
            return None
        assert self._output is not None
        rows = self._requests(batch)
        self.call(self._runner.staged(self.cache, rows, self._output))
        counted, kept = self._runner.after(self.cache, rows, [sampled[row.id] for row in batch.rows])
        self.execute(counted)
        assert isinstance(kept, Call)
        return self._noting_counts(batch, kept)


@dataclass(eq=False)
class BySlot(Runner):
    """The V2 order, see `InSlots`.

    The newest free slot is used again first, so that slots and rows soon have nothing in common.
    """

    _slots: dict[str, int] = field(default_factory=dict)
    _vectors: dict[str, list[int]] = field(default_factory=dict)

    def begin(self) -> None:
        world, size = self.world, self.world.max_num_seqs
        self._free = list(range(size))
        if not world.copies:
            return
        for name in ("columns", "counts", "computed", "src_col", "bias"):
            self._vectors[name] = [1] * size
            self.execute(Let(name, int32([1] * size)))
        self._runner = InSlots(world.setup, size, world.setup.pools, world.schedule)
        for step in self._runner.begin():
            self.call(step)

    def tell(self, scheduled: Scheduled) -> None:
        super().tell(scheduled)
        for request in (*scheduled.finished, *scheduled.preempted, *scheduled.reset):
            if request in self._slots:
                self._free.append(self._slots.pop(request))
        for row in scheduled.rows:
            if row.is_new or row.is_resumed:
                self._slots[row.id] = slot = self._free.pop()
                if self.world.copies:
                    self._vectors["columns"][slot] = cdiv(row.computed, self.world.block_size) - 1
                    self._vectors["computed"][slot] = row.computed
                    self._vectors["counts"][slot] = 1

    def copied_rows(self, table: list[tuple[int, ...]], batch: ForwardBatch) -> list[tuple[int, ...]]:
        """In the order of slots, where the profile says so."""
        if not self.world.profile.tables_by_slot:
            return table
        slots = [self._slots[row.id] for row in batch.rows]
        return list(table_by_slot(table[: len(slots)], slots, len(table), (0,) * self.world.width))

    def before(self, batch: ForwardBatch, scheduled: Scheduled) -> dict[str, bytes] | None:  # noqa: ARG002 - known before
        for table in self._tables:
            for number in range(len(batch.rows), len(batch.rows) + batch.padding):
                table[number] = (0,) * self.world.width
        self.write_tables(batch)
        if not self.world.copies:
            return None
        padding = (-1,) * batch.padding
        mapping = (*(self._slots[row.id] for row in batch.rows), *padding)
        advanced = len(mapping) if self.world.profile.preprocess_skips_rows else len(batch.rows)
        for step in self._runner.step(mapping, [row.length for row in batch.rows] + [0] * batch.padding):
            self.execute(step)
        for name, values in self._vectors.items():
            self.execute(Overwrite(name, tuple(values)))
        self._note(self.call(self._runner.advance(advanced)), ("columns", "counts", "src_col", "bias"))
        for row in batch.rows:
            self.accepted[row.id] = self._vectors["counts"][self._slots[row.id]]
        return self.pools(self.call(self._runner.precopy(len(mapping))))

    def _note(self, after: Mapping[str, Value], names: Sequence[str]) -> None:
        for name in names:
            self._vectors[name] = list(after[name].values())

    def after(self, batch: ForwardBatch, sampled: Mapping[str, int]) -> dict[str, bytes] | None:
        self.accepted.update(sampled)
        if not self.world.copies:
            return None
        for row in batch.rows:
            slot = self._slots[row.id]
            self._vectors["counts"][slot] = sampled[row.id]
            self._vectors["computed"][slot] = row.end - len(row.drafts) + sampled[row.id] - 1
        num_reqs = len(batch.rows) + batch.padding
        *written, last = self._runner.after(num_reqs, self._vectors["counts"], self._vectors["computed"])
        for step in written:
            self.execute(step)
        assert isinstance(last, Call)
        after = self.call(last)
        self._note(after, ("counts",))
        for row in batch.rows:
            self.accepted[row.id] = self._vectors["counts"][self._slots[row.id]]
        return self.pools(after)
