"""Views of an engine: the order of its rows, where states are in its pools, its marks and its pictures."""

from __future__ import annotations

from oracle.lifecycle.requests import ScheduledRequest
from properties.engine.flaws import Flaw
from properties.engine.metadata import in_order
from properties.engine.world import World
from properties.strategies.align.runner import PREPROCESS
from statecheck.case.timeline import Cell, Spot, Timeline, WrongCell
from statecheck.execution.example import ExecutionContext
from tests.unit.properties.engine.driven import (
    ACCEPTED,
    BUILD,
    TEMPORAL,
    TEN,
    TWO,
    Tamper,
    copied,
    drives,
    edited,
    violates,
    world,
)

# The order of rows: contract 1.5.


def row(name: str, computed: int, length: int, *, prefilling: bool = True) -> ScheduledRequest:
    return ScheduledRequest(
        name, computed, length, (), (0,) * length, (0,) * length, ((),), is_prefilling=prefilling
    )


def test_decodes_come_before_short_chunks_long_ones_and_first_ones() -> None:
    rows = [row("first", 0, 1), row("long", 4, 4), row("short", 4, 3), row("decode", 9, 3, prefilling=False)]
    ordered = in_order(rows, world(), {row_.id: number for number, row_ in enumerate(rows)})
    assert [row_.id for row_ in ordered] == ["decode", "short", "long", "first"]


def test_among_equals_the_priority_decides() -> None:
    rows = [row(name, 9, 1 + number, prefilling=False) for number, name in enumerate("abc")]
    ordered = in_order(rows, world(), {"a": 2, "b": 0, "c": 1})
    assert [row_.id for row_ in ordered] == ["b", "c", "a"]


# Pictures.


def pictured(
    trial: ExecutionContext, words: str, function: str, number: int, tamper: Tamper
) -> tuple[Timeline, str]:
    """The picture of what is found, and what is said of it."""
    driven, violation = violates(trial, world(), words, function, number, tamper)
    return driven.engine.story.timeline(violation.flaw), str(violation)


def timeline_after(trial: ExecutionContext, words: str, kept: World | None = None) -> Timeline:
    """The picture of what is right."""
    return drives(trial, kept or world(), words).engine.story.timeline(Flaw("nothing is wrong"))


def located(timeline: Timeline) -> tuple[Spot, str]:
    """The cell of what is found, and its text."""
    assert timeline.finding is not None
    return timeline.finding.spot, timeline.finding.text


def test_a_picture_has_the_moments_on_both_sides_of_each_forward_and_after_each_step(
    trial: ExecutionContext,
) -> None:
    assert [moment.title for moment in timeline_after(trial, ACCEPTED).moments] == [
        "step 0, before the forward: a computes 8",
        "step 0, after the forward",
        "step 0, after it: no request samples",
        "step 1, before the forward: a computes 2",
        "step 1, after the forward",
        "step 1, after it: a accepts 1",
        "step 2, before the forward: a drafts 2",
        "step 2, after the forward",
        "step 2, after it: a accepts 3",
    ]


def test_cells_say_what_blocks_hold_and_whether_they_are_published(trial: ExecutionContext) -> None:
    (row,) = timeline_after(trial, TEN).moments[-1].rows
    assert (row.request, row.group, row.run) == ("a", 0, 2)
    assert row.cells == (
        Cell(0, ""),
        Cell(1, "8 tokens", 8, "a", published=True),
        Cell(2, "10 tokens", 10, "a"),
        Cell(3, "never written"),
        Cell(4, "never written"),
    )


def test_states_of_rejected_drafts_are_nobodys(trial: ExecutionContext) -> None:
    (row,) = timeline_after(trial, f"{TEN}; step a+2").moments[-1].rows
    assert [(cell.tokens, cell.owner) for cell in row.cells[3:]] == [
        (11, "a"),
        (12, "drafts"),
        (13, "drafts"),
    ]


def test_only_the_cell_that_is_found_is_wrong(trial: ExecutionContext) -> None:
    timeline, _ = pictured(trial, TWO, PREPROCESS, 1, copied(4, 2, TEMPORAL))
    wrong = [
        (number, row.request, column)
        for number, moment in enumerate(timeline.moments)
        for row in moment.rows
        for column, cell in enumerate(row.cells)
        if cell.wrong
    ]
    assert wrong == [(3, "a", 2)]


def test_bytes_that_belong_elsewhere_are_called_by_the_request_that_they_belong_to(
    trial: ExecutionContext,
) -> None:
    timeline, message = pictured(trial, TWO, PREPROCESS, 1, copied(4, 2, TEMPORAL))
    assert timeline.finding == WrongCell(3, "a", 0, 2, message)
    cell = timeline.moments[3].rows[0].cells[2]
    assert (cell.holds, cell.owner, cell.expected) == ("8 tokens", "b", "8 tokens a")


def test_a_wrong_read_is_found_in_the_block_that_is_read(trial: ExecutionContext) -> None:
    tamper = edited("state_indices_tensor_d", 0, 5)
    timeline, message = pictured(trial, f"{TWO}; step a+2 b+2", BUILD, 2, tamper)
    assert located(timeline) == ((6, "b", 0, 2), message)


def test_a_request_that_is_left_out_is_in_no_cell(trial: ExecutionContext) -> None:
    tamper = edited("num_decodes", 0, 1)
    timeline, _ = pictured(trial, f"{TWO}; step a+2 b+2", BUILD, 2, tamper)
    assert timeline.finding is None
    assert timeline.moments[-1].title == "step 2, before the forward: a drafts 2, b drafts 2"
