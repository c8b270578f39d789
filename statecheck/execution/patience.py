"""How long the rules may think about one case: a few bytes can ask for a list of as many entries as there are atoms."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from statecheck.case.values import Call, Expected, Value
from statecheck.execution.run import Expectation

RULES_SECONDS = 3.0
"""Of a processor's time, for all calls of a case. The rules take milliseconds for any case that a strategy draws."""


class TooLong(Exception):
    """The rules have not come to an answer."""


class Patient:
    """The rules, as long as they take no more of a processor's time than `seconds` for all calls together.

    Raises:
        TooLong: they have not come to an answer by then.
    """

    def __init__(self, expect: Expectation, seconds: float = RULES_SECONDS) -> None:
        self._expect, self._seconds, self._left = expect, seconds, seconds

    def __call__(self, call: Call, known: Mapping[str, Value]) -> Expected:
        began = time.process_time()
        try:
            with _raising(self._left, f"the rules took more than {self._seconds:g} s for {call.function}"):
                return self._expect(call, known)
        finally:
            self._left -= time.process_time() - began


@contextmanager
def _raising(seconds: float, message: str) -> Iterator[None]:
    """While it is entered, `TooLong` after so many seconds; not outside of the main thread, which alone hears signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(*_: object) -> None:
        raise TooLong(message)

    # What is raised while garbage is collected is lost: Hypothesis has Python call it then.
    collects = gc.isenabled()
    gc.disable()
    # A processor's time, not the clock's: how busy the machine is must not decide what a case is.
    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, max(seconds, 0.001))
    try:
        yield
    finally:
        # In this order: a signal without a handler ends the process.
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
        if collects:
            gc.enable()
