"""The coordinator goes on after what a worker has ended in: a condition of a known defect, or a folder that is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from oracle.profile import DOCUMENTS
from statecheck.campaign.keeper import Keeper
from statecheck.campaign.known_defects import KnownDefects
from statecheck.campaign.ledger import Ledger
from statecheck.campaign.recovery import Recovery
from statecheck.case import Case
from statecheck.subject import matching
from subjects import KnownDeviation, Symptom
from tests.helpers.cases import a_case, toy


def recovery_in(folder: Path, *declared: KnownDeviation) -> tuple[Recovery, Ledger]:
    ledger = Ledger([], {}, tuple, {})
    ledger.keeper = Keeper(folder / "kept", folder / "reports", lambda: toy().module, ledger.trouble)
    defects = KnownDefects(declared, selected=False, profile=DOCUMENTS)
    return Recovery(folder / "reports" / "campaigns" / "night", ledger, defects), ledger


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
    made, ledger = recovery_in(tmp_path, KnownDeviation(case.property_name, "bug", symptom, condition))
    assert made.find(case, "ended", 0.0)
    assert len(ledger.buckets) == 1
    assert [trouble for trouble in ledger.troubles if message in trouble]
    assert list((tmp_path / "kept").glob("*.json"))


def test_a_file_in_place_of_the_reports_is_a_trouble_and_not_the_end(tmp_path: Path) -> None:
    made, ledger = recovery_in(tmp_path)
    (tmp_path / "reports").write_text("x", encoding="utf-8")
    log = tmp_path / "reports" / "campaigns" / "night" / "pending" / "worker.1.running"
    assert made.running(SimpleNamespace(pid=1, log_path=log)) is None  # type: ignore[arg-type]
    assert ledger.troubles
