"""The output of a worker: its file descriptors 1 and 2 write to a file, never to the terminal or the log of the campaign.

Redirecting `sys.stdout` is not enough: a subject's C code, `os.write(1, …)` and the processes that it forks write to the descriptors.
Where a worker ends, the end of the file and the traceback in it are part of what is reported.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from statecheck.campaign.corpus import print_to
from statecheck.util.text import visible

_SUFFIX = ".output"
_SHOWN_BYTES = 200
_MOST_BYTES = 1 << 20
_FATAL, _STACK = b"Fatal Python error: ", b"Stack (most recent call first):"
"""How faulthandler begins."""


class Output:
    """The output of this process, from now on.

    Args:
        folder: takes the file; where it cannot, what is written is dropped.
    """

    def __init__(self, folder: Path) -> None:
        print_to(os.fdopen(os.dup(2), "w", errors="backslashreplace"))
        self._path = _path_of(folder, os.getpid())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
        except OSError:
            self._file = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for number in (1, 2):
            os.dup2(self._file, number)
        # A worker that ends by a signal says where it was; one that hangs says so when it is asked, and ends.
        faulthandler.enable(2, all_threads=False)
        faulthandler.register(signal.SIGUSR1, 2, all_threads=False, chain=True)

    def clear(self, *, if_large: bool = False) -> None:
        """Drop what was written, always or only where it is very much."""
        _flush()
        with suppress(OSError):
            if os.fstat(self._file).st_size > (_MOST_BYTES if if_large else 0):
                os.ftruncate(self._file, 0)

    def close(self) -> None:
        """The worker ends: its file goes."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


@contextmanager
def output_dropped() -> Iterator[None]:
    """While it is entered, what this process writes to its descriptors 1 and 2 goes nowhere."""
    # What this process has printed before is not the subject's.
    _flush()
    saved = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    try:
        yield
    finally:
        _flush()
        for number, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)


def take_output(folder: Path, worker: int) -> str:
    """The end of what a worker that is gone has written in its last task, escaped, and its traceback below; its file goes."""
    path = _path_of(folder, worker)
    try:
        written = path.read_bytes()
        path.unlink()
    except OSError:
        return ""
    start = _FATAL if _FATAL in written else _STACK
    words, _, rest = written.rpartition(start) if start in written else (written, b"", b"")
    traceback = (start + rest.partition(b"\n\nExtension modules:")[0].rstrip()) if rest else b""
    shown = words[-_SHOWN_BYTES:].decode(errors="backslashreplace")
    lines = (
        f"it wrote {shown!r}" if shown.strip() else "",
        visible(traceback.decode(errors="backslashreplace")),
    )
    return "\n".join(filter(None, lines))


def _flush() -> None:
    """Write what was printed to the descriptor; a process that was started without a standard output has no such object."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()


def _path_of(folder: Path, worker: int) -> Path:
    return folder / f"{worker}{_SUFFIX}"
