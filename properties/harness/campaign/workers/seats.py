"""The workers of a campaign, each a process with a pipe, on one of the campaign's devices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from properties.harness.campaign.plan import ENGINE
from properties.harness.campaign.workers.gpus import Gpu
from properties.harness.campaign.workers.tasks import Setting, Task
from properties.harness.device.crew import surroundings
from properties.harness.device.fork_wire import Fork
from properties.harness.device.forkserver import Forked, fork

_STOP_SECONDS = 5.0


@dataclass(eq=False)
class Seat:
    """A worker, and what it is busy with.

    `ready`: it has imported what it needs. `heard` is when it was heard of last, `stuck` for how long it had been at one step of an
    example by then, in seconds.
    """

    process: Forked
    pipe: Connection
    gpu: Gpu
    task: Task | None = None
    ready: bool = False
    heard: float = field(default_factory=time.monotonic)
    stuck: float = 0.0

    def give(self, task: Task) -> None:
        self.task, self.stuck = task, 0.0
        self.heard = time.monotonic()
        # One that has died since is found out when it is listened to.
        with suppress(BrokenPipeError):
            self.pipe.send(task)

    def messages(self) -> Iterator[Any]:
        """All that it has said until now.

        Raises:
            EOFError: it is gone, and has said nothing more.
        """
        said = False
        while self.pipe.poll():
            try:
                yield self.pipe.recv()
            except (EOFError, OSError):
                if not said:
                    raise EOFError from None
                return
            said = True

    def dismiss(self) -> None:
        """Ask it to stop where it is idle; it is gone when this returns."""
        if self.task is None and self.process.is_alive():
            with suppress(BrokenPipeError):
                self.pipe.send(None)
            self.process.join(timeout=_STOP_SECONDS)
        self.process.kill()


def hired(setting: Setting, gpu: Gpu) -> Seat:
    """A new worker on the device."""
    engine = Fork(ENGINE, (surroundings(), setting), name="engine", forks=True)
    server, pid, end = fork(setting.device, engine)
    return Seat(Forked(server, pid), Connection(end.detach()), gpu)
