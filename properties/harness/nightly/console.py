"""Lines of a campaign that nobody may be there to read: whoever goes, and whatever is full, the campaign goes on."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


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
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        _turn_away()


def _turn_away() -> None:
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
