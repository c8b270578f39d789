"""A request that is scheduled step by step, and what its columns are worked out to hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

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
        """One step from scheduling to commitment."""
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
        """What the columns of a request's first group hold."""
        held = [
            (column, self.ledger.at(request, 0, column))
            for column in range(len(self.ledger.tables[request][0]))
        ]
        return " ".join(f"{column}={self._contents(one)}" for column, one in held if one != NOTHING)

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


FIRST_CHUNK = Worked(8, 1, "", "1=8[5,6,7]", registered={1: 8})
LAST_CHUNK = Worked(2, 2, "1=8[5,6,7] 2=8[5,6,7]", "1=8[5,6,7] 2=10[7,8,9]")
CROSSES_BY_ACCEPTANCE = Worked(
    1,
    3,
    "1=8[5,6,7] 2=10[7,8,9] 3=10[7,8,9]",
    "1=8[5,6,7] 2=10[7,8,9] 3=11[8,9,10,11,12] 4=12 5=13",
    "1=8[5,6,7] 2=12[9,10,11] 3=11[8,9,10,11,12] 4=12 5=13",
    drafts=2,
    accepts=3,
)
STAYS = Worked(
    1,
    3,
    "1=8[5,6,7] 2=12[9,10,11] 3=11[8,9,10,11,12] 4=12 5=13",
    "1=8[5,6,7] 2=12[9,10,11] 3=14[11,12,13,14,15] 4=15 5=16",
    drafts=2,
    registered={2: 12},
)
CROSSES_BY_ONE = Worked(
    1,
    4,
    "1=8[5,6,7] 2=12[9,10,11] 3=14[11,12,13,14,15] 4=14[11,12,13] 5=16",
    "1=8[5,6,7] 2=12[9,10,11] 3=14[11,12,13,14,15] 4=15[12,13,14,15,16] 5=16 6=17",
    "1=8[5,6,7] 2=12[9,10,11] 3=16[13,14,15] 4=15[12,13,14,15,16] 5=16 6=17",
    drafts=2,
    accepts=2,
)
ACCEPTS_ALL = Worked(
    1,
    4,
    "1=8[5,6,7] 2=12[9,10,11] 3=16[13,14,15] 4=15[12,13,14,15,16] 5=16 6=17",
    "1=8[5,6,7] 2=12[9,10,11] 3=16[13,14,15] 4=17[14,15,16,17,18] 5=18 6=19",
    drafts=2,
    accepts=3,
    registered={3: 16},
)
STARTS_ON_A_BOUNDARY = Worked(
    1,
    5,
    "1=8[5,6,7] 2=12[9,10,11] 3=16[13,14,15] 4=17[14,15,16,17,18] 5=19[16,17,18] 6=19",
    "1=8[5,6,7] 2=12[9,10,11] 3=16[13,14,15] 4=17[14,15,16,17,18] 5=20[17,18,19,20,21] 6=21 7=22",
    "1=8[5,6,7] 2=12[9,10,11] 3=16[13,14,15] 4=20[17,18,19] 5=20[17,18,19,20,21] 6=21 7=22",
    drafts=2,
    registered={4: 20},
)
LONG = (
    FIRST_CHUNK,
    LAST_CHUNK,
    CROSSES_BY_ACCEPTANCE,
    STAYS,
    CROSSES_BY_ONE,
    ACCEPTS_ALL,
    STARTS_ON_A_BOUNDARY,
)
FRONT = "0=4[1,2,3] 1=4[1,2,3]"
UP_TO_THE_BOUNDARY = (
    Worked(4, 0, "", "0=4[1,2,3]", registered={0: 4}),
    Worked(1, 1, FRONT, "0=4[1,2,3] 1=5[2,3,4]"),
    Worked(
        1,
        1,
        "0=4[1,2,3] 1=5[2,3,4]",
        "0=4[1,2,3] 1=6[3,4,5,6,7] 2=7 3=8",
        "0=4[1,2,3] 1=8[5,6,7] 2=7 3=8",
        drafts=2,
        accepts=3,
    ),
    Worked(
        1,
        2,
        "0=4[1,2,3] 1=8[5,6,7] 2=8[5,6,7] 3=8",
        "0=4[1,2,3] 1=8[5,6,7] 2=9[6,7,8,9,10] 3=10 4=11",
        drafts=2,
        registered={1: 8},
    ),
)
EVERY_BOUNDARY = (
    Worked(5, 1, "", "0=4[1,2,3] 1=5[2,3,4]", registered={0: 4}),
    Worked(4, 2, "0=4[1,2,3] 1=5[2,3,4]", "0=4[1,2,3] 1=8[5,6,7] 2=9[6,7,8]", registered={1: 8}),
    Worked(1, 2, "0=4[1,2,3] 1=8[5,6,7] 2=9[6,7,8]", "0=4[1,2,3] 1=8[5,6,7] 2=10[7,8,9]"),
    Worked(1, 2, "0=4[1,2,3] 1=8[5,6,7] 2=10[7,8,9]", "0=4[1,2,3] 1=8[5,6,7] 2=11[8,9,10]"),
    Worked(
        1,
        2,
        "0=4[1,2,3] 1=8[5,6,7] 2=11[8,9,10]",
        "0=4[1,2,3] 1=8[5,6,7] 2=12[9,10,11]",
        registered={2: 12},
    ),
    Worked(
        1,
        3,
        "0=4[1,2,3] 1=8[5,6,7] 2=12[9,10,11]",
        "0=4[1,2,3] 1=8[5,6,7] 2=12[9,10,11] 3=13[10,11,12]",
    ),
)
THREE_BLOCKS = (
    Worked(13, 3, "", "0=4[1,2,3] 1=8[5,6,7] 2=12[9,10,11] 3=13[10,11,12]", registered={0: 4, 1: 8, 2: 12}),
)


def after(steps: Iterable[Worked], prompt: int, geometry: Geometry = ALIGN) -> Scenario:
    """A request that has gone through the steps, each as it was worked out."""
    scenario = Scenario(geometry).arrive("a", prompt)
    for worked in steps:
        plays(scenario, worked)
    return scenario
