"""Subjects whose import ends the process, or never comes to its end: said in time, by a process that goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statecheck.campaign.start import loaded
from statecheck.subject import trial_import
from tests.helpers.modules import ROOT, module
from tests.helpers.processes import run_python


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import os\nos._exit(0)", "it ended the process with exit code 0"),
        ("import os\nos.kill(os.getpid(), 9)", "it ended the process with exit code -9"),
        ("import time\ntime.sleep(600)", "it took more than 1 s"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "it took more than 1 s"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("raise KeyError('x')", "KeyError: 'x'"),
    ],
)
def test_an_import_that_does_not_come_to_its_end_is_refused(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_import.require_import_that_ends, "__defaults__", (1.0,))
    (tmp_path / "toy_import.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="subject = 'toy_import', but should be") as raised:
        loaded("toy_import")
    assert message in str(raised.value)


def test_an_import_that_comes_to_its_end_is_done_in_this_process(tmp_path: Path) -> None:
    with module(tmp_path, "toy_import", "def divide(x, y):\n    return x // y\n"):
        assert loaded("toy_import").name == "toy_import"


def test_an_import_that_never_ends_the_second_time_ends_the_process(tmp_path: Path) -> None:
    source = (
        "import os, time\n"
        "if os.path.exists('imported'):\n    time.sleep(1e6)\n"
        "open('imported', 'w').close()\nSTATECHECK_PROTOCOL = 2\n"
    )
    (tmp_path / "toy_import.py").write_text(source, encoding="utf-8")
    script = (
        "from statecheck.subject import trial_import\n"
        "from statecheck.campaign.start import loaded\n"
        "trial_import.import_in_time.__wrapped__.__defaults__ = (1.0,)\n"
        "loaded('toy_import')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))}
    done = run_python("-c", script, cwd=tmp_path, env=environment)
    assert done.returncode == 3
    assert done.stderr.startswith(
        "error: subject = 'toy_import', but should be a module whose import comes to"
    )
