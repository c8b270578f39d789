"""Programs of the system and commands of this one that are run to their end: git, pip, nvidia-smi, statecheck on another release."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

Completed = subprocess.CompletedProcess[str]
NOT_RUN = 127
"""The exit code of a program that is not there, or that did not end in time, as a shell has it."""


def run_command(
    words: Sequence[str],
    *,
    seconds: float | None = None,
    folder: Path | str | None = None,
    variables: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Completed:
    """Run a program to its end, with its output as text. Ctrl-C ends it, too.

    Args:
        seconds: after which it is ended; None for as long as it takes.
        folder: it runs in; by default this process's.
        variables: its environment; by default this process's.
        log: a file that takes both of its outputs, in their order.

    Returns:
        Its exit code and outputs; `NOT_RUN`, with the reason as standard error, where it is not there or did not end in time.
    """
    try:
        if log is None:
            return subprocess.run(
                words, cwd=folder, env=variables, capture_output=True, text=True, timeout=seconds, check=False
            )
        with log.open("wb") as out:
            return subprocess.run(
                words, cwd=folder, env=variables, stdout=out, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False
            )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, NOT_RUN, "", str(error))
