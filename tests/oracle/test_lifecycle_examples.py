"""The scenario of a request, worked by hand: its chunks, its blocks, and what every block holds after every step.

What a column holds is written as the number of tokens behind its temporal state, and in brackets the tokens whose conv
inputs are in its rows, as far as there is a promise: `2=10[7,8,9] 3=11`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from oracle.lifecycle.ledger import ConvRows, Held
from oracle.lifecycle.requests import Geometry, ScheduledRequest, Stage
from oracle.lifecycle.scheduler import aligned_length
from tests.oracle.lifecycle_scenarios import (
    ALIGN,
    ALL,
    EVERY_BOUNDARY,
    FRONT,
    LONG,
    NONE,
    THREE_BLOCKS,
    UP_TO_THE_BOUNDARY,
    Scenario,
    Turn,
    Worked,
    after,
    plays,
    worked_steps,
)
from tests.oracle.worked import case

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


BACKWARD = worked_steps("backward")
IN_ONE_COLUMN = worked_steps("in_one_column")
TO_THE_END = worked_steps("to_the_end")


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
