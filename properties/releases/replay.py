"""Recorded traffic on its way through a release's own engine: its scheduler, its cache manager, and its model runner."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from properties.releases.recorded_traffic import BLOCK, Arrival, TrafficSummary, arrivals, summary
from properties.releases.violations import STEP, LiveViolation, Violations
from properties.strategies.releases.live import LiveWorld
from statecheck.case.values import Call, Name, Outcome, Raised, Record, Returned, call
from statecheck.execution.executors import Executor
from statecheck.execution.in_process import InProcess
from statecheck.execution.run import not_offered
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.report.environment import environment_of_numbers
from statecheck.util.files import save_json
from statecheck.util.text import visible
from subjects import load

WAITING = 2
"""Requests that wait beside those that run."""
STALLED = 100
"""Steps in a row in which nothing is computed, after which nothing ever will."""
_SCARCE = 7 / 8
"""Of the blocks that as many requests as may run would hold, so that some are preempted."""
_LINE_SECONDS = 10.0
_SHOWN = 10
_TOKENS_AT_ONCE = 65536


@dataclass(frozen=True)
class ReplayOptions:
    """The trace to replay, and the engine; a number that is None follows from the others and from the trace.

    `block_size`: tokens of a block, after scaling by `factor`. `tokens`: how many a step computes at most.
    `method` and `async_scheduling` are vLLM's: where drafts come from, and whether the next step is scheduled before
    this one's tokens are known.
    """

    trace: Path
    subject: str = "vllm"
    device: str = "cpu"
    requests: int = 2000
    factor: int = 64
    runner: str = "V2"
    block_size: int | None = None
    num_spec: int = 3
    method: str = "ngram"
    async_scheduling: bool | None = None
    max_num_seqs: int = 16
    blocks: int | None = None
    tokens: int | None = None
    layout: str = "SD"
    seed: int = 0
    acceptance: float = 0.7
    out: Path = Path("build/replay")

    def __post_init__(self) -> None:
        at_least = {"requests": 1, "factor": 1, "num_spec": 0, "max_num_seqs": 1}
        for name, least in at_least.items():
            _check(name, getattr(self, name), getattr(self, name) >= least, f">= {least}")
        _check("device", self.device, self.device in ("auto", "cpu"), "cpu")
        _check("runner", self.runner, self.runner in ("V1", "V2"), "V1 or V2")
        _check("layout", self.layout, self.layout in ("SD", "DS"), "SD or DS")
        _check("method", self.method, self.method in ("eagle", "ngram"), "eagle or ngram")
        rule = "eagle with async_scheduling = True and runner = 'V1'"
        _check("method", self.method, not self.async_scheduling or self._may_overlap, rule)
        _check("acceptance", self.acceptance, 0 <= self.acceptance <= 1, "from 0 to 1")
        _check("trace", str(self.trace), self.trace.is_file(), "a file of recorded requests")
        _check("factor", self.factor, BLOCK % self.factor == 0, f"a divisor of {BLOCK}")
        least = 1 + self.num_spec
        _check(
            "block_size",
            self.tokens_per_block,
            self.tokens_per_block >= least,
            f">= {least}, a token and its drafts",
        )
        least = self.max_num_seqs * (1 + self.num_spec) + self.tokens_per_block
        _check(
            "tokens",
            self.tokens_per_step,
            self.tokens_per_step >= least,
            f">= {least}, all drafts and a block",
        )

    @property
    def tokens_per_block(self) -> int:
        return BLOCK // self.factor if self.block_size is None else self.block_size

    @property
    def tokens_per_step(self) -> int:
        """Enough for a few prompts beside all drafts."""
        least = self.max_num_seqs * (1 + self.num_spec) + self.tokens_per_block
        return max(least, _TOKENS_AT_ONCE // self.factor) if self.tokens is None else self.tokens

    @property
    def overlaps_steps(self) -> bool:
        """As the user wants it, or else as vLLM chooses."""
        return self._may_overlap if self.async_scheduling is None else self.async_scheduling

    @property
    def _may_overlap(self) -> bool:
        """Whether vLLM has async scheduling with such drafts. The scheduler is asynchronous wherever the release allows that."""
        return not self.num_spec or self.method == "eagle" or self.runner == "V2"


def _check(name: str, value: object, right: bool, rule: str) -> None:
    if not right:
        raise ValueError(f"{name} = {value!r}, but should be {rule} [replay-trace]")


@dataclass
class ServedCounts:
    """Counts of events; `declared_violations` are those of `violations` that are of declared defects."""

    arrived: int = 0
    finished: int = 0
    steps: int = 0
    drafts: int = 0
    accepted: int = 0
    sampled: int = 0
    hits: int = 0
    hit_tokens: int = 0
    preemptions: int = 0
    resumptions: int = 0
    evictions: int = 0
    violations: int = 0
    computed_tokens: int = 0
    published: int = 0
    declared_violations: int = 0


class EngineRaises(Exception):
    """A call of the engine has raised, and it cannot go on."""


def world_of(options: ReplayOptions, traffic: TrafficSummary, longest: int) -> LiveWorld:
    """The engine for requests of up to `longest` tokens.

    Raises:
        ValueError: too few blocks for the longest request.
    """
    size, drafts = options.tokens_per_block, options.num_spec
    # The V1 model runner wants all recurrent groups to be alike.
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
    mean_blocks = -(-mean // size) + len(kinds) * (2 + drafts)
    scarce = 1 + int(options.max_num_seqs * mean_blocks * _SCARCE)
    blocks = max(scarce, world.blocks_of_a_request) if options.blocks is None else options.blocks
    if blocks < world.blocks_of_a_request:
        rule = f">= {world.blocks_of_a_request}, those of the longest request"
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


class Progress:
    """Prints how far a replay is, a line now and then."""

    def __init__(self, console: Console, requests: int) -> None:
        self._console, self._requests = console, requests
        self._began = self._last_line = time.monotonic()

    def show(self, counts: ServedCounts) -> None:
        now = time.monotonic()
        if now - self._last_line > _LINE_SECONDS:
            self._last_line = now
            rate = counts.steps / max(now - self._began, 1e-9)
            _print(
                self._console,
                f"{counts.finished:,} of {self._requests:,} requests, {counts.steps:,} steps, {rate:,.1f}/s, "
                f"{counts.hits:,} hits, {counts.violations} violations",
            )


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

    def arriving() -> Iterator[Arrival]:
        return arrivals(options.trace, factor=options.factor, limit=options.requests)

    world = world_of(
        options, traffic, max(len(arrival.prompt) + arrival.output_length for arrival in arriving())
    )
    violations = Violations(
        subject, f"real-engine/{options.runner.lower()}", world.settings_with(subject.inside)
    )
    serving = ReleaseServing(InProcess(subject, "cpu"), world, arriving(), options, violations)
    _print(
        console,
        f"{options.trace.name}, lengths / {options.factor}: {traffic.requests:,} requests, {traffic.tokens_in:,} prompt tokens "
        f"({traffic.share_seen:.0%} seen before), {traffic.tokens_out:,} to generate",
    )
    _print(
        console,
        f"{subject.name} {subject.release}, its own engine, runner {world.runner}, layout {world.layout}, "
        f"attention + {' + '.join(world.kinds)}, {world.num_blocks:,} blocks of {world.block_size} tokens, "
        f"{world.max_num_batched_tokens:,} tokens a step, "
        f"{'async' if world.async_scheduling else 'no async'} scheduling, {options.num_spec} drafts, seed {options.seed}",
    )
    began, outcome, progress = time.monotonic(), "clean", Progress(console, traffic.requests)
    try:
        while not serving.is_over:
            serving.step()
            progress.show(serving.counts)
    except EngineRaises:
        outcome = "raised"
    except KeyboardInterrupt:
        outcome = "interrupted"
    seconds, counts = time.monotonic() - began, serving.counts
    new = counts.violations - counts.declared_violations
    outcome = "violation" if new else outcome
    steps_per_second = counts.steps / max(seconds, 1e-9)
    content = {
        "outcome": outcome,
        "seconds": seconds,
        "traffic": asdict(traffic),
        "counts": asdict(counts),
        "violations": [asdict(violation) for violation in violations.found],
        "steps_per_second": steps_per_second,
        "options": {
            name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()
        },
        "world": asdict(world),
        "environment": environment_of_numbers(),
    }
    save_json(options.out / "replay.json", content)
    table = Table(show_edge=False, pad_edge=False, show_header=False)
    table.add_column("what")
    table.add_column("count", justify="right", no_wrap=True)
    for name, number in asdict(counts).items():
        table.add_row(name.replace("_", " "), f"{number:,}")
    table.add_row("steps/s", f"{steps_per_second:,.1f}")
    console.print(table)
    declared = Counter(violation.defect for violation in violations.found if violation.defect)
    for name, count in sorted(declared.items()):
        _print(console, f"known: {name}, {count:,} violation{'s' if count > 1 else ''}")
    undeclared = [violation for violation in violations.found if not violation.defect]
    for violation in undeclared[:_SHOWN]:
        _print(console, f"VIOLATION in step {violation.step}, {violation.law}: {violation.message}")
    if len(undeclared) > _SHOWN:
        _print(console, f"and {len(undeclared) - _SHOWN:,} more, in replay.json")
    _print(console, f"{outcome}: {counts.steps:,} steps in {seconds:.0f} s; {options.out / 'replay.json'}")
    if new:
        return FALSIFIED
    return CLEAN if outcome == "clean" else INCOMPLETE


def _print(console: Console, text: str) -> None:
    """A line, whatever is in it."""
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)
