"""The V1 order around a forward: requests in rows, decisions on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oracle.lifecycle.requests import SchedulerStep as Scheduled
from properties.engine.metadata import ForwardBatch
from properties.engine.worker import Runner
from properties.engine.world import World
from properties.strategies.align import runner as align_runner
from properties.strategies.align.runner import InRows
from statecheck.case.values import Call, Record


class _Tables:
    """What the calls of a V1 runner ask of a cache; requests are known by their ids."""

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
        rows, self._output = self._requests(batch), self._scheduler_output(batch, scheduled)
        self.execute(self._runner.counted([self.accepted[row.id] for row in batch.rows]))
        return self._noting_counts(batch, self._runner.before(self.cache, rows, self._output))

    def _requests(self, batch: ForwardBatch) -> list[align_runner.Scheduled]:
        return [
            align_runner.Scheduled(row.id, row.id, row.computed, row.length, len(row.drafts))
            for row in batch.rows
        ]

    def _scheduler_output(self, batch: ForwardBatch, scheduled: Scheduled) -> Record:
        return align_runner.scheduler_output(
            self._requests(batch),
            finished=scheduled.finished,
            preempted=scheduled.preempted or None,
            resumed=scheduled.resumed,
        )

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
