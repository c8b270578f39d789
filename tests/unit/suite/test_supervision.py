"""Sessions of pytest whose process a subject ends: the exit code is not 0, and a sentence says when it happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.modules import ROOT
from tests.helpers.slow import slow_after

MENTION = "# statecheck\n"
IMPORTS = "import atexit, ctypes, os, signal, sys, threading\n"
PLUGIN = ("-p", "statecheck.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:randomly", "-q")
NO_VERDICT = "before the session was over: no verdict"
ENVIRONMENT = dict(os.environ)


def run_pytest(
    folder: Path, source: str, *arguments: str, plugin: tuple[str, ...] = PLUGIN, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a session on one test module, in a folder without a project, as an installed plugin has it."""
    (folder / "test_module.py").write_text(IMPORTS + source)
    usual = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *arguments],
        cwd=folder,
        env=ENVIRONMENT | usual | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    "end",
    slow_after(
        2,
        [
            "os._exit(0)",
            "ctypes.CDLL(None).exit(0)",
            "os.execv('/bin/true', ['/bin/true'])",
            "os.kill(os.getpid(), signal.SIGKILL)",
            "os.abort()",
            "threading.Thread(target=os._exit, args=(0,)).start(); signal.pause()",
            "os.closerange(3, 99); os._exit(0)",
        ],
    ),
)
def test_a_test_that_ends_its_process_ends_the_session_with_a_sentence(tmp_path: Path, end: str) -> None:
    done = run_pytest(tmp_path, f"{MENTION}def test_it():\n    {end}\n")
    assert done.returncode not in (0, 5), done.stdout
    assert "during test_module.py::test_it, " in done.stderr
    assert NO_VERDICT in done.stderr


THREAD = "threading.Timer(0.2, os._exit, (0,)).start()\ndef test_it():\n    signal.pause()\n"


@pytest.mark.parametrize(
    ("source", "inherited", "where"),
    [
        pytest.param("os._exit(0)\n", "", "during the collection of test_module.py, ", id="import"),
        # As where a project's own tests, run with -n, start a session on a subject.
        pytest.param("os._exit(0)\n", "gw0", "", id="import in a session of a process of xdist"),
        pytest.param(THREAD, "", "", id="thread of an import"),
    ],
)
def test_an_import_that_ends_the_process_is_a_failure_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, inherited: str, where: str
) -> None:
    if inherited:
        monkeypatch.setitem(ENVIRONMENT, "PYTEST_XDIST_WORKER", inherited)
    done = run_pytest(tmp_path, MENTION + source)
    assert done.returncode == 1
    assert f"{where}{NO_VERDICT}" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conftest", "options", "where"),
    [
        ("import os; os._exit(0)\n", (), ""),
        (
            "import os\n\n\ndef pytest_xdist_node_collection_finished():\n    os._exit(0)\n",
            ("-n", "1"),
            "while processes of xdist ran the tests, ",
        ),
    ],
    ids=["import", "process that starts those of xdist"],
)
def test_a_conftest_that_ends_the_process_is_a_failure(
    tmp_path: Path, conftest: str, options: tuple[str, ...], where: str
) -> None:
    (tmp_path / "conftest.py").write_text(MENTION + conftest)
    done = run_pytest(tmp_path, "def test_it():\n    pass\n", *options)
    assert done.returncode == 1
    assert f"{where}{NO_VERDICT}" in done.stderr


@pytest.mark.parametrize(("test", "code"), [("pass", 0), ("assert False", 1)])
@pytest.mark.slow
def test_an_exit_handler_does_not_change_the_exit_code(tmp_path: Path, test: str, code: int) -> None:
    handler = f"atexit.register(os._exit, {1 - code})\n" if code else ""
    done = run_pytest(tmp_path, f"{MENTION}{handler}def test_it():\n    {test}\n")
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize("source", ["os._exit(0)\n", "def test_it():\n    os._exit(0)\n"])
@pytest.mark.slow
def test_a_process_of_xdist_that_ends_is_a_failure(tmp_path: Path, source: str) -> None:
    done = run_pytest(tmp_path, MENTION + source, "-n", "1", "--max-worker-restart", "0")
    assert done.returncode != 0, done.stdout


def test_a_process_of_xdist_is_not_supervised_itself(tmp_path: Path) -> None:
    """The command has no arguments, as the processes that it starts have none."""
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {' '.join(PLUGIN)} -n 1\n")
    source = (
        "from statecheck.workers.supervised import session\ndef test_it():\n    assert session() is None\n"
    )
    done = run_pytest(tmp_path, source, plugin=())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_session_that_does_not_mention_the_package_runs_in_its_own_process(tmp_path: Path) -> None:
    source = "def test_it():\n    assert os.getppid() == int(os.environ['STARTED_BY'])\n"
    done = run_pytest(tmp_path, source, STARTED_BY=str(os.getpid()))
    assert done.returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 2), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_signals_reach_the_session(tmp_path: Path, number: signal.Signals, code: int) -> None:
    ready = tmp_path / "ready"
    # A background job of a shell is begun with the signal ignored.
    handled = "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    (tmp_path / "test_module.py").write_text(
        f"{IMPORTS}{MENTION}{handled}def test_it():\n    open({str(ready)!r}, 'w').close()\n    signal.pause()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "pytest", *PLUGIN],
        cwd=tmp_path,
        env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not ready.exists():
        time.sleep(0.05)
    running.send_signal(number)
    output, errors = running.communicate(timeout=60)
    assert running.returncode == code, output + errors
    assert ("KeyboardInterrupt" in output) == (number == signal.SIGINT)


def test_the_session_ends_with_the_process_that_was_started(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    (tmp_path / "test_module.py").write_text(
        f"{IMPORTS}{MENTION}def test_it():\n    open({str(ready)!r}, 'w').write(str(os.getpid()))\n    signal.pause()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "pytest", *PLUGIN],
        cwd=tmp_path,
        env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    while not ready.exists() or not ready.read_text():
        time.sleep(0.05)
    running.kill()
    running.wait()
    child = Path("/proc", ready.read_text(), "stat")
    until = time.monotonic() + 60
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until, "the session goes on"
        time.sleep(0.05)


def test_an_import_that_never_ends_ends_the_session_with_its_name_and_the_limit(
    tmp_path: Path,
) -> None:
    (tmp_path / "endless.py").write_text("while True:\n    pass\n")
    (tmp_path / "short.py").write_text(
        "from statecheck.util import limits\n\nlimits.START = 2.0\n", encoding="utf-8"
    )
    chosen = ("--pyargs", "statecheck", "--subject", "endless")
    path = os.pathsep.join((str(ROOT), str(tmp_path)))
    done = run_pytest(tmp_path, "", *chosen, plugin=("-p", "short", *PLUGIN), PYTHONPATH=path)
    assert done.returncode not in (0, 5)
    assert (
        "during the import of subject endless, which may take 2 s, before the session was over" in done.stderr
    )
    assert "endless.py" in done.stderr
