"""A request that is scheduled step by step, and what its columns are worked out to hold."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from oracle.lifecycle.ledger import NOTHING, Held, StateLedger
from oracle.lifecycle.requests import Geometry, ScheduledRequest, ScheduleRequest, SchedulerStep
from oracle.lifecycle.scheduler import Scheduler

CONV_ROWS = 3
ALIGN = Geometry("align", block_size=4, num_spec=2)
NONE = Geometry("none", block_size=64, num_spec=2)
ALL = Geometry("all", block_size=4, num_spec=0)


@dataclass(frozen=True)
class Turn:
    """A request's part in a step: how many of its known tokens, how many drafts, and the accepted count."""

    id: str = "a"
    tokens: int = 64
    drafts: int = 0
    accepts: int = 1


@dataclass
class Scenario:
    """Requests with a scheduler and a ledger; each step's moments are kept in words, by request."""

    geometry: Geometry = ALIGN
    copied: dict[str, str] = field(default_factory=dict)
    forward: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.geometry)
        self.ledger = StateLedger(self.geometry, self.scheduler.prefixes)
        self.fresh = count(1000)

    def new(self, number: int) -> list[int]:
        """Tokens that no request has had."""
        return [next(self.fresh) for _ in range(number)]

    def arrive(self, request: str, prompt: int | Sequence[int]) -> Scenario:
        self.scheduler.arrive(request, self.new(prompt) if isinstance(prompt, int) else prompt)
        return self

    def step(self, *turns: Turn, preempted: Iterable[str] = ()) -> SchedulerStep:
        """Run a step from scheduling to commitment."""
        wishes = [ScheduleRequest(turn.id, turn.tokens, tuple(self.new(turn.drafts))) for turn in turns]
        step = self.scheduler.schedule(wishes, preempted)
        accepts = {turn.id: turn.accepts for turn in turns}
        sampled = {row.id: self._sampled(row, accepts[row.id]) for row in step.rows}
        self._execute(step, accepts)
        self.scheduler.commit(step, sampled)
        return step

    def _sampled(self, row: ScheduledRequest, accepts: int) -> list[int]:
        return [*row.drafts[: accepts - 1], *self.new(1)] if row.samples else []

    def _execute(self, step: SchedulerStep, accepts: dict[str, int]) -> None:
        self.ledger.lose(step.lost)
        self.ledger.begin(step.rows)
        self.ledger.before_forward(step.rows)
        self.copied = self._said(step)
        self.ledger.after_forward(step.rows)
        self.forward = self._said(step)
        self.ledger.after_sampling(step.rows, accepts)
        self.kept = self._said(step)

    def _said(self, step: SchedulerStep) -> dict[str, str]:
        return {row.id: self.columns(row.id) for row in step.rows}

    def columns(self, request: str) -> str:
        """The contents of the columns of a request's first group."""
        held = [
            (column, self.ledger.at(request, 0, column))
            for column in range(len(self.ledger.tables[request][0]))
        ]
        return " ".join(f"{column}={self._contents(slot)}" for column, slot in held if slot != NOTHING)

    def _contents(self, held: Held) -> str:
        prefixes = self.scheduler.prefixes
        temporal = "?" if held.temporal is None else str(prefixes.length(held.temporal))
        if held.window is None:
            return temporal
        rows = prefixes.last(held.window.end, CONV_ROWS + held.window.newest)
        return f"{temporal}[{','.join(str(prefixes.length(row) - 1) for row in rows)}]"

    def blocks(self, request: str = "a") -> list[int]:
        """The scheduler's block list."""
        return self.scheduler.requests[request].lists[0].columns

    def worker_blocks(self, request: str = "a") -> list[int]:
        """The worker's block list."""
        return self.ledger.tables[request][0]


@dataclass(frozen=True)
class Worked:
    """A step worked by hand: what is scheduled, the running column, and what columns hold at its three moments.

    `registered` is by column the number of tokens; `kept` is the same as `forward` unless it is given.
    """

    tokens: int
    run: int
    copied: str
    forward: str
    kept: str = ""
    drafts: int = 0
    accepts: int = 1
    registered: dict[int, int] = field(default_factory=dict)


def plays(scenario: Scenario, worked: Worked, request: str = "a") -> SchedulerStep:
    """Take the step and hold everything against what was worked out."""
    turn = Turn(request, tokens=worked.tokens, drafts=worked.drafts, accepts=worked.accepts)
    step = scenario.step(turn)
    assert [row.length for row in step.rows] == [worked.tokens + worked.drafts]
    assert scenario.ledger.columns[request] == worked.run
    assert scenario.copied[request] == worked.copied
    assert scenario.forward[request] == worked.forward
    assert scenario.kept[request] == (worked.kept or worked.forward)
    assert registered(scenario, step, request) == worked.registered
    return step


def registered(scenario: Scenario, step: SchedulerStep, request: str) -> dict[int, int]:
    prefixes, columns = scenario.scheduler.prefixes, scenario.blocks(request)
    return {columns.index(block): prefixes.length(prefix) for block, (_, prefix) in step.registered.items()}


def worked_steps(name: str) -> tuple[Worked, ...]:
    """The steps of that name in lifecycle_scenarios.toml."""
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))[name]
    registered = ({int(column): count for column, count in row.get("registered", {}).items()} for row in rows)
    return tuple(Worked(**row | {"registered": found}) for row, found in zip(rows, registered, strict=True))


LONG = worked_steps("long")
UP_TO_THE_BOUNDARY = worked_steps("up_to_the_boundary")
EVERY_BOUNDARY = worked_steps("every_boundary")
THREE_BLOCKS = worked_steps("three_blocks")
FRONT = "0=4[1,2,3] 1=4[1,2,3]"


def after(steps: Iterable[Worked], prompt: int, geometry: Geometry = ALIGN) -> Scenario:
    """A request that has gone through the steps, each as it was worked out."""
    scenario = Scenario(geometry).arrive("a", prompt)
    for worked in steps:
        plays(scenario, worked)
    return scenario
