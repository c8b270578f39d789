"""The process of a script: arguments, the device, and a child process for the case, because the subject may crash or hang.

A crash or a hang shows the defect. This part imports the standard library alone: nothing of torch may be imported before
`checked_device`.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

from statecheck.util.text import visible

_TIME_LIMIT, _START_LIMIT = 30.0, 600.0
"""Seconds for the case, unless the variable TIME_LIMIT has another number, and for the imports before it."""
_MOST_SHOWN = 1 << 16
"""Bytes of what the child has written that are shown."""
BEGUN = "begun"
DEVICE = "cpu"
"""A script sets it."""
IS_SCRIPT = __name__ == "__main__"
"""Otherwise a file for pytest."""
_progress: list[Path] = []
"""In a child: the file that says how far it is, and how it ended."""


def cannot_try(why: str) -> NoReturn:
    """End without a verdict on the defect; in a file for pytest, skip the test, or the whole file while it is imported."""
    if not IS_SCRIPT:
        importlib.import_module("pytest").skip(why, allow_module_level=True)
    print(why)
    conclude(untried_code())


def begin(usage: str | None) -> None:
    """Print the usage if asked; refuse unknown arguments; continue in a child process."""
    if sys.argv[1:] in (["-h"], ["--help"]):
        print((usage or "").strip())
        sys.exit(0)
    if sys.argv[1:] not in ([], ["--bisect"], ["--here"]):
        cannot_try(f"arguments = {sys.argv[1:]}, but should be none, --bisect, --here or --help")
    try:
        time_limit()
    except ValueError:
        cannot_try(f"TIME_LIMIT = {os.environ['TIME_LIMIT']!r}, but should be a number of seconds")
    if sys.argv[1:] != ["--here"] and hasattr(os, "fork"):
        go_on_in_child()


def checked_device(device: str) -> str:
    if device not in ("cpu", "cuda"):
        cannot_try(f"DEVICE = {device!r}, but should be cpu or cuda")
    if device == "cpu":
        if not IS_SCRIPT and "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
            cannot_try("Triton was imported without TRITON_INTERPRET=1: set it, or run this file alone")
        # Triton reads this when it is imported; with it, Triton runs kernels in Python and needs no GPU.
        os.environ["TRITON_INTERPRET"] = "1"
    return device


def require_torch() -> None:
    try:
        importlib.import_module("torch")
    except (ImportError, OSError) as error:
        cannot_try(f"cannot import torch: {error}")
    if os.environ.get("TRITON_INTERPRET") == "1":
        mend_interpreter()


def mend_interpreter() -> None:
    """Let kernels count up to a number that they have loaded, which Triton 3.6 cannot interpret beside NumPy 2.4 and later."""
    try:
        interpreter: Any = importlib.import_module("triton.runtime.interpreter")
        language = importlib.import_module("triton.language")
    except ImportError:
        # The import of the subject reports it.
        return
    plain = interpreter._patch_lang

    def patch_lang(function: Any) -> Any:
        scope = plain(function)
        # A scalar is an array of one dimension, of which NumPy makes no int.
        language.tensor.__index__ = lambda scalar: int(scalar.handle.data.item())
        return scope

    interpreter._patch_lang = patch_lang


def go_on_in_child() -> None:
    """Return in a child process. This one exits with the child's code, or with 1 if the child crashed or hung in the case."""
    ended = in_child()
    if ended is None:
        return
    noted, how = ended
    if noted == BEGUN:
        print(f"{how}\nthe defect is there")
        sys.exit(1)
    if not noted:
        print(f"it cannot be tried here: before the case began, {how}")
    sys.exit(int(noted.partition("\n")[0]) if noted else untried_code())


def time_limit() -> float:
    """Seconds for the case.

    Raises:
        ValueError: TIME_LIMIT is no number.
    """
    return float(os.environ.get("TIME_LIMIT", _TIME_LIMIT))


def note(text: str) -> None:
    """In a child, for its parent: `BEGUN` once the imports are over, and at last an exit code and other lines."""
    for path in _progress:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")


def conclude(code: int) -> NoReturn:
    """Exit with a code that stands for a verdict."""
    note(str(code))
    if _progress:
        # Exit handlers of the subject are not part of the case.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def untried_code() -> int:
    """Without a verdict: 2, or 125, for which `git bisect run` skips a revision."""
    return 125 if sys.argv[1:] == ["--bisect"] else 2


def in_child() -> tuple[str, str] | None:
    """None in a child process. In this one, once the child has ended: what it has noted, and how it ended."""
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
    """How the process ended. It is gone when this returns, also after an exception."""
    # By default, SIGTERM would end this process and leave the child.
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    limit, begun, until = _START_LIMIT, False, time.monotonic() + _START_LIMIT
    try:
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
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
