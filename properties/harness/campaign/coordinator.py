"""A campaign on one machine, short or all night: one process that hands tasks to workers and keeps a ledger.

First the workers warm up, which takes nothing of the budget. Then the canary is listened to and the corpus replayed; then every
property gets an example or a few, and rounds follow until the time is up. Known defects that show are reported towards the end.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from properties.harness.campaign.claim import unclaimed
from properties.harness.campaign.corpus import Corpus
from properties.harness.campaign.defects import Defect, label, pending_name, reports_of
from properties.harness.campaign.pending import (
    KNOWN_PREFIX,
    left_behind,
    left_by,
    pending_of,
    running_left_by,
)
from properties.harness.campaign.plan import Plan
from properties.harness.campaign.record import FILE, CampaignRecord, CorpusRecord
from properties.harness.campaign.schedule import GRACE_SECONDS, Schedule
from properties.harness.campaign.start import begun, first_seen, terminated_like_interrupted, uninterrupted
from properties.harness.campaign.workers.gpus import Gpus
from properties.harness.campaign.workers.seats import Seat, hired
from properties.harness.campaign.workers.tasks import (
    Busy,
    ExamplesRun,
    Explore,
    Explored,
    Found,
    Gone,
    Listen,
    Listened,
    Replay,
    Replayed,
    Setting,
    Task,
    WorkerReady,
)
from properties.harness.case import Case
from properties.harness.case.bucket import bucket_of
from properties.harness.case.hang import as_hang
from properties.harness.device.replay import LEFT_OUT
from properties.harness.text.command_lines import command_line

_POLL_SECONDS = 0.2
_WARM_UP_SECONDS = 180.0
_SILENT_SECONDS = 20.0
"""How much longer than a call may take a worker may be silent: one that lives says so every second."""
_SAVE_SECONDS, _TELL_SECONDS = 10.0, 0.2
_DEATHS = 3
_REPLAY_SHARE = 0.2
"""The part of the budget in which the corpus is replayed before properties are explored; the rest of it comes after."""


Watch = Callable[["Campaign"], None]


def run(plan: Plan, watch: Watch | None = None, *, resumed: CampaignRecord | None = None) -> CampaignRecord:
    """Run one shard, or unit, on this machine to its end; its folder `reports/campaigns/<name>/` holds what is known.

    Args:
        watch: called several times a second with the campaign.
        resumed: go on from there; what it has used of the budget is gone.

    Raises:
        ValueError: a plan that cannot be carried out.
    """
    return Campaign(plan, watch or (lambda campaign: None), resumed).run()


class Campaign:
    """A campaign while it runs."""

    def __init__(self, plan: Plan, watch: Watch, resumed: CampaignRecord | None = None) -> None:
        self.plan, self.watch = plan, watch
        self.folder = Path(plan.reports) / "campaigns" / plan.name
        self.pending = pending_of(self.folder)
        start = begun(plan)
        self.subject, self.record, self.ledger, self.defects = (
            start.subject,
            start.record,
            start.ledger,
            start.defects,
        )
        self._spent_before = 0.0
        if resumed is not None:
            self.ledger.resume(resumed)
            self._spent_before, self.record.began = resumed.seconds, resumed.began
            self.record.rounds = resumed.rounds
        self.reporting: set[str] = set()
        """The names of the known defects whose reports are being written."""
        self._started: float | None = None
        self._ended: float | None = None
        self._seats: list[Seat] = []
        self._schedule = Schedule(plan, self.ledger, start.lives, self.record.rounds)
        self._first: deque[Task] = deque()
        self._saved_at = self._told_at = self._noted_at = float("-inf")
        self._saved_buckets = self._deaf = 0
        self._gpus: Gpus

    @property
    def at(self) -> float:
        """Seconds that the campaign has run; none until its workers are ready."""
        if self._started is None:
            return self._spent_before
        now = self._ended if self._ended is not None else time.monotonic()
        return self._spent_before + max(0.0, now - self._started)

    @property
    def left(self) -> float:
        return float("inf") if self.plan.budget is None else self.plan.budget - self.at

    @property
    def examples(self) -> int:
        return self.ledger.examples

    def run(self) -> CampaignRecord:
        """Run to the end of the budget; Ctrl-C ends it early with what is known by then."""
        self._adopt()
        self._line_up()
        plan = self.plan
        self._gpus = Gpus(plan.device, plan.subject, plan.gpus, self._setting().in_worker, plan.workers)
        try:
            with terminated_like_interrupted():
                for _ in range(plan.engines):
                    # One by one: each goes where the fewest are.
                    self._seats.append(self._hired())
                self._warm_up()
                self._loop()
        except KeyboardInterrupt:
            self.record.interrupted = True
        finally:
            with uninterrupted():
                self._end()
        return self.current()

    def _end(self) -> None:
        self._ended = time.monotonic()
        for seat in list(self._seats):
            self._listen(seat, replaced=False)
            seat.dismiss()
            # What it has said before it was sent away counts.
            self._listen(seat, replaced=False)
            seat.pipe.close()
            self._cut_short(seat)
        self._gpus.close()
        self._report_known()
        undone = sum(isinstance(task, Replay) for task in self._first)
        if undone:
            self.ledger.trouble(f"{undone} cases of the corpus were not replayed for want of time")
        self.record.complete = bool(self._gpus.usable) and not self.record.interrupted and self._is_done()
        self._conclude()
        self.ledger.moment(self.at)
        with suppress(OSError):
            # Where there is nothing left in it.
            self.pending.rmdir()
        self._save()

    def _is_done(self) -> bool:
        return (
            self.plan.budget is not None
            or self.examples >= (self.plan.examples or 0)
            or not any(one.open for one in self.ledger.standings.values())
        )

    def _conclude(self) -> None:
        self.defects.conclude(self.ledger.standings)
        for defect in self.defects.all.values():
            alone = defect.declared.alone
            about = (one for one in self.ledger.standings.values() if alone in (one.name, one.tested.id))
            standing = next(about, None) if alone else None
            if defect.stale and standing is not None:
                standing.stale = f"declared as known, but no example failed: {defect.declared.link}"

    def _line_up(self) -> None:
        """Before anything is explored: the canary, and what is known already."""
        if self.plan.canary and not self.ledger.canary:
            self._first.append(Listen(str(self.folder / "canary")))
        if self.plan.replayed:
            # One that goes on has replayed some, and found others. What a crash kept out of its record stands there too.
            known = {one.file for one in self.ledger.corpus}
            known |= {Path(one.corpus).name for one in self.ledger.buckets.values()}
            for folder in dict.fromkeys((self.plan.corpus, self._kept)):
                for entry in Corpus(Path(folder)).entries():
                    chosen = entry.case is None or self._is_chosen(entry.case)
                    if chosen and entry.path.name not in known:
                        known.add(entry.path.name)
                        self._first.append(Replay(str(entry.path)))

    def _is_chosen(self, case: Case) -> bool:
        some = bool(self.plan.only) or self.plan.lives
        return not some or case.property_name in self.ledger.standings

    def _warm_up(self) -> None:
        """Wait until the workers are ready; the clock starts then."""
        until = time.monotonic() + _WARM_UP_SECONDS
        while time.monotonic() < until and not all(seat.ready for seat in self._seats):
            wait([seat.pipe for seat in self._seats if not seat.ready], timeout=_POLL_SECONDS)
            for seat in list(self._seats):
                self._listen(seat, replaced=False)
            if any(not seat.ready and not seat.process.is_alive() for seat in self._seats):
                break
        self._started = time.monotonic()

    def _loop(self) -> None:
        while True:
            for trouble in self._gpus.watch():
                self.ledger.trouble(trouble)
            self._retire()
            for seat in self._seats:
                if seat.task is None:
                    self._assign(seat)
            busy = [seat for seat in self._seats if seat.task is not None]
            if not busy or (self.left < -GRACE_SECONDS and not self._is_stuck()):
                return
            wait([seat.pipe for seat in busy], timeout=_POLL_SECONDS)
            for seat in list(self._seats):
                self._listen(seat)
            self._end_hangs()
            self._tell()

    def _is_stuck(self) -> bool:
        """Whether a worker has been at one call for so long that it is worth to wait for what looks like a hang."""
        in_worker = self._setting().in_worker
        return not in_worker and any(
            seat.task is not None and seat.stuck > GRACE_SECONDS for seat in self._seats
        )

    def _retire(self) -> None:
        """Workers of devices that are gone."""
        for seat in [one for one in self._seats if one.gpu.gone]:
            self._seats.remove(seat)
            task = seat.task
            seat.dismiss()
            seat.pipe.close()
            if isinstance(task, Explore):
                self._lost(seat, task, "Its device was lost")
            elif task is not None:
                self._first.appendleft(task)

    def _hired(self) -> Seat:
        usable = self._gpus.usable
        gpu = min(usable, key=lambda one: sum(seat.gpu is one for seat in self._seats))
        return hired(self._setting(gpu.address, gpu.index), gpu)

    @property
    def _kept(self) -> str:
        return self.plan.kept or self.plan.corpus

    def _setting(self, share: str = "", gpu: str = "") -> Setting:
        plan = self.plan
        return Setting(
            plan.subject,
            plan.device,
            plan.reports,
            str(self.pending),
            self._kept,
            plan.isolated,
            plan.time_limit,
            plan.sanitized,
            share,
            gpu,
            plan.as_new,
            # A database remembers what other campaigns have met, and no unit of work may depend on that.
            plan.redis or ("local" if plan.examples is None else "none"),
            tuple(first_seen(plan).items()),
            plan.steps,
        )

    def _assign(self, seat: Seat) -> None:
        task = self._next(seat)
        if task is None:
            return
        if isinstance(task, Explore):
            if task.shown:
                self.reporting.add(task.shown)
            else:
                self.ledger.standings[task.property].begin()
        seat.give(task)

    def _next(self, seat: Seat) -> Task | None:
        if self.left > 0 and self._first and self._comes_first(self._first[0]):
            return self._first.popleft()
        reserve, budget = self._reserve, self.plan.budget or 0.0
        due = self.defects.waiting and self.left <= reserve
        report = self.defects.next_report(budget, self.left, self.plan.engines) if due else None
        task = report or self._schedule.next(seat, self._seats, self.left - reserve)
        self.record.rounds = self._schedule.done
        if task is None and self.plan.budget is not None:
            task = self.defects.next_report(budget, self.left, self.plan.engines)
        return task

    def _comes_first(self, task: Task) -> bool:
        """Whether it is its turn now: in a short campaign the corpus may not keep properties from being tried at all."""
        budget = self.plan.budget
        if not isinstance(task, Replay) or budget is None or self._schedule.every_property_was_tried:
            return True
        return self.at - self._spent_before < _REPLAY_SHARE * budget

    @property
    def _reserve(self) -> float:
        """Seconds at the end for the reports of known defects."""
        return 0.0 if self.plan.budget is None else self.defects.reserve(self.plan.budget, self.plan.engines)

    def _listen(self, seat: Seat, *, replaced: bool = True) -> None:
        """Take in all that a worker has said; one that is gone is replaced."""
        try:
            for message in seat.messages():
                seat.heard = time.monotonic()
                self._take(seat, message)
        except (EOFError, OSError):
            if replaced and seat in self._seats and seat.gpu in self._gpus.usable:
                self._bury(seat)

    def _take(self, seat: Seat, message: Any) -> None:
        if isinstance(message, WorkerReady):
            seat.ready = True
        elif isinstance(message, Busy):
            seat.stuck = message.seconds
        elif isinstance(message, ExamplesRun):
            if isinstance(seat.task, Explore) and not seat.task.shown:
                self.ledger.progress(message.property, message.examples, message.compared)
        elif isinstance(message, Gone):
            self._gone(seat, message.why)
        else:
            task, seat.task = seat.task, None
            self._finished(seat, task, message)

    def _finished(self, seat: Seat, task: Task | None, message: Any) -> None:
        if isinstance(message, Explored) and isinstance(task, Explore):
            self._explored(seat, task, message)
        elif isinstance(message, Replayed) and isinstance(task, Replay):
            self.ledger.cover(message.covered)
            self.ledger.replayed(message.result, Path(task.path), message.case)
        elif isinstance(message, Listened):
            self._listened(message)

    def _explored(self, seat: Seat, task: Explore, message: Explored) -> None:
        if task.shown:
            self.reporting.discard(task.shown)
            self.defects.reported(task, message)
            self.ledger.cover(message.covered)
            # The examples of such a search are not counted, but a new failure among them is kept.
            for found in message.found:
                self.ledger.find(found, self.at)
            for trouble in message.troubles:
                self.ledger.trouble(trouble)
        else:
            self.defects.hear(task, message)
            self.ledger.explored(message, self.at)
            self.ledger.standings[task.property].end()
        self._schedule.ended(task, message)
        if message.gone:
            self._gone(seat, message.gone)

    def _gone(self, seat: Seat, why: str) -> None:
        if seat.gpu.gone:
            return
        seat.gpu.gone, name = why, self._gpus.name_of(seat.gpu)
        rest = "others go on" if self._gpus.usable else "there is no other"
        self.ledger.trouble(f"{name} is gone after {self.at:.0f} s, and {rest}: {why}")

    def _listened(self, message: Listened) -> None:
        self.ledger.canary = message.heard
        if message.why:
            self.ledger.trouble(f"the canary was silent: {message.why}")

    def _unheard(self, task: Listen, why: str) -> None:
        """A worker died before the canary was heard: that of another one may be."""
        self._deaf += 1
        if self._deaf >= _DEATHS:
            self._listened(Listened("", why))
        else:
            self.ledger.trouble(f"{why} before the canary was heard")
            self._first.appendleft(task)

    def _end_hangs(self) -> None:
        """End workers whose subject does not come back from a call."""
        if self._setting().in_worker:
            # There the port has a limit of its own.
            return
        limit, now = self.plan.time_limit, time.monotonic()
        for seat in list(self._seats):
            if seat.task is None or not seat.ready:
                continue
            silent = now - seat.heard
            if seat.stuck > limit or silent > limit + _SILENT_SECONDS:
                seat.process.kill()
                self._hung(seat, max(seat.stuck, silent))

    def _hung(self, seat: Seat, seconds: float) -> None:
        task, seat.task = seat.task, None
        if isinstance(task, Explore):
            case = self._what_ran(seat, hung=True)
            if case is None:
                self._lost(seat, task, f"No answer within {seconds:.0f} s, and nothing is known of the input")
                self._died(task, f"no answer within {seconds:.0f} s")
            else:
                self._leave(task)
                # The next look at it is one that can be ended without the worker.
                self.ledger.standings[task.property].deaths += 1
                self._found(case, "The worker was ended; this input was not shrunk.")
        elif isinstance(task, Replay):
            self._hung_in_replay(Path(task.path))
        self._replace(seat)

    def _hung_in_replay(self, path: Path) -> None:
        told = CorpusRecord(path.name, "FAILED", f"hang: no answer within {self.plan.time_limit:g} s")
        with suppress(OSError, ValueError):
            self.ledger.replayed(told, path, Case.load(path).to_data())

    def _what_ran(self, seat: Seat, *, hung: bool) -> Case | None:
        """The input that a worker was ended in."""
        assert seat.process.pid is not None
        path = running_left_by(self.pending, seat.process.pid)
        if path is None:
            return None
        with suppress(OSError, ValueError):
            case = Case.load(path)
            if not hung:
                return case
            path.unlink(missing_ok=True)
            return as_hang(case, self.plan.time_limit)
        return None

    def _bury(self, seat: Seat) -> None:
        """A worker has died: what it had in hand is kept, and another one takes its place."""
        # Its pipe ends a moment before the process does, and there is no exit code until then.
        seat.process.join(timeout=5)
        why = f"a worker died with exit code {seat.process.exitcode}"
        task, seat.task = seat.task, None
        if isinstance(task, Explore):
            self._what_ran(seat, hung=False)
            self._lost(seat, task, why[:1].upper() + why[1:])
            self._died(task, why)
        elif isinstance(task, Replay):
            self._died_in_replay(task, why)
        elif isinstance(task, Listen):
            self._unheard(task, why)
        elif not seat.ready:
            self.ledger.trouble(f"{why} before it was ready")
        self._replace(seat)

    def _died_in_replay(self, task: Replay, why: str) -> None:
        if not task.isolated:
            # What ends a worker is a finding, where it can be told from one that somebody else has killed.
            self._first.appendleft(replace(task, isolated=True))
            return
        told = CorpusRecord(Path(task.path).name, "UNREADABLE", why)
        self.ledger.replayed(told, Path(task.path), {})

    def _replace(self, seat: Seat) -> None:
        self._seats.remove(seat)
        seat.dismiss()
        seat.pipe.close()
        if self._gpus.usable and self.left > 0:
            self._seats.append(self._hired())

    def _leave(self, task: Explore) -> None:
        """No worker does the task any more."""
        if task.shown:
            self.reporting.discard(task.shown)
        else:
            self.ledger.standings[task.property].end()
        self._schedule.ended(task, None)

    def _lost(self, seat: Seat, task: Explore, why: str) -> None:
        """Keep the counterexamples that a worker had in hand when it ended."""
        self._leave(task)
        assert seat.process.pid is not None
        for path, name, case in left_by(self.pending, seat.process.pid):
            if name.startswith(KNOWN_PREFIX):
                continue
            if self._found(case, f"{why} before this input was shrunk."):
                path.unlink(missing_ok=True)

    def _found(self, case: Case, note: str) -> bool:
        """Put a case into the corpus, the ledger, and a report, unless it shows a known defect; whether it stands somewhere."""
        if self._is_known(case):
            return True
        corpus = Corpus(Path(self._kept), Path(self.plan.reports) / "corpus")
        kept = corpus.add(case, first_seen=first_seen(self.plan))
        stands = kept.is_file()
        report = self._written(case, Path(self.plan.reports), f"**{note}**")
        found = Found(
            (bucket_of(case).id,), case.to_data(), report, str(kept) if stands else "", note, shrunk=False
        )
        self.ledger.find(found, self.at)
        for trouble in corpus.troubles:
            self.ledger.trouble(trouble)
        return stands or bool(report)

    def _is_known(self, case: Case) -> bool:
        name = self.defects.matcher.name_of(case)
        for error in self.defects.matcher.errors:
            self.ledger.trouble(error)
        if name is None:
            return False
        self.defects.all[name].properties[case.property_name] += 1
        if case.property_name in self.ledger.standings:
            self.ledger.standings[case.property_name].deviations[name] += 1
        return True

    def _written(self, case: Case, folder: Path, note: str) -> str:
        from properties.harness.report.markdown import write_report

        try:
            return str(write_report(case, folder, self.subject.module, note=note))
        except Exception as error:
            self.ledger.trouble(f"{folder} could not be written: {type(error).__name__}: {error}")
            return ""

    def _died(self, task: Explore, why: str) -> None:
        if task.shown:
            self.defects.died(task, why)
            return
        standing = self.ledger.standings[task.property]
        standing.deaths += 1
        self.ledger.trouble(f"{task.property}: {why} (seed {task.seed})")
        if not task.isolated and self.plan.device == "cpu":
            # In a process of its own the subject can be searched for the input that ends it.
            self._schedule.again(replace(task, isolated=True))
            return
        if standing.deaths >= _DEATHS:
            standing.error = f"{why}, {standing.deaths} times"

    def _cut_short(self, seat: Seat) -> None:
        """The campaign ends while a worker is busy, which is no error."""
        task, seat.task = seat.task, None
        if isinstance(task, Replay):
            path = Path(task.path)
            self.ledger.replayed(CorpusRecord(path.name, LEFT_OUT, "left out: the time was up"), path, {})
        if not isinstance(task, Explore):
            return
        case = self._what_ran(seat, hung=False)
        self._lost(seat, task, "The campaign ended")
        standing = self.ledger.standings[task.property]
        if case is not None and not task.shown and not self.record.interrupted:
            path = self.pending / f"{task.property}.{seat.process.pid}.unfinished.json"
            standing.remark = f"still busy when the time was up: {self._replay(path)}"

    def _replay(self, case: Path) -> str:
        return command_line("replay", case, subject=self.plan.subject, device=self.plan.device)

    def _report_known(self) -> None:
        """Report the examples of known defects that were not shrunk."""
        for defect in self.defects.all.values():
            self._report_unshrunk(defect)

    def _report_unshrunk(self, defect: Defect) -> None:
        for path in sorted(self.pending.glob(f"{pending_name(defect.name)}.*.json")):
            if not defect.report:
                note = f"{label(defect.name, defect.declared)}\n\n**This input was not shrunk to the end.**"
                with suppress(OSError, ValueError):
                    folder = reports_of(Path(self.plan.reports), defect.name)
                    defect.report = self._written(Case.load(path), folder, note)
                    defect.remark = defect.remark or "not shrunk: the time was up"
            path.unlink(missing_ok=True)

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._noted_at > max(1.0, (self.plan.budget or 0) / 300):
            self._noted_at = now
            self.ledger.moment(self.at)
        # What people are told of must not be forgotten in a crash.
        if now - self._saved_at > _SAVE_SECONDS or len(self.ledger.buckets) > self._saved_buckets:
            self._saved_at, self._saved_buckets = now, len(self.ledger.buckets)
            self._save()
        if now - self._told_at > _TELL_SECONDS:
            self._told_at = now
            self.watch(self)

    def current(self) -> CampaignRecord:
        """What is known by now."""
        self.record.seconds = round(self.at, 3)
        self.record.known = self.defects.records()
        return self.ledger.fill(self.record)

    def _save(self) -> None:
        try:
            self.current().save(self.folder / FILE)
        except OSError as error:
            self.ledger.trouble(f"{self.folder / FILE} could not be written: {error.strerror or error}")

    def _adopt(self) -> None:
        """What campaigns that are gone had in hand: into the corpus, from where it is replayed."""
        for campaign in sorted(self.folder.parent.glob("*/")):
            if campaign == self.folder or not unclaimed(campaign):
                continue
            with suppress(OSError):
                for path, case in left_behind(pending_of(campaign)):
                    corpus = Corpus(Path(self._kept), Path(self.plan.reports) / "corpus")
                    if corpus.add(case, first_seen=first_seen(self.plan)).is_file():
                        path.unlink(missing_ok=True)
