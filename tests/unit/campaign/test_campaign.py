"""The command `fuzz` and what it shares with others: its options, its lines, its files, its exit code."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign import report
from statecheck.campaign.coordinator import Campaign
from statecheck.campaign.display import Display
from statecheck.campaign.record import FILE, CampaignRecord, PropertyRecord
from statecheck.campaign.scheduler import visits
from statecheck.campaign.state import PropertyState
from statecheck.campaign.tasks import Explore, Explored
from statecheck.case import Case
from statecheck.case.values import Raised, Returned
from statecheck.cli import main as cli
from statecheck.cli import options as cli_options
from statecheck.execution import profiles
from statecheck.execution.verdict import Status
from tests.helpers.cases import a_case
from tests.helpers.faulty import DEVIANT, EXACT, FATES, PADDED, ROUNDS_UP, TEMPORAL
from tests.helpers.modules import module
from tests.unit.campaign.pretended import Actor, Body, falsifies, found_in, passes, stage

pytestmark = pytest.mark.usefixtures("default_signals")


@pytest.fixture
def _profile_put_back() -> Iterator[None]:
    yield
    profiles.load()


# A campaign with a worker of its own.

SUBJECT = (
    """
import os
import sys
import time

from hypothesis import settings

from impl import *
from subjects import KnownDeviation, Subject, Symptom


def divide(x, y):
    return settings.default.derandomize, [phase.name for phase in settings.default.phases]
"""
    + DEVIANT
)


@dataclass(frozen=True)
class Ended:
    """A campaign that was run from the command line."""

    code: int
    output: str
    folder: Path

    @property
    def record(self) -> CampaignRecord:
        return CampaignRecord.load(self.folder / "reports" / FILE)

    def of(self, name: str) -> PropertyRecord:
        (found,) = [row for row in self.record.properties if row.id == name]
        return found

    def case(self, name: str) -> Case:
        buckets = [bucket for bucket in self.record.buckets if bucket.property == name]
        first, *_ = sorted(buckets, key=lambda bucket: not bucket.shrunk)
        return Case.load(Path(first.report) / "case.json")


def hurried(campaign: Campaign, is_through: Callable[[PropertyState], bool]) -> None:
    """A watcher that ends the campaign once each property was tried enough."""
    if all(map(is_through, campaign.state.property_states.values())):
        campaign.plan = replace(campaign.plan, budget=campaign.at)


def _is_through(property_state: PropertyState) -> bool:
    if property_state.buckets:
        # Later failures of a property have other buckets, whose shrinking takes as long again.
        return property_state.buckets > set(property_state.unshrunk)
    return property_state.status is not Status.NOT_TESTED and not property_state.deaths


def _is_found(property_state: PropertyState) -> bool:
    return bool(property_state.buckets)


def fuzz(folder: Path, *options: str, until: Callable[[PropertyState], bool] = _is_through) -> Ended:
    """Run `fuzz` in this process, with workers of its own, until that holds of every property."""
    message, shown = io.StringIO(), Display.watch

    def watch(display: Display, campaign: Campaign) -> None:
        shown(display, campaign)
        hurried(campaign, until)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(message):
        patch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "hypothesis"))
        patch.setenv("CI", "1")
        # What this repository knows is not about these subjects.
        patch.chdir(folder)
        patch.setattr(Display, "watch", watch)
        reports = str(folder / "reports")
        code = cli.main(["fuzz", "--device", "cpu", "--budget", "300s", "--reports", reports, *options])
    return Ended(code, message.getvalue(), folder)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A campaign on a subject that meets every fate, where the variable CI is set."""
    folder = tmp_path_factory.mktemp("mixed")
    chosen = " or ".join(FATES)
    with module(folder, "toy_of_campaign", SUBJECT) as name:
        options = ["--workers", "2", "--time-limit", "30s", "--seed", "7"]
        return fuzz(folder, "--subject", name, "--only", chosen, *options)


def test_the_record_has_the_status_of_each_property(mixed: Ended) -> None:
    assert mixed.code == 1
    assert list(mixed.folder.glob("reports/campaigns/*/pending/*")) == []
    assert {row.id: row.status for row in mixed.record.properties} == FATES


def test_a_property_that_does_not_apply_names_the_functions_that_the_subject_lacks(mixed: Ended) -> None:
    lacks = {row.id: row.lacks for row in mixed.record.properties if row.lacks}
    assert lacks == {TEMPORAL: ["get_temporal_copy_spec"]}


def test_falsified_inputs_are_the_smallest_ones(mixed: Ended) -> None:
    ends = mixed.case(ROUNDS_UP)
    assert ends.actual == (Raised("worker died", "the process ended with exit code 9", kind="fault"),)
    assert ends.calls[0].named == {"x": 0, "y": 1}
    assert mixed.case(EXACT).calls[0].named == {"x": 0, "y": 0}


def test_the_output_has_reasons_and_reports_in_plain_lines(mixed: Ended) -> None:
    assert "not applicable: 1 property of functions that toy_of_campaign does not offer" in mixed.output
    reports = re.findall(r"^  report +(.*)", mixed.output, re.MULTILINE)
    assert reports
    assert all((mixed.folder / report).is_file() for report in reports)
    assert "\x1b" not in mixed.output
    assert re.search(
        r"^ +\d+ s of 300: \d+ falsified, .*[\d,]+ examples, [\d,]+/s, ", mixed.output, re.MULTILINE
    )


def test_a_campaign_uses_the_profile_nightly_in_ci_too_and_no_database(mixed: Ended) -> None:
    fresh = (False, ["explicit", "reuse", "generate", "target", "shrink"])
    assert mixed.case(EXACT).actual == (Returned(fresh),)
    assert not (mixed.folder / "hypothesis" / "examples").exists()


def test_known_defects_have_their_statuses(mixed: Ended) -> None:
    shown = {defect.id: defect.status for defect in mixed.record.known}
    assert shown == {"page-size/padded": "showed", "conv-layout/environment": "not tried"}


HANGS = """
import ctypes
import os
import signal
import time

from impl import *


def cdiv(x, y):
    {hangs}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "hangs",
    ["time.sleep(3600)", "ctypes.PyDLL(None).sleep(3600)", "os.kill(os.getpid(), signal.SIGSTOP)"],
    ids=["sleeps", "holds the interpreter's lock", "is stopped"],
)
def test_a_call_that_hangs_in_the_worker_s_own_process_is_a_finding_with_its_input(
    tmp_path: Path, hangs: str
) -> None:
    with module(tmp_path, "toy_hanging", HANGS.format(hangs=hangs)) as name:
        options = ("--workers", "1", "--only", ROUNDS_UP, "--time-limit", "1s")
        # Shrinking waits for a hang at each attempt.
        ended = fuzz(tmp_path, "--subject", name, *options, until=_is_found)
    case = ended.case(ROUNDS_UP)
    assert case.failure is not None
    assert (case.failure.kind, case.calls[-1].function) == ("hang", "cdiv")
    assert case.actual == (Raised("hang", "no answer within 1 s", kind="hang"),)
    assert ended.code == 1


# The same without a process.


def pretend(folder: Path, body: Body, *options: str, command: str = "fuzz") -> Ended:
    """Run `fuzz` with a worker that only pretends; `output` is what the command printed."""
    printed = io.StringIO()
    chosen = f"{EXACT} or {ROUNDS_UP} or {PADDED}"
    with stage(body), contextlib.redirect_stdout(printed), contextlib.chdir(folder):
        code = cli.main([*arguments(folder, command), "--only", chosen, *options])
    return Ended(code, printed.getvalue(), folder)


def arguments(folder: Path, command: str = "fuzz", budget: str = "0.5s") -> list[str]:
    found = [command, "--device", "cpu", "--budget", budget, "--reports", str(folder / "reports")]
    return [*found, "--workers", "1"] if command == "fuzz" else [*found, "--corpus", str(folder / "corpus")]


def test_a_clean_campaign_says_how_it_was_run_and_exits_0(tmp_path: Path) -> None:
    ended = pretend(tmp_path, passes, "--seed", "7")
    assert ended.code == 0, ended.output
    first, second, *_ = ended.output.splitlines()
    assert re.fullmatch(r"campaign \S+: subject impl, device cpu, 1 workers, 0 s", first)
    assert second.endswith(", seed 7")
    assert re.search(r"^3 passed; [\d,]+ examples in \d+ s$", ended.output, re.MULTILINE)
    assert "\nCLEAN\n" in ended.output


def test_properties_without_time_are_named_with_the_budget_that_would_do(tmp_path: Path) -> None:
    first_visits = list(dict.fromkeys(name for name, _ in visits()))
    last = max((EXACT, ROUNDS_UP, PADDED), key=first_visits.index)

    def slow(task: Explore, actor: Actor) -> None:
        if task.property == last:
            time.sleep(1.0)
            actor.say(Explored(task.property, "passed", 1.0, late=True))
        else:
            passes(task, actor)

    ended = pretend(tmp_path, slow)
    assert (ended.code, ended.of(last).status) == (0, "not tested"), ended.output
    assert re.search(
        rf"^not tested for want of time: {last}; --budget \d+s would do$", ended.output, re.MULTILINE
    )
    assert re.search(r"^2 passed, 1 not tested; ", ended.output, re.MULTILINE)


def test_a_campaign_is_saved_under_a_name_that_does_not_change(tmp_path: Path) -> None:
    ended = pretend(tmp_path, falsifies)
    (own,) = ended.folder.glob(f"reports/campaigns/*/{FILE}")
    assert ended.code == 1
    assert own.read_text() == (ended.folder / "reports" / FILE).read_text()
    assert (own.parent / "report.html").is_file()


class Broken(io.TextIOBase):
    """Standard output that cannot be written to."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def write(self, text: str) -> int:
        raise self._error(f"cannot write {text!r}")

    def flush(self) -> None:
        raise self._error("cannot flush")


@pytest.mark.parametrize(
    "stream",
    [None, Broken(BrokenPipeError), Broken(OSError), Broken(ValueError)],
    ids=["none", "head", "full", "closed"],
)
@pytest.mark.parametrize(
    ("command", "body", "code"), [("nightly", passes, 0), ("fuzz", falsifies, 1)], ids=["intact", "broken"]
)
def test_a_campaign_ends_as_it_would_where_its_output_cannot_be_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    body: Body,
    code: int,
    stream: io.TextIOBase | None,
) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    with stage(body):
        assert cli.main([*arguments(tmp_path, command, "0.3s"), "--only", EXACT]) == code
    record = CampaignRecord.load(tmp_path / "reports" / FILE)
    assert [row.status for row in record.properties] == ["FALSIFIED" if code else "passed"]


def test_letters_that_the_terminal_lacks_change_no_exit_code(tmp_path: Path, monkeypatch: Any) -> None:
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", ascii_only)

    def finds(task: Explore, actor: Actor) -> None:
        message = "result = \ud800 \u2192 1, but should be 2"
        actor.say(found_in(task, a_case(property_id=EXACT, subject="impl", message=message)))

    with stage(finds):
        assert cli.main([*arguments(tmp_path, budget="0.3s"), "--only", EXACT]) == 1
    ascii_only.flush()
    assert b"FALSIFIED" in ascii_only.buffer.getvalue()
    assert CampaignRecord.load(tmp_path / "reports" / FILE).buckets


@pytest.mark.parametrize(
    ("number", "command", "body", "code"),
    [
        (signal.SIGINT, "fuzz", passes, 2),
        (signal.SIGTERM, "nightly", falsifies, 1),
        (signal.SIGHUP, "nightly", passes, 2),
    ],
)
def test_a_campaign_that_gets_a_signal_again_and_again_says_what_it_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    number: signal.Signals,
    body: Body,
    code: int,
) -> None:
    watch, write = Display.watch, report.write_reports

    def impatient(*_: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(0.01)

    def watched(display: Display, campaign: Campaign) -> None:
        if all(property_state.tried for property_state in campaign.state.property_states.values()):
            impatient()
        watch(display, campaign)

    def then(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (impatient(), function(*given))[1]  # type: ignore[func-returns-value]

    monkeypatch.setattr(Display, "watch", watched)
    monkeypatch.setattr(report, "write_reports", then(write))
    ended = pretend(tmp_path, body, "--budget", "60s", command=command)
    assert ended.code == code
    assert ended.record.interrupted
    assert re.search(r"^interrupted; ", ended.output, re.MULTILINE)


# Options.


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("8h", 28800), ("5 s", 5), ("0.5s", 0.5), ("5 minutes", 300)]
)
def test_a_budget_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert cli_options.seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0s", "-5s", "5  s", "s", "5d", "1e3", "nan", "5s5", "60S", ".5", "five", "5 minutes 3"]
)
def test_a_budget_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(repr(text))}, but should be a positive"):
        cli_options.seconds(text)


def test_an_error_of_the_harness_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Campaign, "run", lambda self: 1 // 0)
    assert cli.main(arguments(tmp_path)) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.usefixtures("_profile_put_back")
@pytest.mark.parametrize(("variable", "name"), [("1", "ci"), ("true", "ci"), ("", "dev")])
def test_ci_is_the_profile_where_the_variable_is_set(
    monkeypatch: pytest.MonkeyPatch, variable: str, name: str
) -> None:
    monkeypatch.setenv("CI", variable)
    assert profiles.load() == name
