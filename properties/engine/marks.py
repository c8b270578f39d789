"""Which of the interesting moments of scenarios an engine has come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oracle.lifecycle.requests import ScheduledRequest
from oracle.lifecycle.requests import SchedulerStep as Scheduled
from oracle.lifecycle.scheduler import Scheduler
from properties.engine.world import World
from statecheck.reference.situations import situations_of

MARKS = (
    "several requests in a step",
    "decodes beside prompts",
    "prompt in several chunks",
    "first chunk of one token",
    "last chunk of a prompt within a block",
    "boundary hit exactly by acceptance",
    "boundary crossed by one",
    "boundary crossed by several",
    "boundary hit by a prompt chunk",
    "all drafts accepted",
    "some drafts accepted",
    "no draft accepted",
    "all accepted up to the boundary",
    "no drafts",
    "no drafts after several accepted",
    "no drafts in the whole batch after several accepted",
    "backward move",
    "sits a step out after several accepted",
    "prefix hit",
    "prefix hit of several blocks",
    "prefix hit then speculation",
    "preemption",
    "preemption for want of blocks",
    "reset of the prefix cache",
    "resume after preemption",
    "resume with a hit",
    "resume after a reset",
    "replay as short as a decode",
    "finished",
    "slot reuse",
    "block recycled",
    "rows in another order",
    "rows of padding",
)
_declare = situations_of("engine.marks")
_DECLARED = {name: _declare(name) for name in MARKS}


@dataclass(eq=False)
class Marks:
    """The moments seen so far."""

    seen: set[str] = field(default_factory=set)
    _hits: set[str] = field(default_factory=set)
    _accepted: dict[str, int] = field(default_factory=dict)
    _run: dict[str, int] = field(default_factory=dict)
    _reset: set[str] = field(default_factory=set)
    _order: tuple[str, ...] = ()
    _gone: int = 0

    def note(self, name: str, holds: bool = True) -> None:
        declared = _DECLARED[name]
        if holds:
            declared.reached()
            self.seen.add(name)

    def reset(self, running: Sequence[str] = ()) -> None:
        self.note("reset of the prefix cache")
        self._reset.update(running)

    def step(
        self,
        world: World,
        scheduled: Scheduled,
        sampled: Mapping[str, Sequence[int]],
        scheduler: Scheduler,
    ) -> None:
        """Note what a step was, before it is committed."""
        self._step(scheduled, scheduler)
        for row in scheduled.rows:
            self._comes_in(row)
            self._prompt(world, row)
            if not row.is_prefilling:
                self._decode(row)
            if row.samples:
                self._crosses(world, row, len(sampled[row.id]))
            self._moves(world, row)
            self._accepted[row.id] = max(1, len(sampled[row.id]))

    def _step(self, scheduled: Scheduled, scheduler: Scheduler) -> None:
        rows = scheduled.rows
        decodes = [row for row in rows if not row.is_prefilling]
        self.note("several requests in a step", len(rows) > 1)
        self.note("decodes beside prompts", 0 < len(decodes) < len(rows))
        self.note("block recycled", bool(scheduled.lost))
        self.note("finished", bool(scheduled.finished))
        self.note("preemption", bool(scheduled.preempted))
        again = [row for row in decodes if not row.drafts and self._accepted.get(row.id, 1) > 1]
        self.note(
            "no drafts in the whole batch after several accepted",
            bool(again) and not any(row.drafts for row in rows),
        )
        present = {row.id for row in rows}
        for request in scheduler.running:
            if request.id not in present and self._accepted.get(request.id, 1) > 1:
                self.note("sits a step out after several accepted")
        used = {request for request in (*scheduled.finished, *scheduled.preempted) if request in self._run}
        self._gone += len(used)
        entering = [row for row in rows if row.is_new or row.is_resumed]
        self.note("slot reuse", bool(entering) and self._gone > 0)
        self._gone -= min(self._gone, len(entering))
        for gone in used:
            self._run.pop(gone, None)

    def ordered(self, ids: Sequence[str], padding: int) -> None:
        """The order of a batch's rows."""
        both = [request for request in self._order if request in ids]
        self.note("rows in another order", both != [request for request in ids if request in self._order])
        self.note("rows of padding", padding > 0)
        self._order = tuple(ids)

    def _comes_in(self, row: ScheduledRequest) -> None:
        if row.is_new or row.is_resumed:
            self._accepted.pop(row.id, None)
            self._hits.discard(row.id)
        self.note("resume after preemption", row.is_resumed)
        self.note("resume with a hit", row.is_resumed and row.hit > 0)
        self.note("resume after a reset", row.is_resumed and row.id in self._reset)
        self._reset.discard(row.id)
        self.note("prefix hit", row.hit > 0)
        self.note("prefix hit of several blocks", row.hit > 1)
        if row.hit:
            self._hits.add(row.id)

    def _prompt(self, world: World, row: ScheduledRequest) -> None:
        if not row.is_prefilling:
            return
        self.note("prompt in several chunks", not row.samples)
        self.note("first chunk of one token", row.computed == 0 and row.length == 1)
        size = world.block_size
        self.note("last chunk of a prompt within a block", row.samples and row.end % size > 0)
        self.note("boundary hit by a prompt chunk", row.end % size == 0)
        self.note("replay as short as a decode", row.is_resumed and 1 < row.length <= 1 + world.num_spec)

    def _decode(self, row: ScheduledRequest) -> None:
        several = self._accepted.get(row.id, 1) > 1
        self.note("no drafts", not row.drafts)
        self.note("no drafts after several accepted", not row.drafts and several)
        self.note("prefix hit then speculation", bool(row.drafts) and row.id in self._hits)

    def _crosses(self, world: World, row: ScheduledRequest, accepted: int) -> None:
        if not row.drafts:
            return
        first = row.end - len(row.drafts)
        behind = (first + accepted - 1) % world.block_size
        crossed = accepted - 1 >= behind
        self.note("boundary hit exactly by acceptance", crossed and behind == 0)
        self.note("boundary crossed by one", crossed and behind == 1)
        self.note("boundary crossed by several", crossed and behind > 1)
        self.note("all drafts accepted", accepted == 1 + len(row.drafts))
        self.note("some drafts accepted", 1 < accepted < 1 + len(row.drafts))
        self.note("no draft accepted", accepted == 1)
        self.note(
            "all accepted up to the boundary", crossed and behind == 0 and accepted == 1 + len(row.drafts)
        )

    def _moves(self, world: World, row: ScheduledRequest) -> None:
        run = -(-row.end // world.block_size) - 1
        known = not (row.is_new or row.is_resumed)
        self.note("backward move", known and run < self._run.get(row.id, run))
        self._run[row.id] = run
