"""A command of statecheck on a release, in whose environment it goes on by itself, with what it prints in a file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from statecheck import rooms
from statecheck.releases.project import Project
from statecheck.text.command_lines import remembered

PROGRAM = (sys.executable, "-m", "statecheck")


def run_on(
    project: Project, release: str, arguments: Sequence[str], log: Path, program: Sequence[str] = PROGRAM
) -> int:
    """Run it to its end; the exit code. Ctrl-C ends it, too."""
    variables = {**os.environ, **remembered(), project.variable: release}
    variables.pop(f"{project.variable}_PATH", None)
    with log.open("wb") as out:
        command = [*program, *arguments]
        environment = rooms.added_to(variables)
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=environment, check=False)
    return done.returncode


def last_line(log: Path) -> str:
    """What was said last, which is why, where it did not get to its end."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "nothing")
