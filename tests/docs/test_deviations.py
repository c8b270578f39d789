"""Every row of "Where we deviate, and why" is what the rules say and what `impl` does."""

from __future__ import annotations

import pytest

from statecheck.case.values import Call
from statecheck.execution.example import Bench, Trial
from statecheck.execution.port import InProcess
from statecheck.execution.registry import PROPERTIES, Property
from subjects import load
from tools.docs.deviations import DEVIATIONS, Deviation


def trial_of_impl(device: str) -> Trial:
    subject = load("impl")
    row = Property("deviation", "a row of the table", "agreement", (), lambda: None, {}, __name__)
    assert row.name not in PROPERTIES
    return Bench(subject, InProcess(subject, device)).begin(row)


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
