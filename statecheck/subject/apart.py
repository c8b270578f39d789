"""Code of a subject, run in a child of this process: what ends or keeps the child would end or keep this process."""

from __future__ import annotations

import json
import multiprocessing
import signal
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_FORKED = multiprocessing.get_context("fork")
_SECONDS_TO_END = 0.1


class NoAnswerError(Exception):
    """The child ended before it had an answer, or had none in time."""


def answer_apart(ask: Callable[[], Any], seconds: float) -> Any:
    """What `ask` returns in a child process that is forked for it, as JSON has it.

    Raises:
        NoAnswerError: it raised, ended the child, or took longer than `seconds`.
    """
    reading, writing = _FORKED.Pipe(duplex=False)
    child = _FORKED.Process(target=_answer, args=(ask, writing))
    with warnings.catch_warnings():
        # Python warns where there are threads; the child asks, and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    writing.close()
    try:
        if not reading.poll(seconds):
            raise NoAnswerError(f"it took more than {seconds:.0f} s")
        return json.loads(reading.recv_bytes())
    except EOFError:
        child.join()
        raise NoAnswerError(f"it ended the process with exit code {child.exitcode}") from None
    finally:
        reading.close()
        child.join(_SECONDS_TO_END)
        child.kill()
        child.join()


def _answer(ask: Callable[[], Any], writing: Connection) -> None:
    # The parent ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    writing.send_bytes(json.dumps(ask()).encode())
