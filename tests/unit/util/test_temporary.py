"""Temporary files of a command are gone when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_KILLED = "import os, tempfile; tempfile.mkdtemp(); os.kill(os.getpid(), 9)"
_COMMAND = f"""
import os, subprocess, sys
from statecheck.util import temporary
from statecheck.workers import own_process
own_process.begin_command()
subprocess.run([sys.executable, "-c", {_KILLED!r}])
print(len(os.listdir(os.environ["TMPDIR"])), temporary.lasting_folder())
ENDS
"""
_GOES_ON = """
import os, sys
from statecheck.util import temporary
temporary.begin()
print(os.environ["TMPDIR"], flush=True)
if sys.argv[1:]:
    temporary.end()
else:
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], "again"])
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "STATECHECK_TEMPORARY"}
    return {**kept, "TMPDIR": str(tmp_path)}


@pytest.mark.parametrize(
    ("ends", "code"),
    [("own_process.end_command(7)", 7), ("sys.exit(2)", 2), ("raise ValueError", 1)],
)
def test_folders_of_killed_processes_are_removed_with_the_command(
    tmp_path: Path, environment: dict[str, str], ends: str, code: int
) -> None:
    command = [sys.executable, "-c", _COMMAND.replace("ENDS", ends)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, f"1 {tmp_path}\n")
    assert not [*tmp_path.iterdir()]


def test_a_command_that_goes_on_in_another_environment_keeps_its_folder(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    printed = subprocess.check_output(
        [sys.executable, "-c", _GOES_ON], env=environment, text=True
    ).splitlines()
    assert len(printed) == 2
    assert printed[0] == printed[1]
    assert not [*tmp_path.iterdir()]


def test_a_folder_of_a_process_outlives_its_forks_alone(tmp_path: Path, environment: dict[str, str]) -> None:
    made = 'from statecheck.util.temporary import *\nfolder = folder_of_process("a-")\n'
    forks = "if os.fork() == 0:\n    sys.exit()\nos.wait()\nprint(folder.is_dir())"
    printed = subprocess.check_output(
        [sys.executable, "-c", f"import sys\n{made}{forks}"], env=environment, text=True
    )
    assert printed == "True\n"
    assert not [*tmp_path.iterdir()]
