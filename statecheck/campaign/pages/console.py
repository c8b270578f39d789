"""Lines of a campaign that nobody may be there to read: whoever goes, and whatever is full, the campaign goes on."""

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
            # The next file to be opened would have this number, and what anybody prints would go there.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Unbreakable(io.TextIOBase):
    """A stream as far as anybody listens: what cannot be written is not worth an exit code."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text) if self._stream is not None else len(text)
        except BrokenPipeError:
            _turn_away()
        except (OSError, ValueError):
            """A full disk, for one, or it is closed."""
        return len(text)

    def flush(self) -> None:
        try:
            if self._stream is not None:
                self._stream.flush()
        except (OSError, ValueError):
            _turn_away()

    def isatty(self) -> bool:
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("there is no such stream")
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"


def say(line: str) -> None:
    """Print a line, as far as anybody listens."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        _turn_away()
    except OSError:
        """A full disk, for one: the line waits for the next."""
    except ValueError:
        """It is closed."""


def finish() -> None:
    """After the last line: what could not be printed is not worth an exit code."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            _turn_away()


def _turn_away() -> None:
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
