"""Code of a subject, run in a child of this process: what ends or keeps the child would end or keep this process."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

_READ_BYTES = 65_536


class NoAnswerError(Exception):
    """The child ended before it had an answer, or had none in time."""


def answer_apart(ask: Callable[[], Any], seconds: float) -> Any:
    """What `ask` returns in a child process that is forked for it, as JSON has it.

    Raises:
        NoAnswerError: it raised, ended the child, or took longer than `seconds`.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns where there are threads; the child asks, and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _answer(ask, writing)
    os.close(writing)
    try:
        text = _read(reading, seconds)
    finally:
        os.close(reading)
        code = _end(child)
    if text is None:
        raise NoAnswerError(f"it took more than {seconds:.0f} s")
    if not text.endswith(b"\n"):
        raise NoAnswerError(f"it ended the process with exit code {code}")
    return json.loads(text)


def _answer(ask: Callable[[], Any], writing: int) -> NoReturn:
    try:
        # The parent ends it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(writing, json.dumps(ask()).encode() + b"\n")
    finally:
        os._exit(0)


def _read(reading: int, seconds: float) -> bytes | None:
    """All that is written until a line ends or nothing more can come; None where the time is up before."""
    until, text = time.monotonic() + seconds, b""
    while not text.endswith(b"\n"):
        if not select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
            return None
        found = os.read(reading, _READ_BYTES)
        if not found:
            break
        text += found
    return text


def _end(child: int) -> int:
    """Its exit code; it is killed where it has not ended."""
    # A child that has closed its end is about to end.
    for _ in range(10):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
