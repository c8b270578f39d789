"""The V1 order around a forward: requests in rows, decisions on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oracle.lifecycle.requests import Step as Scheduled
from properties.engine.metadata import Batch
from properties.engine.worker import Worker
from properties.engine.world import World
from properties.harness.case.values import Call, Let, Overwrite, Record, int32
from properties.strategies import align_runner


class _Tables:
    """What the calls of a V1 runner ask of a cache; requests are known by their ids."""

    def __init__(self, world: World, blocks: dict[str, list[list[int]]]) -> None:
        self.setup, self.observes, self.num_groups = world.setup, world.setup.pools, world.num_groups
        self._blocks = blocks

    def block_ids(self, group: int, request: str) -> list[int]:
        return list(self._blocks[request][group])


@dataclass(eq=False)
class ByRow(Worker):
    """The V1 order: preprocess, forward, acceptance, staging and postprocess; decisions are the host's. Contract 2.4.

    A request that sits a step out keeps its accepted count.
    """

    _output: Record | None = None

    def begin(self) -> None:
        world = self.world
        self.cache = _Tables(world, self.blocks)
        if not world.copies:
            return
        speculates = world.num_spec > 0
        made = align_runner.buffers(world.setup, world.max_num_seqs, with_postprocess=speculates)
        self.call(made)
        self.execute(Let("state_idx", {}))
        self.execute(Let("counts", int32([1] * world.max_num_seqs)))
        self.execute(Let("accepted", int32([1] * world.max_num_seqs).on_host()))

    def before(self, batch: Batch, scheduled: Scheduled) -> dict[str, bytes] | None:
        self.write_tables(batch)
        if not self.world.copies:
            return None
        rows, self._output = self._requests(batch), self._scheduler_output(batch, scheduled)
        self.execute(Overwrite("accepted", self._by_row([self.accepted[row.id] for row in batch.rows])))
        prepared = align_runner.preprocess(
            self.cache,  # type: ignore[arg-type]
            rows,
            self._output,
            pointers=self.world.pointers,
            copy_bufs="bufs.preprocess",
            schedule=self.world.schedule,
        )
        return self._noting_counts(batch, prepared)

    def _requests(self, batch: Batch) -> list[align_runner.Scheduled]:
        return [
            align_runner.Scheduled(row.id, row.id, row.computed, row.length, len(row.drafts))  # type: ignore[arg-type]
            for row in batch.rows
        ]

    def _scheduler_output(self, batch: Batch, scheduled: Scheduled) -> Record:
        return align_runner.scheduler_output(
            self._requests(batch),
            finished=scheduled.finished,
            preempted=scheduled.preempted or None,
            resumed=scheduled.resumed,
        )

    def _by_row(self, values: Sequence[int]) -> tuple[int, ...]:
        return (*values, *(1,) * (self.world.max_num_seqs - len(values)))

    def _noting_counts(self, batch: Batch, step: Call) -> dict[str, bytes]:
        after = self.call(step)
        for row, count in zip(batch.rows, after["accepted"].values(), strict=False):
            self.accepted[row.id] = count
        return self.pools(after)

    def after(self, batch: Batch, sampled: Mapping[str, int]) -> dict[str, bytes] | None:
        self.accepted.update(sampled)
        if not (self.world.copies and self.world.num_spec):
            return None
        assert self._output is not None
        rows = self._requests(batch)
        cache = self.cache
        self.call(align_runner.stage(cache, rows, self._output, "bufs.postprocess_align"))  # type: ignore[arg-type]
        self.execute(Overwrite("counts", self._by_row([sampled[row.id] for row in batch.rows])))
        kept = align_runner.postprocess(cache, rows, schedule=self.world.schedule)  # type: ignore[arg-type]
        return self._noting_counts(batch, kept)
