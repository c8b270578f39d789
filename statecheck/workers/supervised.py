"""A test session, or a replay, in a child process, whose parent tells an end of the session from an end of the process.

In a test session, subjects run in the process whose exit code a shell or CI sees; in a replay, conditions of declared defects do. Any code in a
process can end it with exit code 0: `os._exit(0)` in a call, in an import or a thread, `exit(0)` of a C library, or `os.execv` of another
program. Nothing within that process can prevent this, so the session runs in a fork, and the process that was started waits: it imports no
subject, and knows an exit code of the session's own from the code of a process that came to an end some other way.

The two share a page of memory, which no subject can close as it can a pipe.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from statecheck.util import limits, temporary
from statecheck.workers.forking import die_with_parent

_SIZE = 4096
_HEAD = struct.Struct("<BiH")
"""Whether the session has ended, with which code, and the length of the text behind."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_OF_THE_TERMINAL = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a terminal sends to each process of a command, the child among them."""
_ENDED_BY_SIGNAL = 128
"""What shells add to a signal's number."""


class Session:
    """The child's side of a supervised session."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._process = os.getpid()

    def note(self, activity: str) -> None:
        """Say what the session is doing, for the sentence about a process that ends meanwhile."""
        self._write(0, 0, activity)

    def end(self, code: int) -> None:
        """The session has come to its end with this exit code; whatever ends the process from now on changes nothing."""
        self._write(1, code, "")

    def _write(self, ended: int, code: int, text: str) -> None:
        # A process that the subject has forked is no part of the session.
        if os.getpid() == self._process:
            written = text.encode(errors="replace")[: _SIZE - _HEAD.size]
            self._memory[: _HEAD.size + len(written)] = _HEAD.pack(ended, code, len(written)) + written


class _Running:
    session: Session | None = None


def session() -> Session | None:
    """This process's supervised session, if it has one."""
    return _Running.session


@contextmanager
def import_limited(subject: str) -> Iterator[None]:
    """End the process, with a traceback, if the import of a subject takes longer than a worker may take for it."""
    limit = limits.START
    if _Running.session is not None:
        _Running.session.note(f"during the import of subject {subject}, which may take {limit:g} s")
    # In C, whatever holds the interpreter.
    faulthandler.dump_traceback_later(limit, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def supervise(session: str, activity: str) -> None:
    """Go on in a child process, while this one waits for it, passes signals on and ends as the session does.

    Args:
        session: what it is, such as "test session".
        activity: what it does first, see `Session.note`.

    Nothing happens in a session that is supervised already, where there are threads, which a fork would lose, or on a system without
    forks.
    """
    if _Running.session is not None or not hasattr(os, "fork") or threading.active_count() > 1:
        return
    memory = mmap.mmap(-1, _SIZE)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # Blocked from here on, so that the end of a child that is fast is not missed.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD})
    pid = os.fork()
    if pid:
        _wait(pid, memory, session)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    die_with_parent()
    _Running.session = Session(memory)
    _Running.session.note(activity)


def _wait(pid: int, memory: mmap.mmap, session: str) -> NoReturn:
    """Wait for the child, and end with its exit code, or with another one where the session did not come to its end."""
    awaited = {*_FORWARDED, signal.SIGCHLD}
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        # Wait for a signal, and pass it on unless the child has it already.
        if hasattr(signal, "sigwaitinfo"):
            info = signal.sigwaitinfo(awaited)
            # Positive where the kernel sent it, as it does for a terminal.
            number, has_it = info.si_signo, info.si_code > 0
        else:
            number = signal.sigwait(awaited)
            has_it = number in _OF_THE_TERMINAL
        if number != signal.SIGCHLD and not has_it:
            os.kill(pid, number)
    code, said = _exit_code(os.waitstatus_to_exitcode(ended[1]), memory, session)
    if said:
        print(f"\n{said}", file=sys.stderr, flush=True)
    temporary.end()
    # Without exit handlers: the child has run its own.
    os._exit(code)


def _exit_code(code: int, memory: mmap.mmap, session: str) -> tuple[int, str]:
    """The exit code to end with, and a sentence where the session did not come to its end.

    Args:
        code: of the child; the negative number of the signal that ended it.
    """
    ended, session_code, length = _HEAD.unpack(memory[: _HEAD.size])
    as_shell = _ENDED_BY_SIGNAL - code if code < 0 else code
    if ended:
        return as_shell or session_code, ""
    activity = memory[_HEAD.size : _HEAD.size + length].decode(errors="replace")
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return as_shell or 1, (
        f"statecheck: the process of this {session} {how} {activity}, before the {session.rsplit(maxsplit=1)[-1]} was over: no verdict. "
        f"A campaign (statecheck fuzz) runs the subject in processes of its own, and reports the input that ends one."
    )
