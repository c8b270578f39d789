"""The coordinator goes on where a condition of a known defect ended a worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oracle.profile import DOCUMENTS
from statecheck.campaign.keeper import Keeper
from statecheck.campaign.known_defects import KnownDefects
from statecheck.campaign.recovery import Recovery
from statecheck.campaign.state import CampaignState
from statecheck.case import Case
from statecheck.subject import matching
from subjects import KnownDeviation, Symptom
from tests.helpers.cases import a_case, toy
from tests.unit.campaign.nightly_examples import a_state


def recovery_in(folder: Path, *declared: KnownDeviation) -> tuple[Recovery, CampaignState]:
    state = a_state([])
    state.keeper = Keeper(folder / "kept", folder / "reports", lambda: toy().module, state.trouble)
    defects = KnownDefects(declared, selected=False, profile=DOCUMENTS)
    return Recovery(folder / "reports" / "campaigns" / "night", state, defects), state


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (lambda case: os._exit(0), "it ended the process with exit code 0"),
        (lambda case: time.sleep(600), "it took more than 1 s"),
    ],
)
def test_a_condition_that_gives_no_answer_ends_its_child_alone(
    condition: Callable[[Case], bool], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "ASK_SECONDS", 1.0)
    case = a_case()
    assert case.failure is not None
    symptom = Symptom(
        case.failure.kind,
        case.failure.function,
        case.failure.part,
        case.failure.exception,
    )
    made, state = recovery_in(tmp_path, KnownDeviation(case.property_name, "bug", symptom, condition))
    assert made.find(case, "ended", 0.0)
    assert len(state.buckets) == 1
    assert [trouble for trouble in state.record.troubles if message in trouble]
    assert list((tmp_path / "kept").glob("*.json"))
