"""The scenario of a request, worked by hand: its chunks, its blocks, and what every block holds after every step.

What a column holds is written as the number of tokens behind its temporal state, and in brackets the tokens whose conv
inputs are in its rows, as far as there is a promise: `2=10[7,8,9] 3=11`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from oracle.lifecycle.ledger import NOTHING, ConvRows, Held, StateLedger
from oracle.lifecycle.requests import Geometry, ScheduledRequest, ScheduleRequest, SchedulerStep, Stage
from oracle.lifecycle.scheduler import Scheduler, aligned_length
from tests.oracle.test_worked_examples import case

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


# How much of a prompt a step computes: contract 2.7.


@pytest.mark.parametrize(
    ("tokens", "computed", "length", "scheduled"),
    [
        case("all of it, up to the last boundary", 10, 0, 10, 8),
        case("one block and a part", 10, 0, 7, 4),
        case("less than a block, at the beginning", 10, 0, 3, 0),
        case("the rest behind the last boundary", 10, 8, 2, 2),
        case("a prompt that ends on a boundary", 8, 0, 8, 8),
        case("prompt and replay", 13, 4, 9, 8),
        case("one block and a part of a long one", 16, 0, 5, 4),
        case("a prompt shorter than a block", 3, 0, 3, 3),
        case("from within a block to its end", 8, 2, 6, 6),
        case("from within a block beyond its end", 10, 2, 8, 6),
    ],
)
def test_chunks_end_where_blocks_do(tokens: int, computed: int, length: int, scheduled: int) -> None:
    assert aligned_length(computed, length, tokens, 4) == scheduled


def test_a_prompt_whose_budget_is_below_a_block_is_not_scheduled() -> None:
    scenario = Scenario().arrive("a", 10)
    assert scenario.step(Turn(tokens=3)).rows == ()
    assert scenario.scheduler.requests["a"].stage is Stage.WAITING


# What blocks hold: contract 2.9, with K = 4.


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
BACKWARD = (
    Worked(4, 0, "", "0=4[1,2,3]", registered={0: 4}),
    Worked(2, 1, FRONT, "0=4[1,2,3] 1=6[3,4,5]"),
    Worked(
        1,
        2,
        "0=4[1,2,3] 1=6[3,4,5] 2=6[3,4,5]",
        "0=4[1,2,3] 1=6[3,4,5] 2=7[4,5,6,7,8] 3=8 4=9",
        drafts=2,
    ),
    Worked(
        1,
        1,
        "0=4[1,2,3] 1=7[4,5,6] 2=7[4,5,6,7,8] 3=8 4=9",
        "0=4[1,2,3] 1=8[5,6,7] 2=7[4,5,6,7,8] 3=8 4=9",
        registered={1: 8},
    ),
    Worked(
        1,
        2,
        "0=4[1,2,3] 1=8[5,6,7] 2=8[5,6,7] 3=8 4=9",
        "0=4[1,2,3] 1=8[5,6,7] 2=9[6,7,8,9,10] 3=10 4=11",
        drafts=2,
    ),
)
IN_ONE_COLUMN = (
    Worked(5, 0, "", "0=5[2,3,4]"),
    Worked(1, 0, "0=5[2,3,4]", "0=6[3,4,5,6,7] 1=7 2=8", drafts=2, accepts=3),
    Worked(1, 0, "0=6[3,4,5,6,7] 1=7 2=8", "0=9[6,7,8] 1=7 2=8"),
    Worked(1, 0, "0=9[6,7,8] 1=7 2=8", "0=10[7,8,9,10] 1=11 2=8", drafts=1, accepts=2),
)
TO_THE_END = (
    Worked(6, 0, "", "0=6[3,4,5]"),
    Worked(1, 0, "0=6[3,4,5]", "0=7[4,5,6,7] 1=8", drafts=1, accepts=2),
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


@pytest.mark.parametrize(
    ("geometry", "prompt", "steps"),
    [
        case("E1: a prompt in two chunks", ALIGN, 10, LONG[:2]),
        case("E2: acceptance crosses a boundary", ALIGN, 10, LONG[:3]),
        case("E3: nothing is accepted, in the same column", ALIGN, 10, LONG[:4]),
        case("E4: acceptance ends on a boundary, the running column is behind it", ALIGN, 10, LONG[:5]),
        case("between E4 and E5: everything is accepted, without a boundary", ALIGN, 10, LONG[:6]),
        case("E5: the first token already ends on a boundary", ALIGN, 10, LONG),
        case("E6: everything is accepted, up to the boundary", ALIGN, 5, UP_TO_THE_BOUNDARY),
        case("E9: fewer drafts lead back to the column before", ALIGN, 6, BACKWARD),
        case("contract 3.1: one column for ever", NONE, 5, IN_ONE_COLUMN),
        case("contract 3.1: no copy at the end of a block", replace(NONE, block_size=8), 6, TO_THE_END),
        case(
            "contract 3.1: no prefix cache", replace(NONE, block_size=8), 8, (Worked(8, 0, "", "0=8[5,6,7]"),)
        ),
        case("contract 3.2: chunks of any length, and decodes", ALL, 9, EVERY_BOUNDARY),
        case("contract 3.2: every boundary of a chunk", ALL, 13, THREE_BLOCKS),
    ],
)
def test_columns_hold_what_was_worked_out(geometry: Geometry, prompt: int, steps: tuple[Worked, ...]) -> None:
    after(steps, prompt, geometry)


def test_e7_a_prefix_hit_starts_from_the_shared_column_and_leaves_it() -> None:
    scenario = after(LONG, 10)
    scenario.arrive("b", [*scenario.scheduler.requests["a"].tokens[:20], *scenario.new(2)])
    shared = scenario.blocks()[4]
    worked = Worked(2, 5, "4=20[17,18,19] 5=20[17,18,19]", "4=20[17,18,19] 5=22[19,20,21]")
    (row,) = plays(scenario, worked, "b").rows
    assert (row.computed, row.hit, row.new_blocks) == (20, 5, (tuple(scenario.blocks("b")),))
    assert scenario.blocks("b")[:5] == [0, 0, 0, 0, shared]
    assert 0 not in scenario.blocks("b")[5:]
    assert len(scenario.blocks("b")) == 8


def preempted_after_a_prompt_of_seven() -> tuple[Scenario, ScheduledRequest]:
    """E8 up to the preemption, and the row of the step that resumes."""
    scenario = Scenario().arrive("a", 7)
    scenario.step(Turn())
    scenario.step(Turn())
    assert scenario.step(preempted=["a"]).preempted == ("a",)
    worked = Worked(4, 1, FRONT, "0=4[1,2,3] 1=8[5,6,7]", registered={1: 8})
    (row,) = plays(scenario, worked).rows
    return scenario, row


def test_e8_a_resumed_request_hits_its_own_block_and_replays_what_is_behind_it() -> None:
    scenario, row = preempted_after_a_prompt_of_seven()
    assert (row.computed, row.length, row.hit, row.drafts) == (4, 4, 1, ())
    assert (row.is_new, row.is_resumed, row.is_prefilling, row.samples) == (False, True, True, True)
    assert (scenario.worker_blocks(), row.new_blocks) == (scenario.blocks(), (tuple(scenario.blocks()),))


# What the ledger promises, beyond the examples.


def test_a_decode_promises_nothing_new_of_conv_rows_in_speculative_columns() -> None:
    scenario = after(UP_TO_THE_BOUNDARY[:2], 5)
    window = ConvRows(3)
    scenario.ledger.held[0, scenario.worker_blocks()[2]] = Held(2, window)
    scenario.step(Turn(drafts=2, accepts=1))
    assert scenario.ledger.at("a", 0, 2).window is window
    assert scenario.scheduler.prefixes.length(scenario.ledger.at("a", 0, 2).temporal or 0) == 7


def test_every_group_is_promised_the_same_in_blocks_of_its_own() -> None:
    scenario = Scenario(Geometry(block_size=4, num_spec=1, num_groups=2)).arrive("a", 6)
    scenario.step(Turn())
    scenario.step(Turn())
    assert scenario.ledger.tables["a"] == [[1, 2, 5], [3, 4, 6]]
    assert [scenario.ledger.at("a", group, 1) for group in (0, 1)] == [scenario.ledger.held[0, 2]] * 2
