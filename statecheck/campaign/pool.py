"""The processes of a campaign as its coordinator has them: workers are spawned, watched from outside, stopped and replaced here.

A worker sends something whenever a call of the subject begins, though not more often than every `BEAT_SECONDS`. So the time since its last
message is the time of the call that runs, and a call that holds the interpreter's lock is seen, too.
"""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from statecheck.campaign.plan import ENGINE
from statecheck.campaign.tasks import (
    BEAT_SECONDS,
    Event,
    Explore,
    Replay,
    RunCanary,
    SearchEnded,
    Setting,
    Task,
    WorkerLost,
    WorkerReady,
)
from statecheck.case.raised import death
from statecheck.report.environment import gpus_here
from statecheck.util import limits
from statecheck.workers.forkserver import CoreWaits, Fork, Forked, fork_with_pipe, kernels_of, surroundings

_ALIVE_SECONDS = 1.0
_LONGEST_LOOK_SECONDS = 1.0
_SILENCE_SECONDS = 0.5
"""A worker that is silent for less is not asked whether it had a core."""
_MOST_EXCUSED = 0.95
"""The share of a silence that may be waits for a core: of many threads that spin, some thread waits always."""


class WorkerPool:
    """The workers that a campaign has at the moment.

    Args:
        setting: of all workers, but for their device.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.workers: list[WorkerHandle] = []
        self.gpus = [Gpu(index) for index in setting.gpus or ("",)]

    @property
    def usable(self) -> list[Gpu]:
        return [gpu for gpu in self.gpus if not gpu.gone]

    @property
    def busy(self) -> list[WorkerHandle]:
        return [worker for worker in self.workers if worker.task is not None]

    def spawn(self) -> WorkerHandle:
        """Start another worker on the usable device with the fewest workers."""
        gpu = min(self.usable, key=lambda gpu: sum(worker.gpu is gpu for worker in self.workers))
        worker = spawn_worker(replace(self.setting, gpu=gpu.index), gpu)
        self.workers.append(worker)
        return worker

    def stop(self, worker: WorkerHandle) -> None:
        """End a worker and remove it from the pool; its process is gone when this returns."""
        if worker in self.workers:
            self.workers.remove(worker)
            worker.stop()
            worker.pipe.close()

    def end(self, worker: WorkerHandle) -> Iterator[Event]:
        """End a worker as `stop` does, and yield the events that it had sent by then."""
        with suppress(EOFError, OSError):
            yield from worker.messages()
        worker.stop()
        with suppress(EOFError, OSError):
            yield from worker.messages()
        self.workers.remove(worker)
        worker.pipe.close()

    def wait(self, seconds: float) -> None:
        """Wait until a worker sends something, or this time is over."""
        wait(
            [worker.pipe for worker in self.workers if worker.task is not None or not worker.ready],
            timeout=seconds,
        )

    def events(self) -> Iterator[tuple[WorkerHandle, Event]]:
        """The events since the last call. A worker that is replaced meanwhile has no further events."""
        for worker in list(self.workers):
            for event in self._events_of(worker):
                yield worker, event
                if worker not in self.workers:
                    break

    def _events_of(self, worker: WorkerHandle) -> Iterator[Event]:
        ended = worker.has_ended()
        try:
            yield from worker.messages()
        except (EOFError, OSError):
            ended = True
        if ended:
            # A pipe ends a moment before its process does, and there is no exit code until then.
            worker.process.join(timeout=limits.EXIT)
            code = worker.process.exitcode
            from_outside = code is not None and death(code).from_outside
            yield WorkerLost(f"a worker died with exit code {code}", from_outside=from_outside)
        elif (event := worker.overdue(self.setting.time_limit)) is not None:
            # Have it write to its output where it is, and end. It does so in C, whatever its interpreter is doing.
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGUSR1)
                worker.process.join(timeout=limits.TRACEBACK)
            yield event


def spawn_worker(setting: Setting, gpu: Gpu) -> WorkerHandle:
    """A new worker on the device."""
    worker = Fork(ENGINE, (surroundings(), setting), name="engine", forks=True)
    process, pipe = fork_with_pipe(kernels_of(setting.subject, setting.device), worker)
    return WorkerHandle(process, pipe, gpu, isolated=setting.in_worker)


@dataclass(eq=False)
class WorkerHandle:
    """A worker, and the task that it is busy with.

    `ready`: it has imported what it needs. `isolated`: the subject never runs in its own process. `silence`: seconds since its last message, but those without a core.
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
        self._asked_at = time.monotonic()
        self._restart_clock()

    def assign(self, task: Task) -> None:
        """Send it a task; if it has ended since, that is seen with its next messages."""
        self.task = task
        # An isolated exploration or replay runs the subject in another process, and the worker waits for that.
        self._searches = not self.isolated and not (isinstance(task, Explore | Replay) and task.isolated)
        self._restart_clock()
        with suppress(BrokenPipeError):
            self.pipe.send(task)

    def messages(self) -> Iterator[Any]:
        """The messages that it has sent since the last call.

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
        self.silence, self._looked_at, self._passed = 0.0, time.monotonic(), 0.0
        self._waits: CoreWaits | None = None

    def overdue(self, time_limit: float) -> WorkerLost | None:
        """The event that the worker is lost, if it has been silent for too long.

        Args:
            time_limit: seconds that a call of the subject may take.
        """
        now = time.monotonic()
        # While the coordinator itself was stopped, it could not read what the worker sent.
        self._passed += min(now - self._looked_at, _LONGEST_LOOK_SECONDS)
        self._looked_at = now
        if self._passed >= _SILENCE_SECONDS and self._waits is None:
            self._waits = self.process.core_waits()
        most = self._passed * _MOST_EXCUSED
        self.silence = self._passed - (self._waits.look(most) if self._waits else 0.0)
        if not self.ready:
            limit, what = limits.CAMPAIGN_START, "a worker was not ready"
        elif self.task is None:
            return None
        elif isinstance(self.task, RunCanary):
            # The canary sends nothing until its end, and writes a report. The user's limit is for functions of the subject.
            more = BEAT_SECONDS if self._searches else limits.OTHER_WORK
            limit, what = max(time_limit, limits.CALL) + more, "no answer"
        elif self._searches:
            limit, what = time_limit + BEAT_SECONDS, "no answer"
        else:
            limit, what = time_limit + limits.OTHER_WORK, "a worker did not go on"
        return WorkerLost(f"{what} within {limit:.3g} s") if self.silence > limit else None

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


@dataclass(eq=False)
class Gpu:
    """One device. `index` is "" where there is no choice; `gone` says why it can be used no more."""

    index: str
    gone: str = ""


def device_names(device: str, indices: tuple[str, ...]) -> dict[str, str]:
    """What each device is called, by index; {"cpu": ...} without a GPU."""
    if device != "cpu":
        names = {index: name for index, name, _ in gpus_here()}
        return {index: names.get(index, "unknown") for index in (indices or tuple(names)[:1] or ("0",))}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return {"cpu": name}
