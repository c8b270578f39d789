"""Recorded traffic on its way through an engine, whose every step is held against the laws of `oracle/lifecycle`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from rich.console import Console

from oracle.lifecycle.requests import Request, ScheduledRequest, Wish
from oracle.lifecycle.requests import SchedulerStep as Scheduled
from properties.engine.driver import Engine
from properties.engine.flaws import Violation
from properties.engine.traffic.counts import TrafficCounts
from properties.engine.traffic.engines import ReplayOptions, make_engine
from properties.engine.traffic.release import replay_release
from properties.engine.traffic.report import (
    Progress,
    engine_line,
    finish,
    print_headline,
    sizes,
    step_record,
    tell_no_engine,
    tell_violation,
)
from properties.engine.traffic.requests import Arrival, arrivals, summary
from statecheck.execution.exit_codes import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.execution.port import choose_device
from subjects import Subject, load

WAITING = 2
"""Requests that wait beside those that run."""
STALLED = 100
"""Steps in a row in which nothing can be computed, after which nothing ever will."""
KEPT_STEPS = 8
PREEMPTED, SHORT_CHUNK, NO_DRAFTS, FEWER_DRAFTS = 1 / 32, 1 / 4, 1 / 8, 1 / 8
"""How likely a request is preempted in a step, is computed by a few blocks only, drafts nothing, or drafts less than it may."""
SHORT_BLOCKS = 4


@dataclass(eq=False)
class Serving:
    """An engine that serves requests in the order of their arrival; what is not recorded, `rng` decides."""

    engine: Engine
    arriving: Iterator[Arrival]
    options: ReplayOptions
    counts: TrafficCounts = field(default_factory=TrafficCounts)
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))

    def __post_init__(self) -> None:
        self.rng = Random(self.options.seed)
        self._lengths: dict[str, int] = {}
        self._fresh = 0
        self._sampled: dict[str, Sequence[int]] = {}
        self._published: set[int] = set()
        self._idle = 0
        self._next = next(self.arriving, None)

    @property
    def is_over(self) -> bool:
        scheduler = self.engine.scheduler
        return self._next is None and not scheduler.running and not scheduler.waiting

    def step(self) -> None:
        """Let requests in, execute a step, and let those go that have all their tokens.

        Raises:
            Violation: a law is broken.
            ValueError: nothing can be computed any more.
        """
        self._let_in()
        self._sampled = {}
        preempted = self._making_way()
        scheduled = self.engine.step(
            self._wishes(),
            self._sample,
            preempted=preempted,
            priority=self._priority(),
            padding=self.rng.randrange(4),
        )
        self._count(scheduled, len(preempted))
        self._check_progress(scheduled)
        for row in scheduled.rows:
            self._finish(row)

    def _let_in(self) -> None:
        """Requests whose turn it is, as long as there are places to run and a few to wait."""
        scheduler = self.engine.scheduler
        while (
            self._next
            and len(scheduler.running) + len(scheduler.waiting) < self.options.max_num_seqs + WAITING
        ):
            arrival = self._next
            request = self.engine.arrive(f"r{arrival.number}", arrival.prompt)
            self._lengths[request.id] = arrival.output_length
            self.counts.arrived += 1
            self._next = next(self.arriving, None)

    def _making_way(self) -> list[str]:
        running = self.engine.scheduler.running
        return [self.rng.choice(running).id] if running and self.rng.random() < PREEMPTED else []

    def _wishes(self) -> list[Wish]:
        """What each request would like, as far as the tokens of a step go; those that run come first."""
        left, wishes = self.options.tokens_per_step, []
        scheduler = self.engine.scheduler
        decoding = [request for request in scheduler.running if request.is_decoding]
        for request in decoding:
            drafts = self._new_tokens(self._num_drafts())
            left -= 1 + len(drafts)
            wishes.append(Wish(request.id, 1, drafts))
        for request in (*scheduler.running, *scheduler.waiting):
            if not request.is_decoding and left > 0:
                wishes.append(Wish(request.id, self._chunk(request, left)))
                left -= wishes[-1].tokens
        return wishes

    def _num_drafts(self) -> int:
        most, way = self.options.num_spec, self.rng.random()
        if way < NO_DRAFTS:
            return 0
        return self.rng.randint(0, most) if way < NO_DRAFTS + FEWER_DRAFTS else most

    def _chunk(self, request: Request, left: int) -> int:
        most = min(left, request.uncomputed)
        if self.rng.random() >= SHORT_CHUNK:
            return most
        return min(most, self.rng.randint(1, SHORT_BLOCKS) * self.options.tokens_per_block)

    def _new_tokens(self, count: int) -> tuple[int, ...]:
        """Tokens that no request has had before; those of prompts are not negative."""
        self._fresh -= count
        return tuple(range(self._fresh, self._fresh + count))

    def _priority(self) -> dict[str, int]:
        """Rows in any order, as they are in a batch that requests come into and leave."""
        scheduler = self.engine.scheduler
        ids = [request.id for request in (*scheduler.running, *scheduler.waiting)]
        return dict(zip(ids, self.rng.sample(range(len(ids)), len(ids)), strict=True))

    def _sample(self, row: ScheduledRequest, _: Sequence[int]) -> Sequence[int]:
        accepted = 0
        while accepted < len(row.drafts) and self.rng.random() < self.options.acceptance:
            accepted += 1
        self._sampled[row.id] = (*row.drafts[:accepted], *self._new_tokens(1))
        return self._sampled[row.id]

    def _finish(self, row: ScheduledRequest) -> None:
        request = self.engine.scheduler.requests[row.id]
        if len(request.tokens) - request.num_prompt >= self._lengths[row.id]:
            self.engine.finish(row.id)
            self.counts.finished += 1

    def _check_progress(self, scheduled: Scheduled) -> None:
        self._idle = 0 if scheduled.rows else self._idle + 1
        if self._idle >= STALLED:
            blocks = self.engine.world.num_blocks
            raise ValueError(f"blocks = {blocks}, but should be enough to go on [replay-trace]")

    def _count(self, scheduled: Scheduled, wished: int) -> None:
        counts = self.counts
        counts.steps = self.engine.steps
        counts.preemptions += len(scheduled.preempted)
        counts.wished_preemptions += wished
        counts.evictions += len(self._published.intersection(scheduled.lost))
        self._published = self._published.difference(scheduled.lost).union(scheduled.registered)
        for row in scheduled.rows:
            self._count_row(row)
        self.recent.append(step_record(self.engine.steps - 1, scheduled, self._sampled))

    def _count_row(self, row: ScheduledRequest) -> None:
        counts, sampled = self.counts, self._sampled.get(row.id, ())
        if row.is_prefilling:
            counts.prompt_tokens += row.length
        else:
            counts.decoded_tokens += row.length
        counts.drafts += len(row.drafts)
        counts.sampled += len(sampled)
        counts.accepted += max(0, len(sampled) - 1)
        counts.hits += row.hit > 0
        counts.hit_tokens += row.hit * self.engine.world.block_size
        counts.resumptions += row.is_resumed


def replay(options: ReplayOptions, console: Console) -> int:
    """Replay a trace, tell what happened, and leave it in files; returns the exit code.

    Raises:
        ValueError: it cannot be replayed like that.
    """
    device = choose_device(options.device)
    traffic = summary(options.trace, options.factor, options.requests)
    subject = load(options.subject)
    if _has_its_own(options, subject, device):
        return replay_release(options, subject, traffic, _longest(options), console)
    try:
        engine = make_engine(options, subject, device, _longest(options))
    except Violation as refusal:
        tell_no_engine(console, options, refusal)
        return FALSIFIED
    serving = Serving(engine, arrivals(options.trace, factor=options.factor, limit=options.requests), options)
    print_headline(console, options, traffic, engine_line(options, engine.world, device))
    began = time.monotonic()
    with Progress(console, traffic.requests) as progress:
        violation, interrupted = _serve(serving, progress)
    outcome = "interrupted" if interrupted else "clean" if violation is None else "violation"
    content = {
        "outcome": outcome,
        "seconds": time.monotonic() - began,
        "traffic": asdict(traffic),
        "counts": asdict(serving.counts),
        "marks": dict(engine.marks.counts),
        "violation": None if violation is None else str(violation),
    }
    finish(
        console,
        options,
        content,
        sizes(engine.world),
        lambda: tell_violation(console, options, engine, violation, list(serving.recent)),
    )
    return {"clean": CLEAN, "violation": FALSIFIED, "interrupted": INCOMPLETE}[outcome]


def _has_its_own(options: ReplayOptions, subject: Subject, device: str) -> bool:
    """Whether the subject's own engine is to be driven.

    Raises:
        ValueError: it is asked for, and there is none, or none on this device.
    """
    lacking = not subject.has("LiveEngine")
    if options.engine == "ours" or (options.engine == "auto" and (lacking or device != "cpu")):
        return False
    if lacking:
        rule = "a subject with an engine of its own, such as vllm"
        raise ValueError(f"subject = {options.subject!r}, but should be {rule} [replay-trace]")
    if device != "cpu":
        raise ValueError(f"device = {device!r}, but should be cpu with engine = 'release' [replay-trace]")
    return True


def _serve(serving: Serving, progress: Progress) -> tuple[Violation | None, bool]:
    """Until all requests have been served, a law is broken, or the user has enough."""
    try:
        while not serving.is_over:
            serving.step()
            progress.show(serving.counts)
        serving.engine.check_everything()
    except Violation as violation:
        serving.counts.violations += 1
        return violation, False
    except KeyboardInterrupt:
        return None, True
    return None, False


def _longest(options: ReplayOptions) -> int:
    """Tokens of the longest request."""
    found = arrivals(options.trace, factor=options.factor, limit=options.requests)
    return max(len(one.prompt) + one.output_length for one in found)
