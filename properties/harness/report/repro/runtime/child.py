"""The case in a child process, which the subject may end, or keep for ever: neither says that the defect is gone."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from properties.harness.text import visible

_TIME_LIMIT, _START_LIMIT = 30.0, 600.0
"""Seconds for the case, unless the variable TIME_LIMIT has another number, and for the imports before it."""
_MOST_SHOWN = 1 << 16
"""Bytes of what the child has written that are shown."""
BEGUN = "begun"
_progress: list[Path] = []
"""In a child: the file that says how far it is, and how it ended."""


def go_on_in_child() -> None:
    """Return in a child process; this one exits as the child has concluded, and with 1 where it ended or hung in the case."""
    ended = in_child()
    if ended is None:
        return
    told, how = ended
    if told == BEGUN:
        print(f"{how}\nthe defect is there")
        sys.exit(1)
    if not told:
        print(f"it cannot be tried here: before the case began, {how}")
    sys.exit(int(told.partition("\n")[0]) if told else untried_code())


def time_limit() -> float:
    """Seconds for the case.

    Raises:
        ValueError: TIME_LIMIT is no number.
    """
    return float(os.environ.get("TIME_LIMIT", _TIME_LIMIT))


def note(text: str) -> None:
    """In a child, tell its parent: `BEGUN` once the imports are over, and at last an exit code and other lines."""
    for path in _progress:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")


def conclude(code: int) -> NoReturn:
    """Exit with a code that stands for a verdict."""
    note(str(code))
    if _progress:
        # Nothing that the subject has left to be done at the exit is of the case.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def untried_code() -> int:
    """Where there is no verdict: 2, or as `git bisect run` wants it, which skips a revision for 125."""
    return 125 if sys.argv[1:] == ["--bisect"] else 2


def in_child() -> tuple[str, str] | None:
    """None in a child process. In this one, when that is over: what it has noted, and how it ended."""
    folder = Path(tempfile.mkdtemp(prefix="repro-"))
    progress, outputs = folder / "progress", (folder / "stdout", folder / "stderr")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _progress.append(progress)
        for number, path in enumerate(outputs, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        return None
    try:
        how = _waited_for(pid, progress)
        for stream, path in zip((sys.stdout, sys.stderr), outputs, strict=True):
            stream.write(_shown(path))
            stream.flush()
        return _read(progress), how
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _waited_for(pid: int, progress: Path) -> str:
    """How the process ended; it is gone when this returns, whatever ends the wait."""
    # The default would end this process alone.
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    limit, begun, until = _START_LIMIT, False, time.monotonic() + _START_LIMIT
    try:
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                pid = 0
                return _ending(os.waitstatus_to_exitcode(status))
            if not begun and _read(progress):
                limit, begun = time_limit(), True
                until = time.monotonic() + limit
            if time.monotonic() > until:
                return f"there was no answer within {limit:g} s"
            time.sleep(0.01)
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        signal.signal(signal.SIGTERM, before)


def _ending(code: int) -> str:
    return f"the process ended: exit code {code}" if code >= 0 else f"the process ended: signal {-code}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _shown(path: Path) -> str:
    with path.open("rb") as file:
        return visible(file.read(_MOST_SHOWN).decode(errors="backslashreplace"))
