"""Tells the coordinator every second that a worker is alive, and writes down an example that takes long.

A subject that hangs in this process can be ended from outside only, and then its input would be lost. Time in which other
processes had the CPU does not count: a call that waits for its turn on a busy machine does not hang.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from properties.harness.campaign.workers.tasks import Busy
from properties.harness.device.log import StepLog
from properties.harness.execution.example import Trial

_BEAT_SECONDS = 1.0
_LONG_SECONDS = 2.0


def waited(thread: int) -> float:
    """Seconds in which a thread of this process could have run, and others did; 0 where the system does not tell."""
    try:
        told = Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii").split()
        return int(told[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class LockedPipe:
    """A pipe that several threads may send through."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def send(self, message: Any) -> None:
        with self._lock:
            self._pipe.send(message)


class Watchdog:
    """Watches one worker, in the thread that makes this.

    Args:
        open_log: makes the log of the example in hand.
    """

    def __init__(self, line: LockedPipe, open_log: Callable[[], StepLog]) -> None:
        self._line, self._open_log = line, open_log
        self._lock = threading.Lock()
        self._trial: Trial | None = None
        self._since = 0.0
        self._log: StepLog | None = None
        self._ended = threading.Event()
        self._watched = threading.get_native_id()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self.rest()

    def step(self, trial: Trial) -> None:
        """A step of an example begins."""
        # In this order: `_write` opens a log only if the trial is still the one that it saw.
        self._trial, self._since = trial, time.monotonic()
        if self._log is not None:
            self._drop()

    def rest(self) -> None:
        """No example is in hand."""
        self._trial = None
        if self._log is not None:
            self._drop()

    def _watch(self) -> None:
        at, before, begun, lost = time.monotonic(), waited(self._watched), 0.0, 0.0
        while not self._ended.wait(_BEAT_SECONDS):
            trial, since = self._trial, self._since
            last, at, was = at, time.monotonic(), before
            before = waited(self._watched)
            lost = (lost if since == begun else 0.0) + min(before - was, at - max(since, last))
            begun = since
            seconds = max(at - since - lost, 0.0) if trial is not None else 0.0
            if trial is not None and seconds > _LONG_SECONDS:
                self._write(trial)
            with suppress(OSError, ValueError):
                self._line.send(Busy(seconds))

    def _write(self, trial: Trial) -> None:
        with self._lock:
            if self._log is None and trial is self._trial and trial.begun:
                with suppress(OSError, ValueError):
                    self._log = self._open_log()
                    self._log.note(trial.begun)

    def _drop(self) -> None:
        with self._lock:
            if self._log is not None:
                with suppress(OSError):
                    self._log.close()
            self._log = None
