"""Campaigns on ports of sequences run where neither torch nor Triton can be imported, and as far as a test can tell, on macOS."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statecheck.execution.verdict import CLEAN, FALSIFIED
from tests.helpers.modules import ROOT
from tests.helpers.processes import run_fresh

REFERENCE = Path(__file__).with_name("reference_port.py")
_COPIED = "    context.states[target] = list(context.states[source])"
_SHARED = "    context.states[target] = context.states[source]"
_BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
"""
_LIKE_MACOS = """
import os
import resource
import select
import sysconfig
import urllib.request

# These read files or modules of the real system.
sysconfig.get_config_vars()
sys.platform = "darwin"
for module, name in (
    (os, "sched_getaffinity"), (os, "memfd_create"), (os, "pidfd_open"), (os, "eventfd"), (os, "splice"), (os, "copy_file_range"),
    (select, "epoll"), (resource, "prlimit"),
):
    if hasattr(module, name):
        delattr(module, name)

def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(("/proc", "/dev/shm", "/sys")):
        raise FileNotFoundError(2, "there is no such folder on macOS", arguments[0])

sys.addaudithook(refuse)
"""
SYSTEMS = {"this system": _BLOCKED, "like macOS": _BLOCKED + _LIKE_MACOS}
pytestmark = pytest.mark.slow


@pytest.fixture(params=SYSTEMS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder whose Python has neither torch nor Triton."""
    (tmp_path / "sitecustomize.py").write_text(SYSTEMS[request.param], encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """The exit code of a command of statecheck, and what it prints."""
    environment = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"} | variables
    done = run_fresh("-m", "statecheck", *arguments, cwd=folder, env=environment)
    return done.returncode, done.stdout + done.stderr


def options(folder: Path, subject: str, only: str) -> tuple[str, ...]:
    return ("--subject", subject, "--only", only, "--reports", str(folder / "reports"))


@pytest.mark.parametrize(
    ("folder", "port", "verdict"),
    [("this system", "reference_port", CLEAN), ("like macOS", "isolated_port", FALSIFIED)],
    indirect=["folder"],
)
def test_a_campaign_runs_to_its_verdict(folder: Path, port: str, verdict: int) -> None:
    chosen = options(folder, f"tests.adapters.sequences.{port}", "sequences/pieces")
    # By examples: how many a budget of seconds has room for depends on what else the machine does.
    by_examples = ("nightly", "--examples", "20", "--workers", "1")
    # The first failure ends it, or the time that shrinking has.
    until_failure = ("fuzz", "-x", "--budget", "10s", "--workers", "1", "--seed", "1")
    if verdict == CLEAN:
        # The port's other model is there to be one that cannot be verified.
        code, printed = run(folder, *by_examples, *chosen, STATECHECK_MODELS="small")
    else:
        code, printed = run(folder, *until_failure, *chosen)
    assert code == verdict, printed


def test_a_failure_is_shrunk_confirmed_reported_and_replayed(folder: Path) -> None:
    source = REFERENCE.read_text(encoding="utf-8")
    assert source.count(_COPIED) == 1
    (folder / "sharing_port.py").write_text(source.replace(_COPIED, _SHARED), encoding="utf-8")
    # By examples: how many a budget of seconds has room for depends on what else the machine does.
    by_examples = ("--examples", "150", "--workers", "1")
    code, printed = run(folder, "nightly", *by_examples, *options(folder, "sharing_port", "sequences/fork"))
    assert code == FALSIFIED, printed
    # Another failure of the same defect may have a report, too.
    cases = sorted((folder / "reports").glob("*/case.json"))
    scripts = [(case.parent / "repro.py").read_text(encoding="utf-8") for case in cases]
    # The shortest failures differ in the numbers of their sequences.
    assert scripts
    assert all("port.fork(c0," in script for script in scripts)
    case = cases[0]
    assert (case.parent / "report.md").is_file()
    code, printed = run(folder, "replay", str(case), "--subject", "sharing_port")
    assert code == FALSIFIED, printed
    assert printed.startswith("FAILED")
