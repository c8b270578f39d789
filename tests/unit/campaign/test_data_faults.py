"""Where cases and folders fail, what was found stands somewhere, and the campaign says where."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from statecheck.campaign.corpus import CorpusWriter
from statecheck.campaign.tasks import Found
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.cli.options import require_own
from statecheck.report.render import write_report
from statecheck.report.sections import TEST
from statecheck.util.files import mark_reports
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT
from tests.helpers.processes import run_fresh
from tests.unit.campaign.nightly_examples import a_state

_TEST = "def test_fails() -> None:\n    assert False\n"


def test_the_coordinator_writes_a_case_that_its_worker_could_not(tmp_path: Path) -> None:
    state = a_state([], first_seen={"date": "2026-11-25", "commit": "0123"})
    state.corpus_writer = CorpusWriter(tmp_path / "corpus", tmp_path, lambda: None, state.warn)
    case = a_case()
    state.find(Found((bucket_of(case).id,), case.to_data(), "", "", ""), 1.0)
    (bucket,) = state.buckets.values()
    assert Case.load(Path(bucket.corpus)).steps == case.steps
    message = f"a case was not on disk, and the coordinator has written it: {bucket.corpus}"
    assert state.record.warnings == [message]


def _collected(folder: Path, *arguments: str) -> tuple[int, str]:
    usual = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = run_fresh(*usual, *arguments, cwd=folder)
    return done.returncode, done.stdout


def test_pytest_collects_what_stands_in_reports_only_where_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n", encoding="utf-8")
    reports = tmp_path / "reports"
    places = [reports / "a" / TEST, reports / "campaigns" / "b" / "canary" / "c" / TEST]
    for place in places:
        place.parent.mkdir(parents=True)
        place.write_text(_TEST, encoding="utf-8")
    mark_reports(reports)
    require_own(reports, "reports", "reports")
    code, output = _collected(tmp_path)
    assert (code, "1 passed" in output) == (0, True), output
    for place in places:
        code, output = _collected(tmp_path, str(place.relative_to(tmp_path)))
        assert (code, "1 failed" in output) == (1, True), output


def test_the_first_report_in_a_folder_keeps_pytest_from_collecting_it(tmp_path: Path) -> None:
    write_report(a_case(), tmp_path / "reports", None)
    assert "collect_ignore_glob" in (tmp_path / "reports" / "conftest.py").read_text(encoding="utf-8")


def test_a_path_that_no_record_may_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="should be a path without control characters"):
        require_own(tmp_path / "a\nb", "reports", "reports")


def test_signals_after_the_verdict_do_not_change_the_exit_code(tmp_path: Path) -> None:
    """The interpreter is held at its end, where a signal used to end it."""
    script = (
        "import atexit, os, sys, time\n"
        "atexit.register(lambda: (print('ending', flush=True), time.sleep(1.0)))\n"
        "sys.argv = ['statecheck', 'fuzz', '--budget', 'soon']\n"
        "from statecheck.cli.main import run\n"
        "sys.exit(run())\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert started.stdout is not None
    with started.stdout:
        started.stdout.readline()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            started.send_signal(number)
            time.sleep(0.05)
        assert started.wait(timeout=60) == 3
