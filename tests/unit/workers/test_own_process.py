"""How the process of a command ends."""

from __future__ import annotations

import pytest

from tests.helpers.processes import run_fresh

_COMMAND = """
import atexit, os, sys
from statecheck.workers.own_process import begin_command, end_command

class Freed:
    def __del__(self):
        os.write(1, b"freed ")

kept = Freed()
begin_command()
atexit.register(lambda: sys.stdout.write("handler "))
sys.stdout.write("written ")
sys.stderr.write("error")
"""


def ended(last_lines: str) -> tuple[int, str, str]:
    """The exit code and both streams of a process that begins a command, and then runs the lines."""
    # Output that is buffered has to be flushed.
    done = run_fresh("-c", _COMMAND + last_lines, env={"PYTHONUNBUFFERED": ""})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("code", [0, 2])
def test_a_command_runs_its_exit_handlers_prints_everything_and_frees_nothing(code: int) -> None:
    assert ended(f"end_command({code}); sys.exit({code})") == (code, "written handler ", "error")


def test_a_command_that_raises_ends_like_any_process() -> None:
    code, output, errors = ended("raise ValueError('x')")
    assert (code, sorted(output.split())) == (1, ["freed", "handler", "written"])
    assert errors.endswith("ValueError: x\n")


def test_a_fork_of_a_command_ends_like_any_process() -> None:
    code, output, _ = ended(
        "end_command(3)\nif os.fork() == 0:\n    sys.exit(7)\nsys.stdout.write(str(os.waitstatus_to_exitcode(os.wait()[1])))"
    )
    assert (code, output.count("freed"), output.count("handler")) == (3, 1, 2)
    assert output.endswith("7handler ")
