"""The output of a worker: its file descriptors 1 and 2 write to a file, never to the terminal or the log of the campaign.

Redirecting `sys.stdout` is not enough: a subject's C code, `os.write(1, …)` and the processes that it forks write to the descriptors.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from statecheck.campaign import unsaved_cases
from statecheck.subject.remarks import note
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
        unsaved_cases.print_to(os.fdopen(os.dup(2), "w", errors="backslashreplace"))
        self._path = _path_of(folder, os.getpid())
        self._file = self._opened()
        for number in (1, 2):
            os.dup2(self._file, number)
        # A worker that ends by a signal says where it was; one that hangs says so when it is asked, and ends.
        faulthandler.enable(2, all_threads=False)
        faulthandler.register(signal.SIGUSR1, 2, all_threads=False, chain=True)

    def _opened(self) -> int:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
        except OSError:
            return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def bound(self) -> None:
        """Drop what was written, where it is very much."""
        with suppress(OSError):
            if os.fstat(self._file).st_size > _MOST_BYTES:
                self.look()

    def look(self) -> None:
        """Remark what the subject has written since the last look, and drop it."""
        _flush()
        _remark(self._file)

    def end_without_pipe(self) -> NoReturn:
        """The subject has closed the pipe to the coordinator: the call that runs is the finding, and these the last words."""
        with suppress(OSError):
            self._path.write_text(
                "the subject closed file descriptors that it had not opened\n", encoding="utf-8"
            )
        os._exit(1)

    def close(self) -> None:
        """The worker ends: its file goes."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


@contextmanager
def output_kept() -> Iterator[None]:
    """While it is entered, what this process writes to its descriptors 1 and 2 goes to a file, and into a remark in the end."""
    # What this process has printed before is not the subject's.
    _flush()
    saved = [os.dup(number) for number in (1, 2)]
    try:
        with tempfile.TemporaryFile() as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            try:
                yield
            finally:
                _flush()
                for number, copy in zip((1, 2), saved, strict=True):
                    os.dup2(copy, number)
                _remark(file.fileno())
    finally:
        for copy in saved:
            os.close(copy)


def take_output(folder: Path, worker: int) -> tuple[str, str]:
    """The end of what a worker that is gone has written since its last task, escaped, and its traceback; its file goes."""
    path = _path_of(folder, worker)
    try:
        written = path.read_bytes()
        path.unlink()
    except OSError:
        return "", ""
    start = _FATAL if _FATAL in written else _STACK
    words, _, rest = written.rpartition(start) if start in written else (written, b"", b"")
    traceback = (start + rest.partition(b"\n\nExtension modules:")[0].rstrip()) if rest else b""
    shown = repr(words[-_SHOWN_BYTES:].decode(errors="backslashreplace")) if words.strip() else ""
    return shown, visible(traceback.decode(errors="backslashreplace"))


def _flush() -> None:
    """Write what was printed to the descriptor; a process that was started without a standard output has no such object."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()


def _remark(file: int) -> None:
    """Remark what stands in the file, and drop it."""
    with suppress(OSError):
        size = os.fstat(file).st_size
        if size:
            text = _shown(os.pread(file, _SHOWN_BYTES, 0), size)
            note("the output", f"the subject wrote to the standard output or error: {text}")
            os.ftruncate(file, 0)


def _path_of(folder: Path, worker: int) -> Path:
    return folder / f"{worker}{_SUFFIX}"


def _shown(written: bytes, size: int) -> str:
    text = repr(written.decode(errors="backslashreplace"))
    return text if size <= _SHOWN_BYTES else f"{text} and {size - len(written):,} more bytes"
