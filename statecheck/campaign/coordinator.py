"""A campaign on one machine, short or all night: one process that assigns tasks to workers and applies their events to its state.

First the workers start, which takes nothing of the budget. Then the corpus is replayed; then every property gets an example or a few,
and rounds follow until the time is up. The canary runs first in a short campaign, and after three seconds in a longer one.

When the budget ends, no new example begins, and those that run get their full time limit. A worker that is silent for longer than a call
may take, or dies, is ended, and its exploration is repeated in an isolated process, which knows the input of each call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from statecheck.campaign.event_handler import EventHandler
from statecheck.campaign.keeper import not_written
from statecheck.campaign.pending import pending_of
from statecheck.campaign.plan import Plan
from statecheck.campaign.processes.gpus import Gpus
from statecheck.campaign.processes.handle import WorkerHandle
from statecheck.campaign.processes.pool import WorkerPool
from statecheck.campaign.processes.tasks import Explore, Setting
from statecheck.campaign.record import FILE, NOT_REPLAYED, CampaignRecord
from statecheck.campaign.recovery import Recovery
from statecheck.campaign.scheduler import GRACE_SECONDS, Scheduler
from statecheck.campaign.start import begun, terminated_like_interrupted, uninterrupted
from statecheck.workers import limits

_POLL_SECONDS = 0.2
_FIRST_SECONDS, _SAVE_SECONDS, _SHOW_SECONDS = 3.0, 10.0, 0.2

Watch = Callable[["Campaign"], None]


def run(plan: Plan, watch: Watch | None = None) -> CampaignRecord:
    """Run one shard on this machine to its end; its folder `reports/campaigns/<name>/` holds what is known.

    Args:
        watch: called several times a second with the campaign.

    Raises:
        ValueError: a plan that cannot be carried out.
    """
    return Campaign(plan, watch or (lambda campaign: None)).run()


class Campaign:
    """A campaign while it runs."""

    def __init__(self, plan: Plan, watch: Watch) -> None:
        self.plan, self.watch = plan, watch
        self.folder = plan.folder
        self.pending = pending_of(self.folder)
        start = begun(plan)
        self.state, self.defects = start.state, start.defects
        self.record = self.state.record
        self._started: float | None = None
        self._ended: float | None = None
        self._scheduler = Scheduler(plan, self.state, start.examples)
        self.exhaustion = self._scheduler.exhaustion
        self._recovery = Recovery(self.folder, self.state, self.defects)
        self._save_at, self._shown_at = time.monotonic() + _FIRST_SECONDS, float("-inf")
        self._saved_buckets = 0
        self._gpus: Gpus
        self._pool: WorkerPool
        self._outcomes: EventHandler

    @property
    def at(self) -> float:
        """Seconds that the campaign has run; none until its workers are ready."""
        if self._started is None:
            return 0.0
        now = self._ended if self._ended is not None else time.monotonic()
        return max(0.0, now - self._started)

    @property
    def left(self) -> float:
        """Seconds of the budget; none where the first failure is enough, and has its report."""
        if self.plan.exit_first and self.state.buckets:
            return 0.0
        return float("inf") if self.plan.budget is None else self.plan.budget - self.at

    def run(self) -> CampaignRecord:
        """Run to the end of the budget; Ctrl-C ends it early with what is known by then."""
        plan, found = self.plan, tuple(self.state.first_seen.items())
        setting = Setting(**vars(plan), pending=str(self.pending), first_seen=found)
        self._recovery.adopt()
        self._scheduler.begin(self.folder, self.state.names if plan.is_selective else None)
        self._gpus = Gpus(plan.device, plan.subject, plan.gpus, setting.in_worker, plan.workers)
        self._pool = WorkerPool(setting, self._gpus)
        self._outcomes = EventHandler(self, self._pool, self._scheduler, self._recovery)
        try:
            with terminated_like_interrupted():
                for _ in range(plan.engines):
                    # One by one: each goes where the fewest are.
                    self._pool.spawn()
                self._warm_up()
                self._loop()
        except KeyboardInterrupt:
            self.record.interrupted = True
        finally:
            with uninterrupted():
                self._end()
        return self.current()

    def _warm_up(self) -> None:
        """Wait until the workers are ready; the clock starts then."""
        until = time.monotonic() + limits.CAMPAIGN_START
        spawned = list(self._pool.workers)
        while time.monotonic() < until and not all(worker.ready for worker in self._pool.workers):
            self._pool.wait(_POLL_SECONDS)
            for worker, event in self._pool.events():
                self._outcomes.apply(worker, event)
            self._outcomes.retire()
            if self._pool.workers != spawned:
                # A worker has ended; another one may take as long again.
                break
        self._started = time.monotonic()

    def _loop(self) -> None:
        while True:
            for trouble in self._gpus.watch():
                self.state.trouble(trouble)
            self._outcomes.retire()
            for worker in self._pool.workers:
                if worker.ready and worker.task is None:
                    self._assign(worker)
            if self._is_over():
                return
            self._pool.wait(_POLL_SECONDS)
            for worker, event in self._pool.events():
                self._outcomes.apply(worker, event)
            self._show()

    def _assign(self, worker: WorkerHandle) -> None:
        task = self._scheduler.next(worker, self._pool.workers, self.at, self.left)
        self.record.rounds = self._scheduler.rounds
        if task is None:
            return
        if isinstance(task, Explore):
            self.state.property_states[task.unit].begin()
        worker.assign(task)

    def _is_over(self) -> bool:
        """Whether there is nothing to wait for: no worker is busy, or those that are have had their time."""
        busy, over = self._pool.busy, -self.left
        has_time = over < 0 or (over < GRACE_SECONDS and self._scheduler.canary_waits)
        if has_time and not all(worker.ready for worker in self._pool.workers):
            return False
        if not busy or over > GRACE_SECONDS + limits.LAST_CALLS * self.plan.time_limit:
            return True
        # Where a failing input is on disk, its report may be cut short.
        return over > GRACE_SECONDS and all(map(self._recovery.has_pending, busy))

    def _end(self) -> None:
        self._ended = time.monotonic()
        for worker in list(self._pool.workers):
            for event in self._pool.end(worker):
                self._outcomes.apply(worker, event)
            self._outcomes.cut_short(worker)
        self._gpus.close()
        self._outcomes.conclude()
        self._recovery.restore()
        for path in self._scheduler.not_replayed:
            why = "since the campaign was interrupted" if self.record.interrupted else "for want of time"
            self.state.replayed(self._scheduler.passed_over(path, NOT_REPLAYED, why), path, {})
        if self._scheduler.canary_waits:
            self.state.trouble("the canary was not run: the campaign ended before its turn")
        self.record.complete = bool(self._gpus.usable) and not self.record.interrupted and self._is_done()
        self.defects.conclude(self.state.property_states)
        with suppress(OSError):
            # Where there is nothing left in it.
            self.pending.rmdir()
        self._save()

    def _is_done(self) -> bool:
        if self.plan.exit_first and self.state.buckets:
            return False
        return (
            self.plan.budget is not None
            or self.state.examples >= (self.plan.examples or 0)
            or not any(property_state.open for property_state in self.state.property_states.values())
        )

    def _show(self) -> None:
        now = time.monotonic()
        # What people have been shown must not be forgotten in a crash.
        if now > self._save_at or len(self.state.buckets) > self._saved_buckets:
            self._save_at, self._saved_buckets = now + _SAVE_SECONDS, len(self.state.buckets)
            self._save()
        if now - self._shown_at > _SHOW_SECONDS:
            self._shown_at = now
            self.watch(self)

    def current(self) -> CampaignRecord:
        """What is known by now."""
        self.record.seconds = round(self.at, 3)
        self.defects.count(self.state.property_states)
        return self.state.current()

    def _save(self) -> None:
        from statecheck.report.environment import environment

        # Not at the start, since versions and the revision take .05 s.
        self.record.environment = self.record.environment or environment()
        try:
            self.current().save(self.folder / FILE)
        except OSError as error:
            self.state.trouble(not_written(self.folder / FILE, error))
