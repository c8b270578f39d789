"""The V2 order around a forward: requests in slots, decisions on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from oracle.lifecycle.requests import Row
from oracle.lifecycle.requests import Step as Scheduled
from oracle.types import cdiv
from properties.engine.metadata import Batch
from properties.engine.worker import Worker
from properties.harness.case.values import Call, Let, Name, Overwrite, Value, int32
from properties.strategies.align_batches import (
    POSTPROCESS_ALIGN,
    POSTPROCESS_ALIGN_VECTORS,
    PRECOPY,
    PRECOPY_VECTORS,
    preprocess_launch,
)

TILE = 256
"""Rows of a program of the preprocess kernel."""


@dataclass(eq=False)
class BySlot(Worker):
    """The V2 order: fused preprocess, precopy, forward, fused postprocess; decisions are the device's. Contract 2.5.

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
        self.call(world.setup.create(size))
        self.call(world.setup.initialize())

    def tell(self, scheduled: Scheduled) -> None:
        super().tell(scheduled)
        for request in (*scheduled.finished, *scheduled.preempted, *scheduled.reset):
            if request in self._slots:
                self._free.append(self._slots.pop(request))
        for row in scheduled.rows:
            if row.is_new or row.is_resumed:
                self._add(row)

    def _add(self, row: Row) -> None:
        slot = self._free.pop()
        self._slots[row.id] = slot
        if self.world.copies:
            self._vectors["columns"][slot] = cdiv(row.computed, self.world.block_size) - 1
            self._vectors["computed"][slot] = row.computed
            self._vectors["counts"][slot] = 1

    def copied_rows(self, table: list[tuple[int, ...]], batch: Batch) -> list[tuple[int, ...]]:
        """In the order of slots, where the profile says so."""
        if not self.world.profile.tables_by_slot:
            return table
        by_slot = {self._slots[row.id]: table[number] for number, row in enumerate(batch.rows)}
        return [by_slot.get(slot, (0,) * self.world.width) for slot in range(len(table))]

    def before(self, batch: Batch, scheduled: Scheduled) -> dict[str, bytes] | None:  # noqa: ARG002 - told before
        for table in self._tables:
            for number in range(len(batch.rows), len(batch.rows) + batch.padding):
                table[number] = (0,) * self.world.width
        self.write_tables(batch)
        if not self.world.copies:
            return None
        padding = (-1,) * batch.padding
        mapping = (*(self._slots[row.id] for row in batch.rows), *padding)
        advanced = len(mapping) if self.world.profile.preprocess_skips_rows else len(batch.rows)
        self.execute(Let("mapping", int32(mapping)))
        lengths = [row.length for row in batch.rows] + [0] * batch.padding
        self.execute(Let("starts", int32(tuple(accumulate(lengths, initial=0)))))
        for name, values in self._vectors.items():
            self.execute(Overwrite(name, tuple(values)))
        self._note(
            self.call(preprocess_launch(advanced, TILE, self.world.block_size, self.world.schedule)),
            ("columns", "counts", "src_col", "bias"),
        )
        for row in batch.rows:
            self.accepted[row.id] = self._vectors["counts"][self._slots[row.id]]
        return self.pools(self.call(self._fused(PRECOPY, len(mapping), PRECOPY_VECTORS)))

    def _note(self, after: Mapping[str, Value], names: Sequence[str]) -> None:
        for name in names:
            self._vectors[name] = list(after[name].values())

    def _fused(
        self, function: str, num_reqs: int, vectors: Mapping[str, str], observes: tuple[str, ...] = ()
    ) -> Call:
        arguments: dict[str, Value] = {"self": Name("ctx"), "num_reqs": num_reqs}
        named = {argument: Name(vector) for argument, vector in vectors.items()}
        return Call(
            function,
            tuple((arguments | named).items()),
            environment=tuple(self.world.setup.environment.items()),
            observes=(*self.world.setup.pools, *observes),
            schedule=self.world.schedule,
        )

    def after(self, batch: Batch, sampled: Mapping[str, int]) -> dict[str, bytes] | None:
        self.accepted.update(sampled)
        if not self.world.copies:
            return None
        for row in batch.rows:
            slot = self._slots[row.id]
            self._vectors["counts"][slot] = sampled[row.id]
            self._vectors["computed"][slot] = row.end - len(row.drafts) + sampled[row.id] - 1
        for name in ("counts", "computed"):
            self.execute(Overwrite(name, tuple(self._vectors[name])))
        num_reqs = len(batch.rows) + batch.padding
        after = self.call(self._fused(POSTPROCESS_ALIGN, num_reqs, POSTPROCESS_ALIGN_VECTORS, ("counts",)))
        self._note(after, ("counts",))
        for row in batch.rows:
            self.accepted[row.id] = self._vectors["counts"][self._slots[row.id]]
        return self.pools(after)
