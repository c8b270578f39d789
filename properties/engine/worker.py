"""What the runners around the verified copies have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from oracle.lifecycle.requests import ScheduledRequest
from oracle.lifecycle.requests import SchedulerStep as Scheduled
from properties.engine.flaws import SubjectFailed, subject_raised
from properties.engine.metadata import ForwardBatch
from properties.engine.world import World
from statecheck.case.values import (
    Call,
    Outcome,
    Overwrite,
    Record,
    Returned,
    Step,
    Value,
)

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
        """What the call leaves in all that it observes.

        Raises:
            SubjectFailed: it raised.
        """
        outcome = self.execute(step)
        if not isinstance(outcome, Returned):
            assert outcome is not None
            raise subject_raised(step.function, outcome)
        if outcome.changed:
            seen = f"{step.function} wrote to {', '.join(outcome.changed)}"
            raise SubjectFailed(step.function, seen, "should leave it as it is")
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
                raise SubjectFailed("", f"bytes beside {name} were written")
        return {name: bytes(after[name].elements) for name in self.world.setup.pools}
