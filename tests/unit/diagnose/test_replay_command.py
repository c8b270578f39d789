"""`replay` runs a case in a process of its own: what the subject does to that process is the case's failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.values import Raised, Returned, Tensor, call
from statecheck.execution.verdict import CLEAN, FALSIFIED, MISCONFIGURED
from tests.helpers.cases import a_case
from tests.helpers.processes import COMMANDS, run_python

OFFSETS = Tensor("int64", (4,), (0, 0, 0, 0))
PORT = """\
STATECHECK_PROTOCOL = 2


def chunk_offsets(cu_seqlens, chunk_size):
    {body}
    return [0, 0, 0, 0]
"""
SLEEPS = "import time; time.sleep(1000)"
HOLDS_THE_GIL = "import re; re.match('(a+)+$', 'a' * 60 + 'b')"


def of_port(**changes: object) -> Case:
    """A case in which a worker died, of a port that may have been mended."""
    fields = {
        "property_id": "fla-chunks/offsets",
        "subject": "toy_offsets",
        "steps": (
            call("prepare_chunk_offsets", cu_seqlens=Tensor("int32", (4,), (0, 0, 0, 0)), chunk_size=64),
        ),
        "expected": (Returned(OFFSETS),),
        "actual": (Raised("worker died", "the process ended with exit code 0", kind="fault"),),
        "message": "the process ended with exit code 0",
    }
    return a_case(**fields | changes)


def replayed(folder: Path, source: str, *arguments: str, case: Case | None = None) -> tuple[int, str]:
    """The exit code of the command, and what it printed."""
    (folder / "toy_offsets.py").write_text(source, encoding="utf-8")
    path = (case or of_port()).save(folder / "case.json")
    command = ("-m", "statecheck", "replay", str(path), "--subject", "toy_offsets", "--device", "cpu")
    done = run_python(*command, *arguments, env=os.environ | {"PYTHONPATH": str(folder)}, like=COMMANDS)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            "import os; os._exit(0)",
            FALSIFIED,
            "FAILED: toy_offsets: chunk_offsets: the call = worker died: the process ended with exit code 0",
        ),
        (
            "import os; os.kill(os.getpid(), 11)",
            FALSIFIED,
            "FAILED: toy_offsets: chunk_offsets: the call = worker died: the process ended by SIGSEGV",
        ),
        (SLEEPS, FALSIFIED, "FAILED: toy_offsets: chunk_offsets: the call = hang: no answer within 1 s"),
        (
            HOLDS_THE_GIL,
            FALSIFIED,
            "FAILED: toy_offsets: chunk_offsets: the call = hang: no answer within 1 s",
        ),
        (
            "import sys; sys.exit(0)",
            FALSIFIED,
            "FAILED: toy_offsets: chunk_offsets: the call = SystemExit: 0",
        ),
        ("pass", CLEAN, "FIXED: "),
    ],
    ids=["exits", "is killed", "sleeps", "holds the GIL", "exits in Python", "mended"],
)
@pytest.mark.slow
def test_a_call_that_ends_or_keeps_its_process_fails_the_case(
    tmp_path: Path, body: str, code: int, message: str
) -> None:
    found, output = replayed(tmp_path, PORT.format(body=body), "--time-limit", "1s")
    assert (found, message in output) == (code, True), output


def test_an_import_that_ends_the_process_is_no_verdict(tmp_path: Path) -> None:
    code, output = replayed(tmp_path, "import os\nos._exit(0)\n")
    assert (code, "the process ended with exit code 0" in output) == (MISCONFIGURED, True), output


KNOWN = """
[[known]]
id = "short-offsets"
title = "One too many."
properties = ["fla-chunks/offsets"]
versions = ">=0"
link = "https://example.org/7"
why = "A test."

[[known.symptoms]]
kind = "value"
function = "prepare_chunk_offsets"
place = "result"
"""


def test_a_declared_defect_that_shows_is_said_to_be_reproduced(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(KNOWN, encoding="utf-8")
    source = 'KNOWN = "known.toml"\n' + PORT.format(body="return [0, 0, 0, 1]")
    code, output = replayed(tmp_path, source)
    message = "REPRODUCED (declared as short-offsets, https://example.org/7): toy_offsets: chunk_offsets: result[3] = 1, but should be 0"
    assert (code, message in output) == (CLEAN, True), output
