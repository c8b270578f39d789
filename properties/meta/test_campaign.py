"""Workers, campaigns, their command line, and the profiles that they run with."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from properties.harness import campaign as campaign_module
from properties.harness import cli, cli_options, profiles
from properties.harness.campaign import Campaign, Row, Status
from properties.harness.campaign.defects import ENOUGH
from properties.harness.campaign.display import Display
from properties.harness.case import Case
from properties.harness.device.log import Log, running_path
from properties.harness.execution import confirm as confirm_module
from properties.harness.execution.confirm import Confirmation
from properties.harness.execution.example import Bench, Trial
from properties.harness.values import Raised, Returned, call
from properties.harness.worker import Finished, Progress, Setting, Task, Worker, pending_path
from properties.meta import broken
from properties.meta.broken import (
    DEVIANT,
    EXACT,
    FATES,
    PADDED,
    ROOT,
    ROUNDS_UP,
    TEMPORAL,
    Pipe,
    a_property,
    module,
)


@pytest.fixture(autouse=True)
def _storage_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What these campaigns find is of no use to those that count."""
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(tmp_path / "hypothesis"))


@pytest.fixture
def _profile_put_back() -> Iterator[None]:
    yield
    profiles.load()


DIVIDES = """
def divide(x, y):
    return x // y if x < 100 else 0


def cdiv(x, y):
    while x >= 20:
        pass
    return -(-x // y)
"""


def divides_by_one(trial: Trial, x: int) -> None:
    trial.agrees(call("divide", x=x, y=1))


@pytest.fixture
def make_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: Bench, _profile_put_back: None
) -> Iterator[Callable[..., Worker]]:
    """Makes a worker in this process, whose one property is `body` on a toy that divides up to 100 only."""
    monkeypatch.setattr("torch.set_num_threads", lambda many: None)

    def make(
        body: Callable[..., None] = divides_by_one, *, isolated: bool = False, **strategies: Any
    ) -> Worker:
        # Of the run's device: this process's kernels are interpreted or compiled, once and for all.
        device, reports = trial.port.device, str(tmp_path / "reports")
        setting = Setting("toy_dividing", device, reports, isolated, time_limit=0.3)
        made = Worker(setting, Pipe())  # type: ignore[arg-type]
        workers.append(made)
        tested = a_property(body, strategies=strategies or {"x": st.integers(0, 10_000)})
        made.properties = {tested.name: tested}
        return made

    workers: list[Worker] = []
    with module(tmp_path, "toy_dividing", DIVIDES):
        yield make
    for made in workers:
        made.close()


def finished(made: Worker, seed: int = 1, many: int = 50) -> Finished:
    made.run(Task("toys_divide", seed, many))
    pipe = made.pipe
    assert isinstance(pipe, Pipe)
    assert isinstance(pipe.sent[-1], Finished)
    return pipe.sent[-1]


def report_of(ended: Finished | Row) -> tuple[Case, str]:
    folder = Path(ended.report)
    return Case.load(folder / "case.json"), (folder / "report.md").read_text(encoding="utf-8")


def test_a_task_that_falsifies_its_property_writes_a_report_of_the_shrunk_input(
    make_worker: Callable[..., Worker],
) -> None:
    end = finished(make_worker())
    assert end.status == "falsified"
    case = Case.load(Path(end.report) / "case.json")
    assert case.steps == (call("divide", x=100, y=1),)
    assert end.detail == case.message


def test_a_failing_input_is_on_disk_before_it_is_shrunk_further(
    make_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    path = pending_path(tmp_path / "reports", "toys_divide")
    latest: list[int] = []

    def body(trial: Trial, x: int) -> None:
        if latest:
            assert Case.load(path).calls[0].named["x"] == latest[-1]
        if x >= 100:
            latest.append(x)
        divides_by_one(trial, x)

    assert finished(make_worker(body)).status == "falsified"
    # Every input after the first has looked for the one before it.
    assert len(latest) >= 2


def test_the_failing_input_on_disk_is_gone_once_its_report_is_written(
    make_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    end = finished(make_worker())
    assert (Path(end.report) / "report.md").exists()
    assert not pending_path(tmp_path / "reports", "toys_divide").exists()


def test_a_report_is_complete_and_its_input_pending_while_it_is_confirmed(
    make_worker: Callable[..., Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Case, Case]] = []

    def look(*_: object) -> Confirmation:
        (reported,) = (tmp_path / "reports").glob("*-toys_divide-*/case.json")
        pending = pending_path(tmp_path / "reports", "toys_divide")
        seen.append((Case.load(reported), Case.load(pending)))
        return Confirmation(2, 3, ("as before", "", "as before"))

    monkeypatch.setattr(confirm_module, "confirm", look)
    end = finished(make_worker(isolated=True))
    assert [one.steps for one in seen[0]] == [(call("divide", x=100, y=1),)] * 2
    assert "**did not repeat in 1 of 3**" in (Path(end.report) / "report.md").read_text(encoding="utf-8")
    assert list((tmp_path / "reports" / "pending").iterdir()) == []


def test_a_call_that_never_ends_is_shrunk_to_the_smallest_input_that_does_not(
    make_worker: Callable[..., Worker],
) -> None:
    def body(trial: Trial, x: int) -> None:
        trial.agrees(call("cdiv", x=x, y=1))

    case, report = report_of(finished(make_worker(body, isolated=True, x=st.integers(0, 40))))
    assert case.calls[0].named == {"x": 20, "y": 1}
    assert case.actual == (Raised("DeviceFault", "hang: no answer within 0.3 s"),)
    assert "Repeated in 3 of 3 fresh workers." in report


def test_a_task_that_finds_nothing_passes(make_worker: Callable[..., Worker], tmp_path: Path) -> None:
    end = finished(make_worker(x=st.integers(0, 99)))
    assert (end.status, end.detail, end.report) == ("passed", "", "")
    assert not (tmp_path / "reports").exists()


def test_every_example_is_counted_in_the_progress(make_worker: Callable[..., Worker]) -> None:
    made = make_worker(x=st.integers(0, 99))
    finished(made, many=37)
    assert isinstance(made.pipe, Pipe)
    assert sum(one.examples for one in made.pipe.sent if isinstance(one, Progress)) == 37


def drawn_with(make: Callable[..., Worker], seed: int) -> list[int]:
    seen: list[int] = []
    finished(make(lambda trial, x: seen.append(x)), seed=seed)
    return seen


def test_the_same_seed_draws_the_same_inputs(make_worker: Callable[..., Worker]) -> None:
    assert drawn_with(make_worker, 1) == drawn_with(make_worker, 1)


def test_another_seed_draws_other_inputs(make_worker: Callable[..., Worker]) -> None:
    assert drawn_with(make_worker, 1) != drawn_with(make_worker, 2)


def test_an_input_that_failed_is_the_first_one_to_be_tried_again(make_worker: Callable[..., Worker]) -> None:
    seen: list[int] = []

    def body(trial: Trial, x: int) -> None:
        seen.append(x)
        divides_by_one(trial, x)

    finished(make_worker(body), seed=1)
    seen.clear()
    finished(make_worker(body), seed=2)
    assert seen[0] == 100


def test_the_case_of_a_report_has_the_seed_of_its_task(make_worker: Callable[..., Worker]) -> None:
    end = finished(make_worker(), seed=123)
    assert Case.load(Path(end.report) / "case.json").seed == 123


def test_a_failure_that_does_not_repeat_is_reported_as_such(make_worker: Callable[..., Worker]) -> None:
    shown: list[int] = []

    def body(trial: Trial, x: int) -> None:
        shown.append(x)
        divides_by_one(trial, x if len(shown) == 20 else 1)

    end = finished(make_worker(body, x=st.integers(100, 200)))
    assert end.status == "falsified"
    report = (Path(end.report) / "report.md").read_text(encoding="utf-8")
    assert "did not repeat" in report


def test_an_error_of_a_property_is_no_finding_about_the_subject(
    make_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    end = finished(make_worker(lambda trial, x: trial.no_such_method()))
    assert (end.status, end.report) == ("error", "")
    assert "no_such_method" in end.detail
    assert not (tmp_path / "reports").exists()


def test_what_a_property_prints_stays_out_of_the_display(
    make_worker: Callable[..., Worker], capsys: pytest.CaptureFixture[str]
) -> None:
    finished(make_worker(lambda trial, x: print("noise")))
    assert capsys.readouterr().out == ""


def campaign_of(
    tmp_path: Path, *names: str, budget: float = 1.5, workers: int = 1, seed: int = 0
) -> Campaign:
    return Campaign(Setting("impl", "cpu", str(tmp_path / "reports")), list(names), budget, workers, seed)


def pretend(monkeypatch: pytest.MonkeyPatch, pretended: Callable[..., None]) -> None:
    monkeypatch.setattr(campaign_module, "main", pretended)


def test_every_property_gets_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, broken.quick_worker)
    rows = campaign_of(tmp_path, *"abcdefgh", workers=2).run()
    assert all(row.status is Status.PASSED and row.examples > 0 for row in rows.values())


def seeds_of(tmp_path: Path, seed: int) -> list[str]:
    """The seed of each task that a campaign gives out, in order."""
    found: list[str] = []

    def watch(running: Campaign) -> None:
        details = [row.detail for row in running.rows.values() if row.detail]
        found.extend(one for one in details if one not in found)
        if len(found) >= 5:
            raise KeyboardInterrupt

    running = campaign_of(tmp_path, "a", budget=20, seed=seed)
    running.watch = watch
    running.run()
    return found[:5]


def test_the_seeds_of_tasks_derive_from_the_campaign_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, broken.quick_worker)
    first, again, other = seeds_of(tmp_path, 1), seeds_of(tmp_path, 1), seeds_of(tmp_path, 2)
    assert first == again
    assert len(set(first) | set(other)) == 10


def test_a_campaign_ends_when_its_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, broken.quick_worker)
    started = time.monotonic()
    campaign_of(tmp_path, "a", "b", budget=1.0).run()
    assert 0.5 < time.monotonic() - started < 10


def shortened(running: Campaign) -> None:
    """A watcher that ends a campaign once each property has come to something, however slow the machine is.

    A property that is declared to fail has not before it was tried enough.
    """
    open_ = (Status.WAITING, Status.RUNNING)
    declared = {one.alone for one in running.known}
    tried = [
        row for name, row in running.rows.items() if name not in declared or row.known or row.inside >= ENOUGH
    ]
    if len(tried) == len(running.rows) and all(
        row.status not in open_ or row.seconds > 0 for row in running.rows.values()
    ):
        running.budget = min(running.budget, time.monotonic() - running.started)


def test_a_worker_that_dies_is_reported_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, broken.dying_worker)
    running = campaign_of(tmp_path, "a", "fatal", "z", budget=60)
    running.watch = shortened
    rows = running.run()
    assert {name: row.status for name, row in rows.items()} == {
        "a": Status.PASSED,
        "fatal": Status.ERROR,
        "z": Status.PASSED,
    }
    assert rows["fatal"].detail.startswith("the worker process died with exit code 7 (seed ")


def test_a_worker_that_never_ends_does_not_hold_the_campaign_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, broken.endless_worker)
    monkeypatch.setattr(campaign_module, "_GRACE_SECONDS", 1.0)
    started = time.monotonic()
    row = campaign_of(tmp_path, "a", budget=1.0).run()["a"]
    assert time.monotonic() - started < 10
    assert (row.status, row.detail) == (Status.ERROR, "still busy 1 s after the time was up")


def test_a_counterexample_whose_shrinking_was_cut_short_is_reported_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, broken.endlessly_shrinking_worker)
    monkeypatch.setattr(campaign_module, "_GRACE_SECONDS", 1.0)
    row = campaign_of(tmp_path, "a", budget=1.5).run()["a"]
    assert row.status is Status.FALSIFIED
    assert "before this input was shrunk" in (Path(row.report) / "report.md").read_text(encoding="utf-8")
    assert not pending_path(tmp_path / "reports", "a").exists()


def test_a_counterexample_that_an_earlier_campaign_left_is_not_taken_for_one_of_this(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, broken.endless_worker)
    monkeypatch.setattr(campaign_module, "_GRACE_SECONDS", 0.5)
    path = broken.a_case().save(pending_path(tmp_path / "reports", "a"))
    os.utime(path, (1, 1))
    assert campaign_of(tmp_path, "a", budget=0.5).run()["a"].status is Status.ERROR
    assert path.exists()


def test_what_a_killed_worker_s_subject_had_in_hand_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, broken.killed_worker)
    row = campaign_of(tmp_path, "a", budget=20).run()["a"]
    (path,) = (tmp_path / "reports" / "pending").iterdir()
    assert row.status is Status.ERROR
    assert row.detail.endswith(
        f"exit code -9 (seed {Case.load(path).seed}); it was running: make replay CASE={path}"
    )
    assert Case.load(path).steps == (call("divide", x=5, y=1),)


def test_what_a_killed_campaign_s_subject_had_in_hand_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, broken.quick_worker)
    path = running_path(tmp_path / "reports", "a")
    log = Log(path, {"property_name": "a", "sentence": "", "subject": "impl", "device": "cpu"})
    log.note([call("divide", x=5, y=1)])
    os.close(log._file)
    campaign_of(tmp_path, "a", budget=0.5).run()
    assert [one.name for one in path.parent.iterdir()] == ["a.unfinished.json"]


@pytest.mark.parametrize(
    ("device", "isolated", "in_worker"),
    [("cpu", None, False), ("cuda", None, True), ("cpu", True, True), ("cuda", False, False)],
)
def test_on_a_gpu_the_subject_runs_in_a_process_of_its_own_by_default(
    device: str, isolated: bool | None, in_worker: bool
) -> None:
    assert Setting("impl", device, "reports", isolated).in_worker is in_worker


def test_a_property_that_was_never_reached_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, broken.quick_worker)
    rows = campaign_of(tmp_path, "a", budget=-1.0).run()
    assert rows["a"].status is Status.WAITING


@pytest.mark.parametrize(
    ("statuses", "interrupted", "code"),
    [
        ([Status.PASSED, Status.KNOWN, Status.NOT_APPLICABLE], False, 0),
        ([Status.PASSED, Status.FALSIFIED], False, 1),
        ([Status.PASSED, Status.UNEXPECTED_PASS], False, 1),
        ([Status.FALSIFIED, Status.ERROR, Status.WAITING], True, 1),
        ([Status.PASSED, Status.ERROR], False, 2),
        ([Status.PASSED, Status.WAITING], False, 2),
        ([Status.PASSED], True, 2),
    ],
)
def test_the_exit_code_is_that_of_the_worst_finding(
    statuses: list[Status], interrupted: bool, code: int
) -> None:
    rows = {str(number): Row(str(number), status) for number, status in enumerate(statuses)}
    assert cli._exit_code(rows, interrupted=interrupted) == code


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("60s", 60), ("5m", 300), ("8h", 28800), ("0.5s", 0.5), ("1.5m", 90)],
)
def test_a_budget_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert cli_options.seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-5s", "5 s", "s", "5d", "1e3", "nan", "inf", "5s5", "60S", ".5", "five"]
)
def test_a_budget_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^budget = {re.escape(repr(text))}, but should be a positive"):
        cli_options.seconds(text)


NAMES = ["chunks_cover", "chunks_end", "decodes_end"]


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("", NAMES),
        ("chunks", NAMES[:2]),
        ("chunks and end", NAMES[1:2]),
        ("cover or decodes", [NAMES[0], NAMES[2]]),
        ("not chunks", NAMES[2:]),
        ("end and not (chunks or cover)", NAMES[2:]),
    ],
)
def test_an_expression_chooses_as_pytest_s_k_does(expression: str, chosen: list[str]) -> None:
    assert cli.select(NAMES, expression) == chosen


@pytest.mark.parametrize(
    "options",
    [
        ["--only", "nothing_like_it"],
        ["--only", "chunks and"],
        ["--only", "(chunks"],
        ["--budget", "soon"],
        ["--workers", "0"],
        ["--workers", "-1"],
        ["--subject", "no_such_module"],
        ["--device", "gpu"],
    ],
    ids=" ".join,
)
def test_a_campaign_that_cannot_be_run_as_given_is_a_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    code = cli.main(["fuzz", "--device", "cpu", "--reports", str(tmp_path), *options])
    assert (code, capsys.readouterr().out) == (3, "")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["polish"],
        ["fuzz", "--workers", "many"],
        ["fuzz", "--seed", "x"],
        ["fuzz", "--no-such"],
        ["replay"],
    ],
    ids=" ".join,
)
def test_arguments_that_cannot_be_read_are_a_misuse(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 3
    assert "error: " in capsys.readouterr().err


def test_an_error_of_the_harness_is_not_told_as_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Campaign, "run", lambda self: 1 // 0)
    assert cli.main(["fuzz", "--device", "cpu"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_an_input_that_a_campaign_left_unshrunk_is_pointed_to_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, broken.quick_worker)
    left = broken.a_case().save(pending_path(tmp_path / ("long" * 40), "[toys]"))
    cli.main(
        ["fuzz", "--only", EXACT, "--budget", "0.5", "--device", "cpu", "--reports", str(left.parents[1])]
    )
    assert f"make replay CASE={left}\n" in capsys.readouterr().out


SUBJECT_OF_CAMPAIGN = (
    """
import os
import sys

from hypothesis import settings

from impl import *
from properties.subjects import KnownDeviation, Subject


def divide(x, y):
    return settings.default.derandomize, [phase.name for phase in settings.default.phases]
"""
    + DEVIANT
)


CRASHES = """
import ctypes

from impl import *


def divide(x, y):
    if x >= 100:
        ctypes.string_at(0)
    if y == 0 or x % y:
        raise ValueError("x and y do not divide")
    return x // y
"""


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """A campaign whose subject runs in a process of its own, and ends it."""
    folder = tmp_path_factory.mktemp("isolated")
    with pytest.MonkeyPatch.context() as patch, module(folder, "toy_crashing", CRASHES) as name:
        patch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "hypothesis"))
        setting = Setting(name, "cpu", str(folder / "reports"), isolated=True)
        running = Campaign(setting, [EXACT, PADDED], 60, 1, 0, watch=shortened)
        return running.run()


def test_a_crash_of_the_subject_is_shrunk_to_the_smallest_input_that_crashes(
    isolated: dict[str, Row],
) -> None:
    case, report = report_of(isolated[EXACT])
    assert case.calls[0].named == {"x": 100, "y": 0}
    assert case.actual == (Raised("DeviceFault", "illegal access: memory was touched that is not there"),)
    assert "Repeated in 3 of 3 fresh workers." in report


def test_a_campaign_goes_on_after_crashes(isolated: dict[str, Row]) -> None:
    assert isolated[PADDED].status is Status.PASSED


def test_what_is_reported_is_pending_no_more(isolated: dict[str, Row]) -> None:
    assert list((Path(isolated[EXACT].report).parent / "pending").iterdir()) == []


@dataclass(frozen=True)
class Ended:
    """A campaign that was run from the command line."""

    code: int
    output: str
    folder: Path

    def status(self, name: str) -> str:
        """What the summary says about a property."""
        line, *_ = [line for line in self.output.splitlines() if line.startswith(f"{name} ")]
        return re.split(r"\s{2,}|│", line.removeprefix(name).strip(" │"))[0].strip()

    def case(self, name: str) -> Case:
        (path,) = self.folder.glob(f"reports/*-{name}-*/case.json")
        return Case.load(path)


def fuzz(folder: Path, *options: str) -> Ended:
    """Run `fuzz` in this process, with workers of its own, until every property has come to something."""
    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told):
        patch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "hypothesis"))
        patch.setenv("CI", "1")
        shown = Display.watch

        def watch(display: Display, running: Campaign) -> None:
            shown(display, running)
            shortened(running)

        patch.setattr(Display, "watch", watch)
        reports = str(folder / "reports")
        code = cli.main(["fuzz", "--device", "cpu", "--budget", "60s", "--reports", reports, *options])
    return Ended(code, told.getvalue(), folder)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A campaign on a subject that meets every fate, where the variable CI is set."""
    folder = tmp_path_factory.mktemp("mixed")
    chosen = " or ".join(FATES)
    with module(folder, "toy_of_campaign", SUBJECT_OF_CAMPAIGN) as name:
        return fuzz(folder, "--subject", name, "--workers", "1", "--only", chosen)


@pytest.mark.parametrize(("name", "status"), FATES.items())
def test_the_summary_tells_each_property_s_fate(mixed: Ended, name: str, status: str) -> None:
    assert mixed.status(name) == status


def test_a_campaign_that_falsified_something_exits_1(mixed: Ended) -> None:
    assert mixed.code == 1


def test_a_subject_that_ends_its_process_is_reported_with_the_seed(mixed: Ended) -> None:
    assert re.search(r"the worker process died with exit code 9 \(seed \d+\)", mixed.output)


def test_a_property_that_does_not_apply_is_told_with_the_reason(mixed: Ended) -> None:
    assert f"not applicable: {TEMPORAL}: toy_of_campaign has no get_temporal_copy_spec" in mixed.output


def test_a_falsified_property_s_report_is_where_the_campaign_says(mixed: Ended) -> None:
    (report,) = re.findall(rf"FALSIFIED: {EXACT}\n.*\n  report: (.*)", mixed.output)
    assert Path(report).is_file()


def test_a_falsified_input_is_the_smallest_one(mixed: Ended) -> None:
    assert mixed.case(EXACT).calls[0].named == {"x": 0, "y": 0}


def test_a_campaign_uses_the_profile_nightly_in_ci_too(mixed: Ended) -> None:
    fresh = (False, ["explicit", "reuse", "generate", "target", "shrink"])
    assert mixed.case(EXACT).actual == (Returned(fresh),)


def test_a_campaign_keeps_the_inputs_that_failed_in_ci_too(mixed: Ended) -> None:
    assert any((mixed.folder / "hypothesis" / "examples").rglob("*"))


def test_a_campaign_without_a_terminal_writes_plain_lines(mixed: Ended) -> None:
    assert "\x1b" not in mixed.output
    assert re.search(
        r"^ +\d+ s of 60: [\d,]+ examples, [\d,]+/s, 0 falsified; running ", mixed.output, re.MULTILINE
    )


def test_a_clean_campaign_says_how_it_was_run_and_exits_0(tmp_path: Path) -> None:
    ended = fuzz(tmp_path, "--only", f"{EXACT} or {ROUNDS_UP}", "--workers", "1", "--seed", "7")
    assert ended.code == 0, ended.output
    assert ended.output.startswith("subject impl, device cpu, 2 properties, 1 workers, 60s, seed 7\n")
    assert [ended.status(name) for name in (EXACT, ROUNDS_UP)] == ["passed", "passed"]
    assert re.search(r"^2 passed; [\d,]+ examples in \d+ s$", ended.output, re.MULTILINE)


def test_an_interrupted_campaign_still_prints_its_summary(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "properties", "fuzz", "--device", "cpu", "--budget", "60s"]
    command += ["--workers", "1", "--only", EXACT, "--reports", str(tmp_path / "reports")]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        second = running.stdout.readline()
        os.killpg(running.pid, signal.SIGINT)
        rest, complaints = running.communicate(timeout=30)
    assert first.startswith("subject impl, device cpu, 1 properties, 1 workers, 60s, seed ")
    assert "running" in second
    assert running.returncode == 2
    assert re.search(r"^interrupted; 1 (not reached|passed); ", rest, re.MULTILINE)
    assert EXACT in rest
    assert complaints == ""


@pytest.mark.usefixtures("_profile_put_back")
@pytest.mark.parametrize("before", ["ci", "dev", "nightly"])
@pytest.mark.parametrize(
    ("name", "derandomized", "stored"), [("ci", True, False), ("nightly", False, True), ("dev", False, True)]
)
def test_a_profile_is_the_same_whichever_was_loaded_before(
    before: str, name: str, derandomized: bool, stored: bool
) -> None:
    profiles.load(before)
    profiles.load(name)
    assert settings.default is not None
    assert (settings.default.derandomize, settings.default.database is not None) == (derandomized, stored)


@pytest.mark.usefixtures("_profile_put_back")
@pytest.mark.parametrize(("variable", "name"), [("1", "ci"), ("true", "ci"), ("", "dev")])
def test_ci_is_the_profile_where_the_variable_is_set(
    monkeypatch: pytest.MonkeyPatch, variable: str, name: str
) -> None:
    monkeypatch.setenv("CI", variable)
    assert profiles.load() == name
