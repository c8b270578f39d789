"""The processes of a campaign: they are spawned, watched from outside, stopped and replaced here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import wait

from statecheck.campaign.processes.gpus import Gpus
from statecheck.campaign.processes.handle import WorkerHandle, spawn_worker
from statecheck.campaign.processes.tasks import Event, Setting
from statecheck.workers import limits


class WorkerPool:
    """The workers that a campaign has at the moment.

    Args:
        setting: of all workers, but for their device.
    """

    def __init__(self, setting: Setting, gpus: Gpus) -> None:
        self.setting, self.gpus = setting, gpus
        self.workers: list[WorkerHandle] = []

    @property
    def busy(self) -> list[WorkerHandle]:
        return [worker for worker in self.workers if worker.task is not None]

    def spawn(self) -> WorkerHandle:
        """A worker more, on the usable device with the fewest."""
        gpu = min(self.gpus.usable, key=lambda gpu: sum(worker.gpu is gpu for worker in self.workers))
        worker = spawn_worker(replace(self.setting, share=gpu.address, gpu=gpu.index), gpu)
        self.workers.append(worker)
        return worker

    def stop(self, worker: WorkerHandle) -> None:
        """End a worker; it is no member any more, and its process is gone when this returns."""
        if worker in self.workers:
            self.workers.remove(worker)
            worker.stop()
            worker.close()

    def end(self, worker: WorkerHandle) -> Iterator[Event]:
        """End a worker as `stop` does; what it had sent by then."""
        yield from self._received(worker)
        worker.stop()
        yield from self._received(worker)
        self.workers.remove(worker)
        worker.close()

    def wait(self, seconds: float) -> None:
        """Until a worker sends something, or this time is over."""
        wait(
            [worker.pipe for worker in self.workers if worker.task is not None or not worker.ready],
            timeout=seconds,
        )

    def events(self) -> Iterator[tuple[WorkerHandle, Event]]:
        """What has happened since the last time. A worker that is replaced meanwhile has no further events."""
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
            yield worker.lost()
        elif (event := worker.overdue(self.setting.time_limit)) is not None:
            worker.write_traceback()
            yield event

    @staticmethod
    def _received(worker: WorkerHandle) -> Iterator[Event]:
        try:
            yield from worker.messages()
        except (EOFError, OSError):
            return
