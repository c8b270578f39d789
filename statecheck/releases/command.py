"""A command of statecheck in a release's environment, with what it prints in a file."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from statecheck import rooms
from statecheck.releases.environment import Environment
from statecheck.text.command_lines import remembered


def run_in(
    environment: Environment,
    arguments: Sequence[str],
    wanted: Mapping[str, str],
    log: Path,
    *,
    time_limit: float | None = None,
) -> int | None:
    """Run its interpreter, leave the environment, and return the exit code; None where it took longer than `time_limit`.

    Args:
        wanted: the variables that say which release it is: VLLM, and VLLM_PATH of a checkout.
        log: gets what is printed.
        time_limit: seconds.
    """
    variables = rooms.added_to({**os.environ, **remembered(), **environment.variables})
    variables.pop("VLLM_PATH", None)
    try:
        with log.open("wb") as file:
            command = [str(environment.python), *arguments]
            return _ended(command, {**variables, **wanted}, file.fileno(), time_limit)
    finally:
        environment.leave()


def _ended(command: list[str], variables: dict[str, str], out: int, time_limit: float | None) -> int | None:
    # A group of its own ends with all its workers. Ctrl-C does not reach it, so that a command without a limit has none.
    group = None if time_limit is None else 0
    with subprocess.Popen(
        command, stdout=out, stderr=subprocess.STDOUT, env=variables, process_group=group
    ) as process:
        try:
            return process.wait(time_limit)
        except BaseException as error:
            if group is None:
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise


def last_line(log: Path) -> str:
    """What was said last, which is why, where it did not get to its end."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "nothing")
