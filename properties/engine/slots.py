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
from properties.harness.values import Call, Let, Name, Overwrite, Value, call, int32
from properties.strategies.align_batches import POSTPROCESS_ALIGN, PRECOPY, PREPROCESS_KERNEL

PREPROCESS_VECTORS = {
    "idx_mapping_ptr": "mapping",
    "state_idx_ptr": "columns",
    "num_computed_tokens_ptr": "computed",
    "query_start_loc_ptr": "starts",
    "num_accepted_tokens_ptr": "counts",
    "src_col_ptr": "src_col",
    "src_off_ptr": "bias",
}
PRECOPY_VECTORS = {
    "state_idx_gpu": "columns",
    "src_col_gpu": "src_col",
    "token_bias_gpu": "bias",
    "idx_mapping": "mapping",
}
POSTPROCESS_VECTORS = {
    "num_accepted_tokens_gpu": "counts",
    "state_idx_gpu": "columns",
    "new_num_computed_tokens_gpu": "computed",
    "idx_mapping": "mapping",
}


@dataclass(eq=False)
class BySlot(Worker):
    """The V2 order: fused preprocess, precopy, forward, fused postprocess; decisions are the device's. Contract 2.5.

    The newest free slot is used again first, so that slots and rows soon have nothing in common.
    """

    _slots: dict[str, int] = field(default_factory=dict)
    _vectors: dict[str, list[int]] = field(default_factory=dict)
    reused: bool = False

    def begin(self) -> None:
        world, size = self.world, self.world.max_num_seqs
        self._free = list(range(size))
        self._used: set[int] = set()
        self._rows = [[(0,) * world.width] * size for _ in range(world.num_groups)]
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
        self.reused = self.reused or slot in self._used
        self._used.add(slot)
        self._slots[row.id] = slot
        if self.world.copies:
            self._vectors["columns"][slot] = cdiv(row.computed, self.world.block_size) - 1
            self._vectors["computed"][slot] = row.computed
            self._vectors["counts"][slot] = 1

    def table(self, group: int, batch: Batch) -> tuple[tuple[int, ...], ...]:
        return tuple(self._rows[group][: len(batch.rows) + batch.padding])

    def before(self, batch: Batch, scheduled: Scheduled) -> dict[str, bytes] | None:  # noqa: ARG002 - told before
        self._gather(batch)
        if not self.world.copies:
            return None
        padding = (-1,) * batch.padding
        mapping = (*(self._slots[row.id] for row in batch.rows), *padding)
        self.execute(Let("mapping", int32(mapping)))
        lengths = [row.length for row in batch.rows] + [0] * batch.padding
        self.execute(Let("starts", int32(tuple(accumulate(lengths, initial=0)))))
        for name, values in self._vectors.items():
            self.execute(Overwrite(name, tuple(values)))
        self._note(self.call(self._preprocess(len(mapping))), ("columns", "counts", "src_col", "bias"))
        for row in batch.rows:
            self.accepted[row.id] = self._vectors["counts"][self._slots[row.id]]
        return self.pools(self.call(self._fused(PRECOPY, len(mapping), PRECOPY_VECTORS)))

    def _gather(self, batch: Batch) -> None:
        """Bring tables into the batch's order; rows of padding are zero, what lies behind the blocks is stale."""
        for group in range(self.world.num_groups):
            for number, row in enumerate(batch.rows):
                blocks = self.blocks[row.id][group]
                self._rows[group][number] = (*blocks, *self._rows[group][number][len(blocks) :])
            for number in range(len(batch.rows), len(batch.rows) + batch.padding):
                self._rows[group][number] = (0,) * self.world.width
            self.execute(
                Overwrite(f"table{group}", tuple(block for row in self._rows[group] for block in row))
            )

    def _note(self, after: Mapping[str, Value], names: Sequence[str]) -> None:
        for name in names:
            self._vectors[name] = list(after[name].values())

    def _preprocess(self, num_reqs: int) -> Call:
        arguments: dict[str, Value] = {name: Name(vector) for name, vector in PREPROCESS_VECTORS.items()}
        return call(
            "harness.launch",
            kernel=PREPROCESS_KERNEL,
            grid=(cdiv(num_reqs, 256),),
            arguments=arguments | {"num_reqs": num_reqs},
            constexprs={"BLOCK_SIZE": 256, "MAMBA_BLOCK_SIZE": self.world.block_size},
            observes=("columns", "counts", "src_col", "bias"),
            schedule=self.world.schedule,
        )

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
        after = self.call(self._fused(POSTPROCESS_ALIGN, num_reqs, POSTPROCESS_VECTORS, ("counts",)))
        self._note(after, ("counts",))
        for row in batch.rows:
            self.accepted[row.id] = self._vectors["counts"][self._slots[row.id]]
        return self.pools(after)
