"""The process of a command, which nothing but the command runs in, and when processes of the harness collect garbage."""

from __future__ import annotations

import gc
import os
import threading


class _Command:
    pid = 0


def begin_command() -> None:
    """Note that this process belongs to one command, from its first step on."""
    _Command.pid = os.getpid()
    collect_rarely()


def is_command() -> bool:
    """Whether this process belongs to a command, and has one thread only: it may fork, and the fork is like a new process."""
    return _Command.pid == os.getpid() and threading.active_count() == 1


def collect_rarely() -> None:
    """Have Python look for garbage after 100,000 new objects, not after 700.

    Imports of torch and Hypothesis make a million objects that stay. With Python's own threshold they are looked at again and
    again, which was a third of the CPU time of a start.
    """
    gc.set_threshold(100_000, 20, 20)
