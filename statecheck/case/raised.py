"""What a subject's code raised, in words that every file and every terminal takes.

A subject may raise anything: `SystemExit`, `pytest.skip`, an exception whose `str` raises. All of that is what the subject
did, and must neither end the harness nor be taken for a wish of Hypothesis or pytest.
"""

from __future__ import annotations

import signal
from types import TracebackType

LONGEST_MESSAGE = 100_000
_TIMERS = frozenset({"pytest_timeout"})
"""Modules whose signal handlers raise in whatever happens to run."""


def from_outside(error: BaseException) -> bool:
    """Whether it only happened to be raised while the subject ran: Ctrl-C, or the time limit of a test.

    Where the process ignores Ctrl-C, as workers do, a `KeyboardInterrupt` is the subject's; so is a class derived from it.
    """
    if isinstance(error, Exception):
        return False
    if type(error) is KeyboardInterrupt and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        return True
    return _passes_through(error.__traceback__, _TIMERS)


def _passes_through(trace: TracebackType | None, modules: frozenset[str]) -> bool:
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") in modules:
            return True
        trace = trace.tb_next
    return False


def name_of(kind: type) -> str:
    """The name of a type, also where its metaclass has a `__name__` of its own."""
    return plain_text(type.__dict__["__name__"].__get__(kind))


def plain_text(text: str) -> str:
    """`text` as a plain string that can be written as UTF-8, which lone surrogates cannot."""
    if type(text) is str and text.isascii():
        return text
    return str.encode(text, "utf-8", "backslashreplace").decode()


def message_of(error: BaseException) -> str:
    """What the exception says, cut where it says very much."""
    try:
        text = plain_text(str(error))
    except BaseException as second:
        if from_outside(second):
            raise
        return f"<its message cannot be read: {name_of(type(second))}>"
    if len(text) <= LONGEST_MESSAGE:
        return text
    return f"{text[:LONGEST_MESSAGE]} ... {len(text)} characters in all"


def error_text(error: BaseException) -> str:
    """Type and message, as tracebacks end."""
    return f"{name_of(type(error))}: {message_of(error)}"
