"""The property that must fail: found where all is well; where it is not, the campaign says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from statecheck.campaign import canary
from statecheck.campaign.canary import NAME, CanaryNotFound, run_canary
from statecheck.campaign.summary import verdict
from statecheck.campaign.tasks import CanaryResult, RunCanary, Setting
from statecheck.campaign.worker import Worker
from statecheck.case import Case
from statecheck.case.values import Outcome, Returned, Step
from statecheck.execution import in_process, profiles
from statecheck.execution.example import ExecutionContext
from statecheck.execution.in_process import InProcess
from statecheck.execution.plain import LARGEST_RIGHT_NUMBER
from statecheck.execution.registry import load_properties
from statecheck.report.render import write_report
from subjects import load
from tests.helpers.cases import Pipe
from tests.helpers.faulty import EXACT
from tests.helpers.observers import FailureLog
from tests.unit.campaign.pretended import passes, pretended


@pytest.fixture
def context() -> ExecutionContext:
    return ExecutionContext(load("impl"), InProcess(load("impl"), "cpu"))


def test_the_canary_is_found_shrunk_reported_and_replayed_each_time(
    context: ExecutionContext, tmp_path: Path
) -> None:
    results = [run_canary(context, tmp_path).partition(",")[0] for _ in range(2)]
    assert (
        results == [f"found and shrunk to {LARGEST_RIGHT_NUMBER + 1} in {context.examples // 2} examples"] * 2
    )
    (path,) = tmp_path.glob("*/case.json")
    assert Case.load(path).calls[0].named["number"] == LARGEST_RIGHT_NUMBER + 1


def test_the_canary_is_no_finding_and_no_property_and_changes_no_profile(
    context: ExecutionContext, tmp_path: Path
) -> None:
    context.observer = log = FailureLog()
    before = settings.default
    run_canary(context, tmp_path)
    assert (log.cases, context.observer, settings.default) == ([], log, before)
    assert NAME not in load_properties()


def why_not_found(context: ExecutionContext, folder: Path) -> str:
    with pytest.raises(CanaryNotFound) as caught:
        run_canary(context, folder)
    return str(caught.value)


def test_a_canary_that_never_fails_is_not_found(
    context: ExecutionContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "LARGEST_RIGHT_NUMBER", 10**9)
    assert why_not_found(context, tmp_path) == "200 examples of it passed"


def test_a_canary_that_is_not_shrunk_is_not_found(
    context: ExecutionContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "LARGEST_RIGHT_NUMBER", 11)
    assert why_not_found(context, tmp_path) == "it was shrunk to 12, but should be to 10"


@pytest.mark.parametrize("name", ["case.json", "repro.py", "report.md", "report.html"])
def test_a_canary_whose_report_is_incomplete_is_not_found(
    context: ExecutionContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(canary, "write_report", without(name))
    assert why_not_found(context, tmp_path) == f"its report lacks {name}"


def without(name: str) -> Callable[..., Path]:
    """Writes a report, but for one file."""

    def write(*arguments: Any) -> Path:
        directory = write_report(*arguments)
        (directory / name).unlink()
        return directory

    return write


class TruePort(InProcess):
    """Returns every number as it is."""

    def execute(self, step: Step) -> Outcome | None:
        return Returned(dict(step.named)["number"]) if hasattr(step, "named") else None


def test_a_canary_whose_case_passes_in_a_replay_is_not_found(
    context: ExecutionContext, tmp_path: Path
) -> None:
    with pytest.raises(CanaryNotFound, match=r"^its case did not fail when it was replayed$"):
        run_canary(context, tmp_path, TruePort(context.subject, "cpu"))


def test_a_campaign_whose_canary_is_not_found_is_not_to_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    if device != "cpu":
        pytest.skip("on a GPU the canary runs in a process of its own, which the test cannot change")
    monkeypatch.setattr(in_process, "LARGEST_RIGHT_NUMBER", 10**9)
    monkeypatch.setattr("torch.set_num_threads", lambda many: None)
    setting, pipe = Setting("", "impl", device=device, reports=str(tmp_path)), Pipe()
    worker = Worker(setting, pipe)  # type: ignore[arg-type]
    worker.run(RunCanary(str(tmp_path / "canary")))
    profiles.load()
    (result,) = [event for event in pipe.sent if isinstance(event, CanaryResult)]
    assert result == CanaryResult("", "CanaryNotFound: 200 examples of it passed")
    assert worker.context.counts.examples == 0
    record, _ = pretended(tmp_path, passes, canary=result, budget=0.3, only=EXACT)
    assert (record.canary, record.warnings) == (
        "",
        ["the canary was not found: CanaryNotFound: 200 examples of it passed"],
    )
    message = verdict(record)
    assert (message.word, message.exit_code) == ("NOT TO BE TRUSTED", 2)
