"""What becomes of a campaign's tasks: events of workers, applied to its state, its scheduler and its pool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from statecheck.campaign.processes.handle import WorkerHandle
from statecheck.campaign.processes.pool import WorkerPool
from statecheck.campaign.processes.tasks import (
    CanaryResult,
    DeviceLost,
    Event,
    ExampleFailed,
    ExamplesRun,
    Explore,
    Explored,
    Replay,
    Replayed,
    RunCanary,
    WorkerLost,
    WorkerReady,
)
from statecheck.campaign.record import CorpusRecord
from statecheck.campaign.recovery import Recovery
from statecheck.campaign.scheduler import Scheduler
from statecheck.diagnose.replay import LEFT_OUT

if TYPE_CHECKING:
    from statecheck.campaign.coordinator import Campaign

_ATTEMPTS = 3
"""Workers that may end with the same task before it is given up."""


class EventHandler:
    """Applies events; `conclude` says at the end which properties could not be explored to the end."""

    def __init__(
        self,
        campaign: Campaign,
        pool: WorkerPool,
        scheduler: Scheduler,
        recovery: Recovery,
    ) -> None:
        self._campaign, self._pool = campaign, pool
        self._plan, self._state = campaign.plan, campaign.state
        self._scheduler, self._recovery = scheduler, recovery
        self._canary_attempts = self._failed_starts = 0

    def apply(self, worker: WorkerHandle, event: Event) -> None:
        """Apply an event of a worker."""
        match event:
            case ExamplesRun():
                if isinstance(worker.task, Explore):
                    self._state.progress(worker.task.unit, event.examples, event.compared)
            case ExampleFailed():
                self._state.note_failure(self._campaign.at)
            case Explored() | Replayed() | CanaryResult():
                self._end_task(worker, event)
            case WorkerReady():
                self._failed_starts = 0
            case DeviceLost():
                self._lose_device(worker, event.why)
            case WorkerLost():
                # With its device it is retired.
                if not worker.gpu.gone:
                    self._end_worker(worker, event)

    # Tasks that workers end.

    def _end_task(self, worker: WorkerHandle, event: Explored | Replayed | CanaryResult) -> None:
        task, worker.task = worker.task, None
        if isinstance(event, Explored) and isinstance(task, Explore):
            self._apply_exploration(worker, task, event)
        elif isinstance(event, Replayed) and isinstance(task, Replay):
            self._state.launched += event.launched
            self._state.replayed(event.result, Path(task.path), event.case)
        elif isinstance(event, CanaryResult):
            self._apply_canary(event)

    def _apply_exploration(self, worker: WorkerHandle, task: Explore, event: Explored) -> None:
        self._state.explored(event, self._campaign.at, task.unit, isolated=task.isolated)
        self._state.property_states[task.unit].end()
        self._scheduler.ended(task, event)
        if event.gone:
            self._lose_device(worker, event.gone)
        elif event.status == "error":
            self._try_again(worker, task, event.detail)

    def _try_again(self, worker: WorkerHandle, task: Explore, detail: str) -> None:
        """An example ended in an exception that neither the subject nor the property raised: an earlier example may have left its cause in that process."""
        if self._state.property_states[task.unit].errors == 1:
            last = (detail.strip().splitlines() or ["an error"])[-1]
            self._state.trouble(f"{task.unit}: tried again in another worker (seed {task.seed}): {last}")
            self._scheduler.again(task)
        self._stop(worker)
        self._replace(worker)

    def _stop(self, worker: WorkerHandle) -> str:
        """End a worker; what it has written last, and its traceback."""
        self._pool.stop(worker)
        return self._recovery.output(worker)

    def _apply_canary(self, event: CanaryResult) -> None:
        self._state.record.canary = event.found
        if event.why:
            self._state.trouble(f"the canary was not found: {event.why}")

    def _lose_device(self, worker: WorkerHandle, why: str) -> None:
        if worker.gpu.gone:
            return
        gpus = self._pool.gpus
        worker.gpu.gone, name = why, gpus.name_of(worker.gpu)
        rest = "others go on" if gpus.usable else "there is no other"
        self._state.trouble(f"{name} is gone after {self._campaign.at:.0f} s, and {rest}: {why}")

    def retire(self) -> None:
        """End the workers of devices that are gone."""
        for worker in [worker for worker in self._pool.workers if worker.gpu.gone]:
            self._stop(worker)
            if isinstance(worker.task, Explore):
                self._leave(worker, worker.task, "its device was lost")
            elif worker.task is not None:
                self._scheduler.put_first(worker.task)

    # Workers that end before their tasks do.

    def _end_worker(self, worker: WorkerHandle, lost: WorkerLost) -> None:
        """End a worker, keep what it had in hand, and replace it."""
        output, why = self._stop(worker), lost.why
        task, worker.task = worker.task, None
        if isinstance(task, Explore):
            self._explore_again(worker, task, lost, output)
        elif isinstance(task, Replay):
            self._state.trouble(f"{Path(task.path).name} of the corpus: {why}")
            if task.isolated:
                path = Path(task.path)
                self._state.replayed(CorpusRecord(path.name, "UNREADABLE", why), path, {})
            else:
                # A case that ends its worker, or has no answer in time, does so in an isolated process, too, unless another process ended it.
                self._scheduler.put_first(replace(task, isolated=True))
        elif isinstance(task, RunCanary):
            self._end_canary(task, why)
        elif not worker.ready:
            self._failed_starts += 1
            wrote = output.partition("\n")[0]
            self._state.trouble("; ".join(filter(None, (f"{why} before it was ready", wrote))))
        else:
            self._state.trouble(f"{why} between two tasks")
        self._replace(worker)

    def _explore_again(self, worker: WorkerHandle, task: Explore, lost: WorkerLost, output: str) -> None:
        """Have the same examples explored with the subject in an isolated process, whose input is known before each call."""
        self._leave(worker, task, lost.why)
        property_state = self._state.property_states[task.unit]
        property_state.deaths += 1
        ended = f"{lost.why} (seed {task.seed})"
        self._state.trouble(f"{task.unit}: {ended}")
        ended = "\n".join(filter(None, (ended, output)))
        if not lost.from_outside:
            property_state.crash, property_state.crash_repeats = ended, 0
        if property_state.deaths >= _ATTEMPTS:
            property_state.give_up(f"{property_state.deaths} workers were lost; the last: {ended}")
        else:
            self._scheduler.again(replace(task, isolated=True))

    def _end_canary(self, task: RunCanary, why: str) -> None:
        self._canary_attempts += 1
        if self._canary_attempts >= _ATTEMPTS:
            self._apply_canary(CanaryResult("", why))
        else:
            self._state.trouble(f"{why} before the canary was found")
            self._scheduler.put_first(task)

    def _replace(self, worker: WorkerHandle) -> None:
        may_start = self._failed_starts < _ATTEMPTS * self._plan.engines
        is_needed = self._campaign.left > 0 or self._scheduler.canary_waits
        if not worker.gpu.gone and may_start and is_needed:
            self._pool.spawn()

    def _leave(self, worker: WorkerHandle, task: Explore, why: str) -> int:
        """No worker does the task any more; how many failing inputs were in hand, which are findings now."""
        self._state.property_states[task.unit].end()
        self._scheduler.ended(task, None)
        # What it was doing by then is not known: the input may be the smallest.
        note = f"{why[:1].upper()}{why[1:]} before this failure was reported: there may be a smaller input."
        return self._recovery.find_pending(worker, note, self._campaign.at)

    # The end of the campaign.

    def cut_short(self, worker: WorkerHandle) -> None:
        """The campaign has ended, and so has a worker that was busy."""
        task, worker.task = worker.task, None
        self._recovery.output(worker)
        if isinstance(task, Replay):
            path = Path(task.path)
            self._state.replayed(
                self._scheduler.passed_over(path, LEFT_OUT, "left out: the time was up"), path, {}
            )
        if not isinstance(task, Explore):
            return
        found = self._leave(worker, task, "the campaign ended")
        if not (found or self._campaign.record.interrupted):
            property_state = self._state.property_states[task.unit]
            property_state.unfinished = (
                f"an example was still running when the time was up (seed {task.seed})"
            )

    def conclude(self) -> None:
        """Note the properties that were to be explored again, and were not."""
        for task in [] if self._campaign.record.interrupted else self._scheduler.lost:
            property_state = self._state.property_states[task.unit]
            property_state.unfinished = "its exploration was lost, and there was no time for another one"
