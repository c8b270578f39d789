"""A process that a tool watches: its output goes to a log as it is printed, and it is ended when its time is up."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import signal
import subprocess
import threading
import time
import tty
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Process:
    """A process that has ended: its command, log and exit code, None after a time-out."""

    command: str
    log: str
    seconds: float
    code: int | None


def execute(command: Sequence[str], log: Path, seconds: float, environment: Mapping[str, str]) -> Process:
    """Run it into the log, and end it with all that it started when the time is up.

    The tool prints into the log as well, and not into a --log-file of its own: what it prints then stands behind the
    line of the case that it is about. Both print to a pseudo-terminal, so that neither buffers lines.
    """
    started = time.monotonic()
    reader, writer = pty.openpty()
    tty.setraw(writer)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=writer,
        env=environment,
        start_new_session=True,
    )
    # The process has its own: with this one open, the reader would never come to an end.
    os.close(writer)
    copying = threading.Thread(target=_copy, args=(reader, log), daemon=True)
    copying.start()
    try:
        code: int | None = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process)
        copying.join(_GRACE_SECONDS)
    return Process(shlex.join(command), str(log), time.monotonic() - started, code)


def _copy(reader: int, log: Path) -> None:
    """Everything that is printed, until all processes have closed the terminal."""
    with log.open("wb") as file, contextlib.suppress(OSError):
        # At the end of a terminal there is an error, or nothing.
        while printed := os.read(reader, 1 << 16):
            file.write(printed)
            file.flush()
    os.close(reader)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its children, if it still runs; its session is its own. The tool may say what it has."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
