"""One worker of a campaign as its coordinator has it: a process and a pipe.

A worker sends something whenever a call of the subject begins, though not more often than every `BEAT_SECONDS`. So the time since its last
message is the time of the call that runs, and a call that holds the interpreter's lock is seen, too.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from statecheck.campaign.plan import ENGINE
from statecheck.campaign.processes.gpus import Gpu
from statecheck.campaign.processes.tasks import (
    BEAT_SECONDS,
    Explore,
    Replay,
    SearchEnded,
    Setting,
    Task,
    WorkerLost,
    WorkerReady,
)
from statecheck.case.faults import death
from statecheck.workers import limits
from statecheck.workers.forkserver import Fork, Forked, fork_with_pipe, kernels_of
from statecheck.workers.inherited import surroundings

_ALIVE_SECONDS = 1.0
_LONGEST_LOOK_SECONDS = 1.0


@dataclass(eq=False)
class WorkerHandle:
    """A worker, and what it is busy with.

    `ready`: it has imported what it needs. `isolated`: the subject never runs in its own process. `silence`: seconds since its last message.
    """

    process: Forked
    pipe: Connection
    gpu: Gpu
    task: Task | None = None
    ready: bool = False
    isolated: bool = False
    silence: float = 0.0

    def __post_init__(self) -> None:
        self.pid = self.process.pid
        self._searches = False
        self._looked_at = self._asked_at = time.monotonic()

    def assign(self, task: Task) -> None:
        """Send it a task; if it has ended since, that is seen with its next messages."""
        self.task = task
        # An isolated exploration or replay runs the subject in another process, and the worker waits for that.
        self._searches = not self.isolated and not (isinstance(task, Explore | Replay) and task.isolated)
        self._restart_clock()
        with suppress(BrokenPipeError):
            self.pipe.send(task)

    def messages(self) -> Iterator[Any]:
        """All that it has sent until now.

        Raises:
            EOFError: it has ended, and nothing is left to be read.
        """
        received = False
        while self.pipe.poll():
            try:
                message = self.pipe.recv()
            except (EOFError, OSError):
                if not received:
                    raise EOFError from None
                return
            received = True
            self._restart_clock()
            if isinstance(message, WorkerReady):
                self.ready = True
            elif isinstance(message, SearchEnded):
                self._searches = False
            yield message

    def _restart_clock(self) -> None:
        self.silence, self._looked_at = 0.0, time.monotonic()

    def lost(self) -> WorkerLost:
        """How it was lost, once its process has ended."""
        code = self.process.exitcode
        return WorkerLost(
            f"a worker died with exit code {code}",
            from_outside=code is not None and death(code).from_outside,
        )

    def overdue(self, time_limit: float) -> WorkerLost | None:
        """How it is lost, if it has been silent for too long.

        Args:
            time_limit: seconds that a call of the subject may take.
        """
        now = time.monotonic()
        # While the coordinator itself was stopped, it could not read what the worker sent.
        self.silence += min(now - self._looked_at, _LONGEST_LOOK_SECONDS)
        self._looked_at = now
        if not self.ready:
            limit, what = limits.CAMPAIGN_START, "a worker was not ready"
        elif self.task is None:
            return None
        elif self._searches:
            limit, what = time_limit + BEAT_SECONDS, "no answer"
        else:
            limit, what = time_limit + limits.OTHER_WORK, "a worker did not go on"
        return WorkerLost(f"{what} within {limit:.3g} s") if self.silence > limit else None

    def write_traceback(self) -> None:
        """Have it write to its output where it is, and end. It does so in C, whatever its interpreter is doing."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
            self.process.join(timeout=limits.TRACEBACK)

    def has_ended(self) -> bool:
        """Whether its process is gone; it is asked once in a second. A process that it has forked may hold the pipe open."""
        if time.monotonic() - self._asked_at < _ALIVE_SECONDS:
            return False
        self._asked_at = time.monotonic()
        return not self.process.is_alive()

    def stop(self) -> None:
        """Ask it to end where it is idle; it is gone when this returns. Its pipe can still be read."""
        if self.task is None and self.process.is_alive():
            with suppress(BrokenPipeError):
                self.pipe.send(None)
            self.process.join(timeout=limits.EXIT)
        self.process.kill()

    def close(self) -> None:
        """Nothing more is read from it."""
        self.pipe.close()


def spawn_worker(setting: Setting, gpu: Gpu) -> WorkerHandle:
    """A new worker on the device."""
    worker = Fork(ENGINE, (surroundings(), setting), name="engine", forks=True)
    process, pipe = fork_with_pipe(kernels_of(setting.subject, setting.device), worker)
    return WorkerHandle(process, pipe, gpu, isolated=setting.in_worker)
