"""The V2 order around a forward: requests in slots, decisions on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oracle.lifecycle.requests import ScheduledRequest
from oracle.lifecycle.requests import SchedulerStep as Scheduled
from oracle.types import cdiv
from properties.engine.metadata import ForwardBatch
from properties.engine.worker import Runner
from properties.strategies.align.batches import table_by_slot
from properties.strategies.align.runner import InSlots
from statecheck.case.values import Call, Let, Overwrite, Value, int32


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
                self._add(row)

    def _add(self, row: ScheduledRequest) -> None:
        slot = self._free.pop()
        self._slots[row.id] = slot
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
