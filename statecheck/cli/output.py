"""Standard output that may be closed or full: the command goes on all the same."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO


def prepare() -> None:
    """Before the first line: letters that the encoding lacks are escaped, and closed descriptors lead nowhere."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The next file to be opened would get this number, and take what is printed.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Unbreakable(io.TextIOBase):
    """A stream that drops what cannot be written, so that the exit code stays that of the verdict."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text) if self._stream is not None else len(text)
        except BrokenPipeError:
            _redirect_to_null()
        except (OSError, ValueError):
            """A full disk, for one, or it is closed."""
        return len(text)

    def flush(self) -> None:
        try:
            if self._stream is not None:
                self._stream.flush()
        except (OSError, ValueError):
            _redirect_to_null()

    def isatty(self) -> bool:
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("there is no such stream")
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"


def finish() -> None:
    """After the last line: a line that could not be printed does not change the exit code."""
    Unbreakable(sys.stdout).flush()


def _redirect_to_null() -> None:
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
