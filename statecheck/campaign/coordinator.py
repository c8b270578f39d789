"""A campaign on one machine, short or all night: one process that assigns tasks to workers and applies their events to its state.

`Campaign.run` reads from top to bottom: what earlier campaigns left is adopted, workers start, which takes nothing of the budget, and a
loop gives each idle worker the scheduler's next task and applies what workers send, until the time is up. Then what is on disk and in no
report yet becomes findings, and the record is saved.

When the budget ends, no new example begins, and those that run get their full time limit. A worker that is silent for longer than a call
may take, or dies, is ended, and its exploration is repeated in an isolated process, which knows the input of each call.
"""

from __future__ import annotations

import datetime as dt
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from statecheck.campaign.conformance import profile_of, unsupported, with_xfails
from statecheck.campaign.corpus import (
    CorpusWriter,
    is_unclaimed,
    kept_in,
    not_written,
    pending_cases,
    pending_folder,
)
from statecheck.campaign.plan import Plan
from statecheck.campaign.pool import WorkerHandle, WorkerPool, device_names
from statecheck.campaign.record import FILE, NOT_REPLAYED, CampaignRecord, CorpusRecord
from statecheck.campaign.scheduler import GRACE_SECONDS, Scheduler
from statecheck.campaign.state import CampaignState, KnownDefects
from statecheck.campaign.tasks import (
    CanaryResult,
    DeviceLost,
    Event,
    ExampleFailed,
    ExamplesRun,
    Explore,
    Explored,
    Found,
    Replay,
    Replayed,
    RunCanary,
    Setting,
    WorkerLost,
    WorkerReady,
    unit_name,
)
from statecheck.campaign.worker_output import take_output
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.diagnose.replay import LEFT_OUT
from statecheck.subject import BUILT_IN, Subject, load
from statecheck.subject.loading import SOURCE, source_of
from statecheck.util import limits


def begin(plan: Plan) -> tuple[CampaignState, KnownDefects, CorpusWriter, Mapping[str, int]]:
    """The empty state, the declared defects, the writer of failing cases, and the number of examples that a profile has of each property.

    Raises:
        ValueError: a plan that cannot be carried out.
    """
    from statecheck.campaign.marks import effects, expected
    from statecheck.execution.enumerations import enumerated
    from statecheck.execution.registry import load_properties
    from statecheck.execution.selection import applicable, require_declared_properties, select

    if plan.budget is None and plan.examples is None and not plan.profile:
        raise ValueError("(budget, examples) = (None, None), but should be one of them at least [campaign]")
    subject, tested = with_xfails(plan, loaded(plan.subject, plan.device)), load_properties()
    require_declared_properties(subject)
    offered = enumerated(tested, plan.device) if plan.exhaustive else sorted(tested)
    examples = profile_of(plan.profile).examples(subject) if plan.profile else {}
    if plan.profile:
        offered = [name for name in offered if tested[name].id in examples]
    names = sorted(select(offered, plan.only, tested, subject), key=lambda name: tested[name].launches)
    chosen, skipped = applicable(names, tested, subject, plan.device)
    refused = unsupported(plan, tested)
    skipped = {name: why for name, why in refused.items() if name in names} | skipped
    explored = [name for name in chosen if name not in skipped]
    # The models of a library of sequences, each for itself; those that the port, or the plan's file, declares as unsupported have a reason.
    configurations: dict[str, Sequence[str]] = {}
    choices = subject.sequences
    if choices is not None:
        configurations = {name: choices.all_models for name in explored if tested[name].is_of_library}
        for model in choices.all_models if configurations else ():
            reasons = unsupported(plan, tested, model)
            if why := choices.why_unsupported(model):
                reasons |= dict.fromkeys(configurations, f"declared as unsupported: {why}")
            skipped |= {unit_name(name, model): reasons[name] for name in configurations if name in reasons}
    every, _ = applicable(sorted(tested), tested, subject, plan.device)
    record = CampaignRecord(
        plan,
        release=subject.release,
        devices=device_names(plan.device, plan.gpus),
        began=dt.datetime.now().astimezone().isoformat(timespec="seconds"),
        applicable=sum(name not in refused for name in every),
    )
    state = CampaignState(
        record,
        [tested[name] for name in names],
        skipped,
        lambda: [
            *expected(explored, plan.device),
            *effects(subject, (tested[name].id for name in explored)),
        ],
        first_seen(plan, subject),
        # A corpus that is replayed says for itself which cases it has.
        kept_before=kept_in(Path(plan.kept)) if plan.kept else frozenset(),
        configurations=configurations,
    )
    for name in names:
        if name not in chosen:
            state.property_states[name].record.lacks = tested[name].lacking(subject)
    corpus_writer = CorpusWriter(Path(plan.keeps_in), Path(plan.reports), lambda: subject, state.warn)
    state.corpus_writer = corpus_writer
    defects = KnownDefects(
        subject.known_deviations,
        selected=plan.is_selective,
        tolerates_fixed=plan.tolerates_fixed,
        profile=subject.profile,
    )
    record.known = [*defects.all.values()]
    return state, defects, corpus_writer, examples


def loaded(name: str, device: str) -> Subject:
    """The subject, of whose import nothing reaches the output of the campaign; see `subject.load`.

    Raises:
        ValueError: nothing of that name can be imported, or the import ends the process, or does not end.
    """
    from statecheck.campaign.worker_output import output_dropped
    from statecheck.workers.port import InWorker

    with output_dropped():
        if name.partition("+")[0] not in BUILT_IN and name not in sys.modules:
            with InWorker(name, device, spare=False) as port:
                port.require_import()
        return load(name)


def first_seen(plan: Plan, subject: Subject) -> dict[str, str]:
    """The date and commit of what is found, and which source of the subject it is found in."""
    today = dt.datetime.now().astimezone().date().isoformat()
    return {"date": today, "commit": plan.commit or "unknown", SOURCE: source_of(subject)}


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Take SIGTERM, with which schedulers end a job, and SIGHUP, of a closed terminal, for Ctrl-C.

    Not where they are ignored already, as under nohup.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    with _handled(
        [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN], interrupt
    ):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore signals that ask the campaign to end: it is ending, and writes down what it found."""
    with _handled([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], signal.SIG_IGN):
        yield


@contextmanager
def _handled(numbers: list[signal.Signals], handler: Any) -> Iterator[None]:
    """Set the handler of these signals for a while; outside of the main thread nothing is set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, previous in zip(numbers, before, strict=True):
            signal.signal(number, previous)


_POLL_SECONDS = 0.2
_FIRST_SECONDS, _SAVE_SECONDS, _SHOW_SECONDS = 3.0, 10.0, 0.2
_FILE_TIME_STEP = 0.1
"""Seconds by which the time of a file may lie before the clock's, with room to spare."""
_ATTEMPTS = 3
"""Workers that may end with the same task before it is given up."""

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
        self.pending = pending_folder(self.folder)
        self.state, self.defects, self.corpus_writer, examples = begin(plan)
        self.record = self.state.record
        self._started: float | None = None
        self._ended: float | None = None
        self._scheduler = Scheduler(plan, self.state, examples)
        self.exhaustion = self._scheduler.exhaustion
        self._canary_attempts = self._failed_starts = 0
        self._save_at, self._shown_at = time.monotonic() + _FIRST_SECONDS, float("-inf")
        self._saved_buckets = 0
        self._pool: WorkerPool
        self._interrupted = float("inf")
        """When Ctrl-C came, in seconds since the epoch."""

    @property
    def at(self) -> float:
        """Seconds that the campaign has run; 0 until its workers are ready."""
        if self._started is None:
            return 0.0
        now = self._ended if self._ended is not None else time.monotonic()
        return max(0.0, now - self._started)

    @property
    def left(self) -> float:
        """Seconds of the budget that are left; 0 where the first failure ends the campaign, and has its report."""
        if self.plan.exit_first and self.state.buckets:
            return 0.0
        return float("inf") if self.plan.budget is None else self.plan.budget - self.at

    def run(self) -> CampaignRecord:
        """Run to the end of the budget, or to Ctrl-C; the record."""
        plan = self.plan
        self._adopt()
        self._scheduler.begin(self.folder, self.state.ids if plan.is_selective else None)
        first_seen = tuple(self.state.first_seen.items())
        setting = Setting(**vars(plan), pending=str(self.pending), first_seen=first_seen)
        self._pool = pool = WorkerPool(setting)
        try:
            with terminated_like_interrupted():
                for _ in range(plan.engines):
                    # One by one: each goes where the fewest are.
                    pool.spawn()
                self._warm_up()
                while True:
                    self._retire()
                    for worker in pool.workers:
                        if not worker.ready or worker.task is not None:
                            continue
                        task = self._scheduler.next(worker, pool.workers, self.at, self.left)
                        self.record.rounds = self._scheduler.rounds
                        if isinstance(task, Explore):
                            self.state.property_states[task.unit].begin()
                        if task is not None:
                            worker.assign(task)
                    if self._is_over():
                        break
                    pool.wait(_POLL_SECONDS)
                    for worker, event in pool.events():
                        self._apply(worker, event)
                    self._show()
        except KeyboardInterrupt:
            self.record.interrupted, self._interrupted = True, time.time()
        finally:
            with uninterrupted():
                self._end()
        return self.current()

    def _adopt(self) -> None:
        """Put what campaigns that have ended had in hand into the corpus, from where it is replayed."""
        for campaign in sorted(self.folder.parent.glob("*/")):
            # Its own folder may be that of a campaign of the same name, which has ended.
            if campaign != self.folder and not is_unclaimed(campaign):
                continue
            with suppress(OSError):
                for path, case in pending_cases(pending_folder(campaign)):
                    if self.corpus_writer.keep(case, self.state.first_seen):
                        _remove(path)

    def _warm_up(self) -> None:
        """Wait until the workers are ready; the clock starts then."""
        until = time.monotonic() + limits.CAMPAIGN_START
        spawned = list(self._pool.workers)
        while time.monotonic() < until and not all(worker.ready for worker in self._pool.workers):
            self._pool.wait(_POLL_SECONDS)
            for worker, event in self._pool.events():
                self._apply(worker, event)
            self._retire()
            if self._pool.workers != spawned:
                # A worker has ended; another one may take as long again.
                break
        self._started = time.monotonic()

    def _is_over(self) -> bool:
        """Whether there is nothing to wait for: no worker is busy, or those that are have had their time."""
        busy, over = self._pool.busy, -self.left
        has_time = over < 0 or (over < GRACE_SECONDS and self._scheduler.canary_waits)
        if has_time and not all(worker.ready for worker in self._pool.workers):
            return False
        if not busy or over > GRACE_SECONDS + limits.LAST_CALLS * self.plan.time_limit:
            return True
        # Where a failing input is on disk, its report may be cut short.
        return over > GRACE_SECONDS and all(any(pending_cases(self.pending, worker.pid)) for worker in busy)

    # What workers send.

    def _apply(self, worker: WorkerHandle, event: Event) -> None:
        state = self.state
        match event:
            case WorkerReady():
                self._failed_starts = 0
            case ExamplesRun():
                if isinstance(worker.task, Explore):
                    state.progress(worker.task.unit, event.examples, event.compared)
            case ExampleFailed() if not self.record.interrupted:
                state.note_failure(self.at)
                if isinstance(worker.task, Explore):
                    state.property_states[worker.task.unit].failing = True
            case Explored():
                task, worker.task = worker.task, None
                if isinstance(task, Explore):
                    self._apply_exploration(worker, task, event)
            case Replayed():
                task, worker.task = worker.task, None
                if isinstance(task, Replay):
                    state.launched += event.launched
                    state.replayed(event.result, Path(task.path), event.case)
            case CanaryResult():
                worker.task = None
                self._note_canary(event)
            case DeviceLost():
                self._lose_device(worker, event.why)
            case WorkerLost():
                # With its device it is retired.
                if not worker.gpu.gone:
                    self._end_worker(worker, event)

    def _apply_exploration(self, worker: WorkerHandle, task: Explore, event: Explored) -> None:
        property_state = self.state.property_states[task.unit]
        self.state.explored(event, self.at, task.unit, isolated=task.isolated)
        property_state.end()
        self._scheduler.ended(task, event)
        if event.gone:
            self._lose_device(worker, event.gone)
        elif event.status == "error":
            # An example ended in an exception that neither the subject nor the property raised: an earlier example may have left its cause
            # in that process.
            if property_state.errors == 1:
                last = (event.detail.strip().splitlines() or ["an error"])[-1]
                self.state.warn(f"{task.unit}: tried again in another worker (seed {task.seed}): {last}")
                self._scheduler.again(task)
            self._stop(worker)
            self._replace(worker)

    def _note_canary(self, result: CanaryResult) -> None:
        self.record.canary = result.found
        if result.why:
            self.state.warn(f"the canary was not found: {result.why}")

    def _lose_device(self, worker: WorkerHandle, why: str) -> None:
        if worker.gpu.gone:
            return
        worker.gpu.gone = why
        name = f"GPU {worker.gpu.index}" if worker.gpu.index else self.plan.device
        rest = "others go on" if self._pool.usable else "there is no other"
        self.state.warn(f"{name} is gone after {self.at:.0f} s, and {rest}: {why}")

    def _retire(self) -> None:
        """End the workers of devices that are gone."""
        for worker in [worker for worker in self._pool.workers if worker.gpu.gone]:
            self._stop(worker)
            if isinstance(worker.task, Explore):
                self._leave(worker, worker.task, "its device was lost")
            elif worker.task is not None:
                self._scheduler.put_first(worker.task)

    def _end_worker(self, worker: WorkerHandle, lost: WorkerLost) -> None:
        """End a worker that has died, or does not go on; keep what it had in hand, have its task done again, and replace it."""
        output, why = self._stop(worker), lost.why
        task, worker.task = worker.task, None
        if isinstance(task, Explore):
            self._explore_again(worker, task, lost, output)
        elif isinstance(task, Replay):
            path = Path(task.path)
            self.state.warn(f"{path.name} of the corpus: {why}")
            if task.isolated:
                self.state.replayed(CorpusRecord(path.name, "UNREADABLE", why), path, {})
            else:
                # A case that ends its worker, or has no answer in time, does so in an isolated process, too, unless another process ended it.
                self._scheduler.put_first(replace(task, isolated=True))
        elif isinstance(task, RunCanary):
            self._canary_attempts += 1
            if self._canary_attempts >= _ATTEMPTS:
                self._note_canary(CanaryResult("", why))
            else:
                self.state.warn(f"{why} before the canary was found")
                self._scheduler.put_first(task)
        elif not worker.ready:
            self._failed_starts += 1
            wrote = output.partition("\n")[0]
            self.state.warn("; ".join(filter(None, (f"{why} before it was ready", wrote))))
        else:
            self.state.warn(f"{why} between two tasks")
        self._replace(worker)

    def _explore_again(self, worker: WorkerHandle, task: Explore, lost: WorkerLost, output: str) -> None:
        """Have the same examples explored with the subject in an isolated process, whose input is known before each call."""
        self._leave(worker, task, lost.why)
        property_state = self.state.property_states[task.unit]
        property_state.deaths += 1
        ended = f"{lost.why} (seed {task.seed})"
        self.state.warn(f"{task.unit}: {ended}")
        ended = "\n".join(filter(None, (ended, output)))
        if not lost.from_outside:
            property_state.crash, property_state.crash_repeats = ended, 0
        if property_state.deaths >= _ATTEMPTS:
            property_state.give_up(f"{property_state.deaths} workers were lost; the last: {ended}")
        else:
            self._scheduler.again(replace(task, isolated=True))

    def _stop(self, worker: WorkerHandle) -> str:
        """End a worker; what it has written last, and its traceback."""
        self._pool.stop(worker)
        return take_output(self.pending, worker.pid)

    def _replace(self, worker: WorkerHandle) -> None:
        may_start = self._failed_starts < _ATTEMPTS * self.plan.engines
        is_needed = self.left > 0 or self._scheduler.canary_waits
        if not worker.gpu.gone and may_start and is_needed:
            self._pool.spawn()

    def _leave(self, worker: WorkerHandle, task: Explore, why: str) -> int:
        """No worker does the task any more. The failing inputs that the worker had in hand become findings; how many there were."""
        explored = self.state.property_states[task.unit]
        had_failed = explored.failing
        explored.end()
        self._scheduler.ended(task, None)
        # What it was doing by then is not known: the input may be the smallest.
        note = f"{why[:1].upper()}{why[1:]} before this failure was reported: there may be a smaller input."
        cases = list(pending_cases(self.pending, worker.pid))
        for path, met in cases:
            case = met
            if not had_failed and path.stat().st_mtime > self._interrupted - _FILE_TIME_STEP:
                # Ctrl-C ends compilers that the subject has started, too. The case stays on disk, and the next campaign replays it.
                self.state.warn(
                    f"{task.unit} failed after the interruption: the next campaign replays the input"
                )
                continue
            defect = self.defects.matcher.find(case)
            for error in self.defects.matcher.errors:
                self.state.warn(error)
            property_state = self.state.property_state_of(case)
            if defect is None:
                with suppress(Exception):
                    from statecheck.diagnose.attribution import with_own_calls_apart

                    # The budget ended first: the port's own calls, and the script that is made of them, are still missing.
                    case = with_own_calls_apart(case, load(case.subject))
                corpus = self.corpus_writer.keep(case, self.state.first_seen)
                report = self.corpus_writer.report(case, f"**{note}**")
                finding = Found((bucket_of(case).id,), case.to_data(), report, corpus, note, shrunk=False)
                self.state.find(finding, self.at)
                if not corpus and not report:
                    continue
            elif property_state is not None:
                property_state.record.known[defect.name] += 1
            _remove(path)
        return len(cases)

    # The end of the campaign.

    def _end(self) -> None:
        state = self.state
        self._ended = time.monotonic()
        for worker in list(self._pool.workers):
            for event in self._pool.end(worker):
                self._apply(worker, event)
            self._cut_short(worker)
        if not self.record.interrupted:
            for task in self._scheduler.lost:
                property_state = state.property_states[task.unit]
                property_state.unfinished = "its exploration was lost, and there was no time for another one"
        # The subject may have removed what had been written.
        for bucket in state.buckets.values():
            case = Case.from_data(bucket.case)
            if not Path(bucket.corpus).is_file():
                bucket.corpus = state.keep(case)
            if bucket.report and not Path(bucket.report).is_dir():
                state.warn(f"{bucket.report} was removed, and the coordinator has written it again")
                bucket.report = self.corpus_writer.report(case, bucket.note)
        for path in self._scheduler.not_replayed:
            why = "since the campaign was interrupted" if self.record.interrupted else "for want of time"
            state.replayed(self._scheduler.passed_over(path, NOT_REPLAYED, why), path, {})
        if self._scheduler.canary_waits:
            state.warn("the canary was not run: the campaign ended before its turn")
        self.record.complete = bool(self._pool.usable) and not self.record.interrupted and self._is_done()
        self.defects.conclude(state.property_states)
        with suppress(OSError):
            # Where there is nothing left in it.
            self.pending.rmdir()
        self._save()

    def _cut_short(self, worker: WorkerHandle) -> None:
        """The campaign has ended, and so has a worker that was busy."""
        task, worker.task = worker.task, None
        take_output(self.pending, worker.pid)
        if isinstance(task, Replay):
            path, why = Path(task.path), "left out: the time was up"
            self.state.replayed(self._scheduler.passed_over(path, LEFT_OUT, why), path, {})
        if isinstance(task, Explore):
            found = self._leave(worker, task, "the campaign ended")
            if not found and not self.record.interrupted:
                property_state = self.state.property_states[task.unit]
                property_state.unfinished = (
                    f"an example was still running when the time was up (seed {task.seed})"
                )

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
        """The record, with the time and the verdicts by now."""
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
            self.state.warn(not_written(self.folder / FILE, error))


def _remove(path: Path) -> None:
    # Another process may have removed the folder, or put a file in its place.
    with suppress(OSError):
        path.unlink()
