"""An engine around the verified functions: everything that a serving engine does, but the model and the scheduler's wishes.

The subject makes all metadata and all copies; the engine allocates blocks, emulates the kernels' reads and writes from
the metadata, samples, and holds every byte of every pool against what the ledger says that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oracle.lifecycle.ledger import ConvRows, Held, StateLedger
from oracle.lifecycle.requests import Request, ScheduledRequest, ScheduleRequest
from oracle.lifecycle.requests import SchedulerStep as Scheduled
from oracle.lifecycle.scheduler import Scheduler
from properties.engine.checks import Checks
from properties.engine.flaws import SubjectFailed, Violation, subject_raised
from properties.engine.forward import Forward
from properties.engine.marks import Marks
from properties.engine.metadata import ForwardBatch, in_order
from properties.engine.models import Fingerprints, Model
from properties.engine.places import Mirror, StatePlace
from properties.engine.report import Contents, Story, Words
from properties.engine.runners import ByRow, BySlot, Execute, Runner
from properties.engine.world import World
from statecheck.case.values import Call, Outcome, Overwrite, Raised
from statecheck.case.values import Step as CaseStep

RUNNERS: dict[str, type[Runner]] = {"V1": ByRow, "V2": BySlot}
"""V1 keeps requests in rows and decides on the host, V2 keeps them in slots."""
Sampler = Callable[[ScheduledRequest, Sequence[int]], Sequence[int]]
"""From a row and the model's token after each of its tokens to the accepted drafts and one token more."""


@dataclass(eq=False)
class NotedCalls:
    """Executes steps of a case, and notes the engine's step that each call was part of.

    It does not know the engine: an engine is freed at once, with all that its scenario has kept, if no cycle leads back to it.
    """

    execute: Execute
    engine_step: int = 0
    of_calls: list[int] = field(default_factory=list)

    def __call__(self, step: CaseStep) -> Outcome | None:
        if isinstance(step, Call):
            self.of_calls.append(self.engine_step)
        return self.execute(step)


@dataclass(eq=False)
class Engine:
    """Requests on their way through a subject.

    `execute` runs a step of a case. With `checked`, what the subject left is held against the ledger, and a forward
    against what it should read; a model without knowledge of prefixes is judged by its tokens instead.
    """

    world: World
    execute: Execute
    make_model: Callable[[Sequence[StatePlace]], Model] = Fingerprints
    checked: bool = True
    marks: Marks = field(default_factory=Marks)

    def __post_init__(self) -> None:
        self._noted = NotedCalls(self.execute)
        self.execute = self._noted
        self.scheduler = Scheduler(self.world.geometry)
        self.ledger = StateLedger(self.world.geometry, self.scheduler.prefixes)
        self.mirror = Mirror(self.world)
        self.model = self.make_model(self.mirror.places)
        self.words = Words(self.scheduler, self.ledger, self.model)
        self.checks = Checks(self.mirror, self.ledger, self.model, self.words)
        self.contents = Contents(self.scheduler, self.ledger, self.mirror, self.model)
        self.forward = Forward(self.world, self.mirror, self.model, self.checks if self.checked else None)
        self.story = Story(self.scheduler, self.ledger, self.words, self.contents)
        self.runner: Runner = RUNNERS[self.world.runner](self.world, self.execute)
        try:
            for step in self.world.begin():
                outcome = self.execute(step)
                if isinstance(outcome, Raised):
                    raise subject_raised("a constructor", outcome)
            self.runner.begin()
        except SubjectFailed as error:
            raise Violation(error.flaw("before the first step")) from error

    @property
    def steps(self) -> int:
        """Steps that the engine has taken."""
        return self._noted.engine_step

    @property
    def calls(self) -> list[int]:
        """The engine's step that each call was part of."""
        return self._noted.of_calls

    def arrive(self, request_id: str, prompt: Sequence[int]) -> Request:
        return self.scheduler.arrive(request_id, prompt)

    def finish(self, request_id: str) -> None:
        self.scheduler.finish(request_id)

    def reset(self) -> None:
        """Empty the prefix cache, at the cost of all running requests."""
        self.marks.reset([request.id for request in self.scheduler.running])
        self.scheduler.reset()

    def step(
        self,
        wishes: Iterable[ScheduleRequest],
        sampler: Sampler,
        *,
        preempted: Collection[str] = (),
        priority: Mapping[str, int] | None = None,
        padding: int = 0,
    ) -> Scheduled:
        """Schedule and execute a step.

        Args:
            preempted: requests that are preempted before the step.
            priority: by request, what decides the order of rows among equals.
            padding: rows of padding behind a batch of decodes, if the engine pads.

        Raises:
            Violation: a law is broken.
        """
        scheduled = self.scheduler.schedule(wishes, preempted)
        self.ledger.lose(scheduled.lost)
        for block in scheduled.lost:
            self.mirror.poison(block)
        if scheduled.lost:
            self._write_pools()
        self.ledger.begin(scheduled.rows)
        self.runner.tell(scheduled)
        sampled: dict[str, list[int]] = {}
        if scheduled.rows:
            order = priority or {row.id: number for number, row in enumerate(scheduled.rows)}
            rows = in_order(scheduled.rows, self.world, order)
            decodes = not any(row.is_prefilling for row in rows)
            room = self.world.max_num_seqs - len(rows)
            padded = min(padding, room) if decodes and self.world.full_graphs else 0
            batch = self.runner.batch(rows, padded)
            self.marks.ordered([row.id for row in rows], batch.padding)
            sampled = self._execute(batch, scheduled, sampler)
        self.marks.note("preemption for want of blocks", not set(scheduled.preempted) <= set(preempted))
        self.marks.step(self.world, scheduled, sampled, self.scheduler)
        self.scheduler.commit(scheduled, sampled)
        self._noted.engine_step += 1
        return scheduled

    def _write_pools(self) -> None:
        for name, contents in self.mirror.contents().items():
            self.execute(Overwrite(name, contents))

    def _execute(self, batch: ForwardBatch, scheduled: Scheduled, sampler: Sampler) -> dict[str, list[int]]:
        writable = self.scheduler.writable(scheduled)
        self.ledger.before_forward(scheduled.rows)
        self.story.before(self.steps, batch)
        try:
            self._check(self.runner.before(batch, scheduled), writable, "before the forward")
            try:
                following, touched = self.forward.run(batch, self.runner, writable)
            except Violation as error:
                seen = f"in step {self.steps}, {error.flaw.seen}"
                raise Violation(replace(error.flaw, seen=seen)) from error
            self._write_pools()
            self.ledger.after_forward(scheduled.rows)
            self.story.forwarded(self.steps, batch)
            self._check(None, writable, "after the forward", touched)
            sampled = {
                row.id: list(sampler(row, following[row.id])) if row.samples else [] for row in batch.rows
            }
            accepted = {request: max(1, len(tokens)) for request, tokens in sampled.items()}
            left = self.runner.after(batch, accepted)
            self.ledger.after_sampling(scheduled.rows, accepted)
            self.story.after(self.steps, batch, accepted)
            self._check(left, writable, "after the step")
        except SubjectFailed as error:
            raise Violation(error.flaw(f"in step {self.steps}")) from error
        for block, (group, prefix) in scheduled.registered.items():
            # I2, of the rules themselves: what is registered is promised to be the state after exactly those tokens.
            promised = self.ledger.held.get((group, block))
            assert promised == Held(prefix, ConvRows(prefix)), (
                f"{block} is promised as {promised}, not {prefix}"
            )
        return sampled

    def _check(
        self,
        pools: Mapping[str, bytes] | None,
        writable: set[tuple[int, int]],
        when: str,
        touched: set[tuple[int, int]] | None = None,
    ) -> None:
        """Take over what the pools hold, and hold it against the ledger."""
        moment = f"in step {self.steps}, {when}"
        changed = set(touched or ())
        if pools is not None:
            changed |= self.checks.written(pools, writable, moment)
        self.story.look()
        if self.checked:
            self.checks.promised(moment, changed)
