"""The process of a command, which nothing but the command runs in, and when processes of the harness collect garbage."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import threading

from statecheck.util import temporary


class _Command:
    pid = 0
    code: int | None = None


def begin_command() -> None:
    """Note that this process belongs to one command, from its first step on."""
    _Command.pid = os.getpid()
    temporary.begin()
    collect_rarely()
    # Exit handlers run in reverse order: this one is the last.
    atexit.register(_exit_without_freeing)


def end_command(code: int) -> None:
    """Note the exit code. The process runs its exit handlers, and then ends without freeing torch's objects, which takes .5 CPU s."""
    _Command.code = code


def _exit_without_freeing() -> None:
    if not _is_own():
        return
    temporary.end()
    if _Command.code is None:
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(_Command.code)


def _is_own() -> bool:
    return _Command.pid == os.getpid()


def is_command() -> bool:
    """Whether this process belongs to a command, and has one thread only: it may fork, and the fork is like a new process."""
    return _is_own() and threading.active_count() == 1


def collect_rarely() -> None:
    """Have Python look for garbage after 100,000 new objects, not after 700.

    Imports of torch and Hypothesis make a million objects that stay. With Python's own threshold they are looked at again and
    again, which was a third of the CPU time of a start.
    """
    gc.set_threshold(100_000, 20, 20)
