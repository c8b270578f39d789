"""Every row of "Where we deviate, and why" is what the rules say and what `impl` does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

from statecheck.case.values import Call, Step
from statecheck.execution.example import Bench, Trial
from statecheck.execution.port import InProcess
from statecheck.execution.registry import PROPERTIES, Property
from subjects import load
from tests.docs.deviations import align, builders, stateless

PAGE = Path(__file__).resolve().parents[2] / "docs/deviations.md"


@dataclass(frozen=True)
class Deviation:
    """A row of the page, and its input as steps."""

    place: str
    shown_by: str
    ours: str
    steps: tuple[Step, ...]


def rows_of_the_page() -> list[list[str]]:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    return [re.split(r"(?<!\\) \| ", row.strip("| ")) for row in rows]


INPUTS = (*stateless.ROWS, *builders.ROWS, *align.ROWS)
DEVIATIONS = [
    Deviation(place, shown_by, ours, steps)
    for (place, shown_by, _, ours), (_, steps) in zip(rows_of_the_page(), INPUTS, strict=False)
]


def trial_of_impl(device: str) -> Trial:
    subject = load("impl")
    row = Property("deviation", "a row of the table", "agreement", (), lambda: None, {}, __name__)
    assert row.name not in PROPERTIES
    return Bench(subject, InProcess(subject, device)).begin(row)


def test_every_row_of_the_page_has_an_input() -> None:
    pairs = zip_longest((row[0] for row in rows_of_the_page()), (place for place, _ in INPUTS))
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


@pytest.mark.parametrize("row", DEVIATIONS, ids=lambda row: f"{row.place}: {row.shown_by}")
def test_impl_does_what_the_row_says_that_we_do(row: Deviation, trial: Bench) -> None:
    trial_of_impl(trial.port.device).agrees(*row.steps)


@pytest.mark.parametrize(
    "row", [row for row in DEVIATIONS if "`ValueError`" in row.ours], ids=lambda row: row.shown_by
)
def test_a_row_that_promises_a_refusal_has_an_input_that_is_refused(row: Deviation, trial: Bench) -> None:
    *before, last = row.steps
    shown = trial_of_impl(trial.port.device)
    if any(isinstance(step, Call) for step in before):
        shown.agrees(*before)
        shown.refuses(last)
    else:
        shown.refuses(*row.steps)
