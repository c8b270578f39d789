"""One worker of a campaign as its coordinator has it: a process, a pipe, and a log that shows what it is doing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from statecheck.campaign.plan import ENGINE
from statecheck.campaign.processes.clock import ActivityClock
from statecheck.campaign.processes.gpus import Gpu
from statecheck.campaign.processes.tasks import Setting, Task, WorkerLost, WorkerReady
from statecheck.case.faults import death, hang
from statecheck.workers.forkserver import Fork, Forked, fork_with_pipe, kernels_of
from statecheck.workers.inherited import surroundings
from statecheck.workers.log import Activity, LogReader, State

_STOP_SECONDS = 5.0
START_SECONDS = 180.0
"""What a worker may take to import what it needs."""
_OWN_SECONDS = 180.0
"""How much longer than a call the harness's own work may take: to write a report, or to start a process for the subject."""
_ASKED_SECONDS = 600.0
"""The same where another process is asked, which is started again and compiles kernels, each within a limit of its own."""
_ALIVE_SECONDS = 1.0
_ASKS = "in a condition of a known defect"


@dataclass(eq=False)
class WorkerHandle:
    """A worker, and what it is busy with.

    `ready`: it has imported what it needs. `activity` is what it was doing when it was looked at last.
    """

    process: Forked
    pipe: Connection
    gpu: Gpu
    task: Task | None = None
    ready: bool = False
    activity: Activity = field(default_factory=Activity)

    def __post_init__(self) -> None:
        self.pid = self.process.pid
        self.clock = ActivityClock(self.pid)
        self.log_path: Path | None = None
        self._log: LogReader | None = None
        self._tasks = self._messages = 0
        self._changed = self._looked_at = time.monotonic()

    def assign(self, task: Task) -> None:
        """Send it a task; if it has ended since, that is seen with its next messages."""
        self.task = task
        self._tasks, self._changed = self._tasks + 1, time.monotonic()
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
            received, self._messages, self._changed = True, self._messages + 1, time.monotonic()
            if isinstance(message, WorkerReady):
                self._open(message.log)
            yield message

    def _open(self, log: str) -> None:
        self.ready = True
        with suppress(OSError):
            if log:
                self._log, self.log_path = LogReader(Path(log)), Path(log)

    def look(self) -> float:
        """Seconds that it has been doing what it does, see `ActivityClock`."""
        since, done = self._changed, (self._tasks, self._messages)
        if self._log is not None:
            self.activity = self._log.read()
            since, done = max(since, self.activity.since), (self._tasks, self.activity.number)
        return self.clock.look(done, since)

    def lost(self) -> WorkerLost:
        """What is to be said of it once its process has ended."""
        code = self.process.exitcode
        fault = death(code) if code is not None else None
        asked = f" {_ASKS}" if self.activity.state is State.CONDITION else ""
        # What others have killed is no finding about the subject.
        found = None if fault is None or fault.from_outside else fault
        return WorkerLost(f"a worker died with exit code {code}{asked}", found)

    def overdue(self, time_limit: float) -> WorkerLost | None:
        """What is wrong with it, if it has been doing the same thing for too long.

        Args:
            time_limit: seconds that a call of the subject may take.
        """
        seconds, state = self.look(), self.activity.state
        if self.ready and self.task is None:
            return None
        if self.ready and state is State.CALL:
            late = WorkerLost(f"no answer within {seconds:.0f} s", hang(time_limit))
            return late if seconds > time_limit else None
        limit, when = time_limit, _ASKS
        if not self.ready:
            limit, when = START_SECONDS, "before it was ready"
        elif state is not State.CONDITION and self.clock.stopped:
            when = "while it was stopped"
        elif state is not State.CONDITION:
            limit += _ASKED_SECONDS if state is State.ASKED else _OWN_SECONDS
            when = "outside of a call"
        return WorkerLost(f"a worker did not go on for {seconds:.0f} s {when}") if seconds > limit else None

    @property
    def in_call(self) -> bool:
        """Whether a function of the subject was running when it was looked at last, here or in another process."""
        return self.activity.state in (State.CALL, State.ASKED)

    @property
    def in_example(self) -> bool:
        """Whether it had an example in hand when it was looked at last."""
        return self.activity.state is not State.IDLE

    def has_ended(self) -> bool:
        """Whether its process is gone; it is asked once in a second. A process that it has forked may hold the pipe open."""
        if time.monotonic() - self._looked_at < _ALIVE_SECONDS:
            return False
        self._looked_at = time.monotonic()
        return not self.process.is_alive()

    def stop(self) -> None:
        """Ask it to end where it is idle; it is gone when this returns. Its pipe can still be read."""
        if self.task is None and self.process.is_alive():
            with suppress(BrokenPipeError):
                self.pipe.send(None)
            self.process.join(timeout=_STOP_SECONDS)
        self.process.kill()
        self.look()
        if self._log is not None and self.task is not None:
            with suppress(OSError):
                self._log.put_back()

    def close(self) -> None:
        """Nothing more is read from it."""
        self.pipe.close()
        if self._log is not None:
            self._log.close()


def spawn_worker(setting: Setting, gpu: Gpu) -> WorkerHandle:
    """A new worker on the device."""
    worker = Fork(ENGINE, (surroundings(), setting), name="engine", forks=True)
    return WorkerHandle(*fork_with_pipe(kernels_of(setting.subject, setting.device), worker), gpu)
