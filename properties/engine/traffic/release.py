"""Recorded traffic on its way through a release's own engine: its scheduler, its cache manager, and its model runner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

from rich.console import Console

from properties.engine.traffic.counts import ServedCounts
from properties.engine.traffic.options import ReplayOptions
from properties.engine.traffic.release_report import release_line, tell_violations
from properties.engine.traffic.report import Progress, finish, print_headline
from properties.engine.traffic.requests import Arrival, TrafficSummary, arrivals, summary
from properties.engine.traffic.violations import STEP, LiveViolation, Violations
from properties.strategies.releases.live import LiveWorld
from statecheck.case.values import Call, Name, Outcome, Raised, Record, Returned, call
from statecheck.execution.executors import Executor
from statecheck.execution.in_process import InProcess
from statecheck.execution.run import not_offered
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from subjects import load

WAITING = 2
"""Requests that wait beside those that run."""
STALLED = 100
"""Steps in a row in which nothing is computed, after which nothing ever will."""
_SCARCE = 7 / 8
"""Of the blocks that as many requests as may run would hold, so that some are preempted."""


class EngineRaises(Exception):
    """A call of the engine has raised, and it cannot go on."""


def world_of(options: ReplayOptions, traffic: TrafficSummary, longest: int) -> LiveWorld:
    """The engine for requests of up to `longest` tokens.

    Raises:
        ValueError: too few blocks for the longest request.
    """
    size, drafts = options.tokens_per_block, options.num_spec
    # The first runner wants all recurrent groups to be alike.
    kinds = ("gdn", "gdn") if options.runner == "V1" else ("gdn", "mamba2")
    # A request may run over its length by the drafts of its last step, and drafts once more before.
    length = -(-(longest + 2 * (1 + drafts)) // size) * size
    world = LiveWorld(
        kinds=kinds,
        block_size=size,
        max_model_len=length,
        max_num_batched_tokens=options.tokens_per_step,
        max_num_seqs=options.max_num_seqs,
        num_spec=drafts,
        method=options.method if drafts else "ngram",
        async_scheduling=options.overlaps_steps,
        padding=1,
        runner=options.runner,
        layout=options.layout,
    )
    mean = -(-(traffic.tokens_in + traffic.tokens_out) // traffic.requests)
    one = -(-mean // size) + len(kinds) * (2 + drafts)
    scarce = 1 + int(options.max_num_seqs * one * _SCARCE)
    blocks = max(scarce, world.blocks_of_one) if options.blocks is None else options.blocks
    if blocks < world.blocks_of_one:
        rule = f">= {world.blocks_of_one}, those of the longest request"
        raise ValueError(f"blocks = {blocks}, but should be {rule} [replay-trace]")
    return replace(world, num_blocks=blocks)


@dataclass(eq=False)
class ReleaseServing:
    """An engine that serves requests in the order of their arrival; how many drafts are accepted, `rng` decides."""

    port: Executor
    world: LiveWorld
    arriving: Iterator[Arrival]
    options: ReplayOptions
    violations: Violations
    counts: ServedCounts = field(default_factory=ServedCounts)

    def __post_init__(self) -> None:
        self.rng = Random(self.options.seed)
        self.is_over = False
        self._alive: list[str] = []
        self._begun: set[str] = set()
        self._cached: set[tuple[int, int, str, int]] = set()
        self._idle = 0
        self._next = next(self.arriving, None)
        made = call("LiveEngine", settings=self.violations.settings, bind="engine")
        outcome = self._call(made)
        reason = not_offered(outcome)
        if reason is not None:
            rule = "one that the release has"
            raise ValueError(
                f"runner = {self.options.runner!r}, but should be {rule} [replay-trace]: {reason}"
            )

    def step(self) -> None:
        """Let requests in, and have the engine take a step.

        Raises:
            EngineRaises: it raised instead.
            ValueError: nothing can be computed any more.
        """
        self._let_in()
        turns = {name: accepted for name in self._alive if (accepted := self._accepted())}
        outcome = self._call(call(STEP, self=Name("engine"), turns=turns))
        assert isinstance(outcome, Returned)
        assert isinstance(outcome.value, Record)
        self._count(outcome.value)
        for violation in self.violations.look(self.counts.steps, outcome.value):
            self._broken(violation)
        self.counts.steps += 1

    def _let_in(self) -> None:
        while self._next is not None and len(self._alive) < self.options.max_num_seqs + WAITING:
            arrival, name = self._next, f"r{self._next.number}"
            self._call(
                call(
                    "LiveEngine.add_request",
                    self=Name("engine"),
                    id=name,
                    prompt=arrival.prompt,
                    max_tokens=arrival.output_length,
                )
            )
            self._alive.append(name)
            self.counts.arrived += 1
            self._next = next(self.arriving, None)

    def _accepted(self) -> int:
        accepted = 0
        while accepted < self.options.num_spec and self.rng.random() < self.options.acceptance:
            accepted += 1
        return accepted

    def _call(self, made: Call) -> Outcome:
        made = replace(made, environment=tuple(self.world.environment.items()))
        outcome = self.port.execute(made)
        assert outcome is not None
        if isinstance(outcome, Raised) and not_offered(outcome) is None:
            self._broken(self.violations.raised(self.counts.steps, made, outcome))
            raise EngineRaises
        return outcome

    def _broken(self, violation: LiveViolation) -> None:
        self.counts.violations += 1
        self.counts.declared_violations += bool(violation.defect)

    def _count(self, step: Record) -> None:
        counts, seen = self.counts, dict(step.fields)
        for name, decided in seen["scheduled"].items():
            counts.resumptions += decided["begins"] and name in self._begun
            self._begun.add(name)
            hit = decided["computed"] if decided["begins"] else 0
            counts.hits += hit > 0
            counts.hit_tokens += hit
            counts.computed_tokens += decided["tokens"]
            counts.drafts += decided["drafts"]
        counts.preemptions += len(seen["preempted"])
        for tokens in seen["outputs"].values():
            counts.sampled += len(tokens)
            counts.accepted += max(0, len(tokens) - 1)
        cached = set(map(tuple, seen["published"]))
        counts.published += len(cached - self._cached)
        counts.evictions += len(self._cached - cached)
        self._cached = cached
        for name in seen["finished"]:
            counts.finished += 1
            self._alive.remove(name)
        self._check_progress(seen)

    def _check_progress(self, seen: dict) -> None:
        self.is_over = bool(seen["idle"]) and self._next is None
        self._idle = 0 if seen["scheduled"] or seen["outputs"] else self._idle + 1
        if self._idle >= STALLED:
            blocks = self.world.num_blocks
            raise ValueError(f"blocks = {blocks}, but should be enough to go on [replay-trace]")


def replay(options: ReplayOptions, console: Console) -> int:
    """Replay a trace in the subject's own engine, tell what happened, and leave it in files; the exit code.

    Raises:
        ValueError: it cannot be replayed like that.
    """
    traffic = summary(options.trace, options.factor, options.requests)
    subject = load(options.subject)
    if not subject.has("LiveEngine"):
        rule = "a subject with an engine of its own, such as vllm"
        raise ValueError(f"subject = {options.subject!r}, but should be {rule} [replay-trace]")
    world = world_of(options, traffic, _longest(options))
    settings = world.settings_with(subject.inside)
    violations = Violations(subject, f"real-engine/{options.runner.lower()}", settings)
    arriving = arrivals(options.trace, factor=options.factor, limit=options.requests)
    serving = ReleaseServing(InProcess(subject, "cpu"), world, arriving, options, violations)
    print_headline(console, options, traffic, release_line(world, subject))
    began = time.monotonic()
    outcome = _serve(serving, Progress(console, traffic.requests))
    new = serving.counts.violations - serving.counts.declared_violations
    content: dict[str, Any] = {
        "outcome": "violation" if new else outcome,
        "seconds": time.monotonic() - began,
        "traffic": asdict(traffic),
        "counts": asdict(serving.counts),
        "violations": [asdict(one) for one in violations.found],
    }
    finish(
        console,
        options,
        content,
        asdict(world),
        lambda: tell_violations(console, content["violations"]),
    )
    if new:
        return FALSIFIED
    return CLEAN if outcome == "clean" else INCOMPLETE


def _serve(serving: ReleaseServing, progress: Progress) -> str:
    """Until all requests have been served, the engine raises, or the user has enough; which of them it was."""
    try:
        while not serving.is_over:
            serving.step()
            progress.show(serving.counts)
    except EngineRaises:
        return "raised"
    except KeyboardInterrupt:
        return "interrupted"
    return "clean"


def _longest(options: ReplayOptions) -> int:
    """Tokens of the longest request."""
    found = arrivals(options.trace, factor=options.factor, limit=options.requests)
    return max(len(one.prompt) + one.output_length for one in found)
