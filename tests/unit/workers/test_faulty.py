"""A fault of a device is shrunk to the block that causes it, and the rest of the campaign goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statecheck.campaign.tasks import Explore, Setting
from statecheck.campaign.tasks import Explored as Ended
from statecheck.campaign.worker import Exploration, Worker
from statecheck.case import Case
from statecheck.case.values import Raised
from statecheck.execution import profiles
from statecheck.execution.example import ExecutionContext
from tests.helpers.cases import Pipe
from tests.unit.workers import faulty

TEMPORAL = "temporal-copy/start"
CONV = "conv-copy/start"
Explored = Callable[[str], Ended]


@pytest.fixture
def explored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: ExecutionContext) -> Iterator[Explored]:
    """Explores properties of the faulty subject one after another with one engine."""
    monkeypatch.setattr("torch.set_num_threads", lambda many: None)
    device = trial.port.device
    # A kernel that is launched for the first time takes longer than anything on a CPU.
    limit = 0.5 if device == "cpu" else 5.0
    kept = str(tmp_path / "kept")
    setting = Setting(
        "", faulty.__name__, device=device, reports=str(tmp_path), kept=kept, isolated=True, time_limit=limit
    )
    engines: list[Worker] = []

    def explore(name: str) -> Ended:
        # Here and not before, so that the worker gets the variables that a test has set.
        if not engines:
            engines.append(Worker(setting, Pipe()))  # type: ignore[arg-type]
        return Exploration(engines[0], Explore(name, 1, 500)).run()

    yield explore
    for engine in engines:
        engine.close()
    profiles.load()


def report_of(ended: Ended) -> tuple[Case, str]:
    folder = Path(ended.found[0].report)
    return Case.load(folder / "case.json"), (folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("above", [None, 2])
def test_a_fault_is_shrunk_to_the_first_block_above_the_threshold(
    explored: Explored, monkeypatch: pytest.MonkeyPatch, above: int | None
) -> None:
    if above is not None:
        monkeypatch.setenv(faulty.ABOVE, str(above))
    case, report = report_of(explored(TEMPORAL))
    first = 1 + (faulty.DEFAULT_ABOVE if above is None else above)
    assert [case.calls[0].named[name] for name in ("block_ids", "num_accepted_tokens")] == [[first], 1]
    (ended,) = case.actual
    assert isinstance(ended, Raised)
    assert ended.kind == "fault"
    assert "Repeated in 3 of 3 fresh workers." in report


@pytest.mark.slow
def test_a_property_after_a_fault_is_explored_as_if_there_had_been_none(explored: Explored) -> None:
    assert [explored(name).status for name in (TEMPORAL, CONV)] == ["falsified", "passed"]


@pytest.mark.slow
def test_a_kernel_that_never_ends_is_a_hang_and_others_are_explored(
    explored: Explored, monkeypatch: pytest.MonkeyPatch, trial: ExecutionContext
) -> None:
    monkeypatch.setenv(faulty.HANGS_ABOVE, "0")
    monkeypatch.setenv(faulty.ABOVE, "1000")
    case, report = report_of(explored(CONV))
    limit = "0.5" if trial.port.device == "cpu" else "5"
    assert case.calls[0].named["block_ids"] == [1]
    assert case.actual == (Raised("hang", f"no answer within {limit} s", kind="hang"),)
    assert "Repeated in 3 of 3 fresh workers." in report
    assert explored(TEMPORAL).status == "passed"
