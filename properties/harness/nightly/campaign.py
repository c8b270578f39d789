"""A nightly campaign on one machine: rounds until the deadline, of what has shown something new first.

In a round every property comes up once. One that reached new behaviours in the round before gets up to four times as long as
others. Seeds follow from commit, shard and round, so that a round can be repeated.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from properties.harness.campaign import Status
from properties.harness.case import Case
from properties.harness.case.bucket import bucket_of
from properties.harness.corpus import Corpus, lives
from properties.harness.nightly.engine import (
    EngineSetting,
    Explore,
    Explored,
    Found,
    Gone,
    Listen,
    Listened,
    Replay,
    Replayed,
)
from properties.harness.nightly.gpus import Gpus
from properties.harness.nightly.plan import Plan
from properties.harness.nightly.record import FILE, CorpusRecord, Record
from properties.harness.nightly.rounds import Rounds
from properties.harness.nightly.seats import Seat, hired
from properties.harness.nightly.start import begun, first_seen, terminated_like_interrupted
from properties.harness.worker import Progress

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 20.0
"""How long after the end of the budget an engine may go on shrinking."""
_SAVE_SECONDS, _TELL_SECONDS = 10.0, 1.0
_DEATHS = 3
Watch = Callable[[Record], None]


def run(plan: Plan, watch: Watch | None = None, *, resumed: Record | None = None) -> Record:
    """Run one shard, or unit, on this machine to its end; its folder `reports/campaigns/<name>/` holds what is known.

    Args:
        watch: called about every second with what is known.
        resumed: go on from there; what it has used of the budget is gone.

    Raises:
        ValueError: a plan that cannot be carried out.
    """
    return Nightly(plan, watch or (lambda record: None), resumed).run()


class Nightly:
    """A campaign while it runs."""

    def __init__(self, plan: Plan, watch: Watch, resumed: Record | None) -> None:
        self.plan, self.watch = plan, watch
        self.folder = Path(plan.reports) / "campaigns" / plan.name
        self.record, self.ledger, self._declared, lives = begun(plan)
        self._spent_before = 0.0
        if resumed is not None:
            self.ledger.resume(resumed)
            self._spent_before, self.record.began = resumed.seconds, resumed.began
            self.record.rounds = resumed.rounds
        self._started = time.monotonic()
        self._seats: list[Seat] = []
        self._rounds = Rounds(plan, self.ledger, lives, self.record.rounds)
        self._first: deque[Replay | Listen] = deque()
        self._saved_at = self._told_at = self._noted_at = float("-inf")
        self._saved_buckets = 0
        self._gpus: Gpus

    @property
    def at(self) -> float:
        """Seconds that the campaign has run."""
        return self._spent_before + time.monotonic() - self._started

    @property
    def left(self) -> float:
        return float("inf") if self.plan.budget is None else self.plan.budget - self.at

    def run(self) -> Record:
        self._put_down_logs()
        self._line_up()
        plan = self.plan
        self._gpus = Gpus(plan.device, plan.subject, plan.gpus, self._setting().in_worker, plan.workers)
        try:
            with terminated_like_interrupted():
                for _ in range(plan.engines):
                    # One by one: each goes where the fewest are.
                    self._seats.append(self._hired())
                self._loop()
                self.record.complete = self._is_complete
        except KeyboardInterrupt:
            self.record.interrupted = True
        finally:
            self._end()
        return self._current()

    @property
    def _is_complete(self) -> bool:
        waiting = any(one.status is Status.WAITING for one in self.ledger.standings.values())
        return bool(self._gpus.usable) and not waiting

    def _end(self) -> None:
        for seat in self._seats:
            busy = seat.work
            seat.dismiss()
            if isinstance(busy, Explore):
                self._recover(self._pending_of(seat, busy), "The campaign ended")
        self._gpus.close()
        self._drop_logs()
        self.ledger.conclude(self._declared)
        self.ledger.moment(self.at)
        self._save()

    def _line_up(self) -> None:
        """Before anything is explored: the canary, and what is known already."""
        if self.plan.canary and not self.ledger.canary:
            self._first.append(Listen(str(self.folder / "canary")))
        if self.plan.replayed:
            # One that goes on has replayed some, and found others. What a crash kept out of its record stands there too.
            known = {one.file for one in self.ledger.corpus}
            known |= {Path(one.corpus).name for one in self.ledger.buckets.values()}
            for entry in Corpus(Path(self.plan.corpus)).entries():
                if entry.path.name not in known:
                    self._first.append(Replay(str(entry.path)))

    def _loop(self) -> None:
        while True:
            for trouble in self._gpus.watch():
                self.ledger.trouble(trouble)
            self._retire()
            for seat in self._seats:
                if seat.work is None:
                    self._assign(seat)
            busy = [seat for seat in self._seats if seat.work is not None]
            if not busy or self.left < -_GRACE_SECONDS:
                self._tell_late(busy)
                return
            for ready in wait([seat.pipe for seat in busy], timeout=_POLL_SECONDS):
                self._receive(next(one for one in busy if one.pipe is ready))
            self._tell()

    def _tell_late(self, busy: list[Seat]) -> None:
        for seat in busy:
            late = f"still busy {_GRACE_SECONDS:.0f} s after the time was up"
            self.ledger.trouble(f"{_name_of(seat.work)}: {late}")

    def _retire(self) -> None:
        """Engines of devices that are gone."""
        for seat in [one for one in self._seats if one.gpu.gone]:
            self._seats.remove(seat)
            work, seat.work = seat.work, None
            seat.dismiss()
            self._hand_back(seat, work, "Its device was lost")

    def _hand_back(self, seat: Seat, work: Any, why: str) -> None:
        """What an engine had in hand that ended through no fault of the work: others do it."""
        if isinstance(work, Explore):
            self._recover(self._pending_of(seat, work), why)
        elif work is not None:
            self._first.appendleft(work)

    def _hired(self) -> Seat:
        usable = self._gpus.usable
        gpu = min(usable, key=lambda one: sum(seat.gpu is one for seat in self._seats))
        return hired(self._setting(gpu.address, gpu.index), gpu)

    def _setting(self, share: str = "", gpu: str = "") -> EngineSetting:
        plan = self.plan
        return EngineSetting(
            plan.subject,
            plan.device,
            plan.reports,
            plan.isolated,
            plan.time_limit,
            plan.sanitized,
            share,
            gpu,
            plan.corpus,
            # A database remembers what other campaigns have met, and no unit of work may depend on that.
            plan.redis or ("local" if plan.examples is None else "none"),
            tuple(first_seen(plan).items()),
        )

    def _assign(self, seat: Seat) -> None:
        if self._first and self.left > 0:
            seat.give(self._first.popleft())
            return
        task = self._rounds.next(seat, self._seats, self.left)
        self.record.rounds = self._rounds.done
        if task is not None:
            seat.give(task)

    def _receive(self, seat: Seat) -> None:
        try:
            message: Any = seat.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._bury(seat)
            return
        if isinstance(message, Progress):
            self.ledger.progress(message.property, message.examples)
            seat.examples += message.examples
            return
        work, seat.work = seat.work, None
        if isinstance(message, Explored):
            self._explored(seat, message)
        elif isinstance(message, Replayed):
            assert isinstance(work, Replay)
            self.ledger.replayed(message.result, Path(work.path), message.case)
        elif isinstance(message, Listened):
            self._listened(message)
        elif isinstance(message, Gone):
            self._lost(seat, message.why)
            seat.work = work

    def _explored(self, seat: Seat, message: Explored) -> None:
        self.ledger.explored(message, self.at)
        if message.gone:
            self._lost(seat, message.gone)

    def _lost(self, seat: Seat, why: str) -> None:
        if seat.gpu.gone:
            return
        seat.gpu.gone, name = why, self._gpus.name_of(seat.gpu)
        rest = "others go on" if self._gpus.usable else "there is no other"
        self.ledger.trouble(f"{name} is gone after {self.at:.0f} s, and {rest}: {why}")

    def _listened(self, message: Listened) -> None:
        self.ledger.canary = message.heard
        if message.why:
            self.ledger.trouble(f"the canary was silent: {message.why}")

    def _bury(self, seat: Seat) -> None:
        """An engine has died: what it had in hand is kept, and another one takes its place."""
        seat.process.join(timeout=5)
        why = f"an engine died with exit code {seat.process.exitcode}"
        work, seat.work = seat.work, None
        if isinstance(work, Explore):
            # In this order: what was found opens the property, and the last of its deaths closes it.
            self._recover(self._pending_of(seat, work), why[:1].upper() + why[1:])
            self._died(work, why)
        elif isinstance(work, Replay):
            told = CorpusRecord(Path(work.path).name, "UNREADABLE", why)
            self.ledger.replayed(told, Path(work.path), {})
        elif isinstance(work, Listen):
            self._listened(Listened("", why))
        self._seats.remove(seat)
        seat.dismiss()
        if self._gpus.usable:
            self._seats.append(self._hired())

    def _died(self, work: Explore, why: str) -> None:
        standing = self.ledger.standings[work.property]
        standing.deaths += 1
        self.ledger.trouble(f"{work.property}: {why} (seed {work.seed})")
        if standing.deaths >= _DEATHS:
            standing.status, standing.detail = Status.ERROR, f"{why}, {standing.deaths} times"

    def _pending_of(self, seat: Seat, work: Explore) -> Path:
        from properties.harness.worker import pending_path

        return pending_path(Path(self.plan.reports), f"{work.property}.{seat.process.pid}")

    def _recover(self, path: Path, why: str) -> None:
        """Keep the counterexample that an engine had in hand when it ended."""
        with suppress(OSError, ValueError):
            case = Case.load(path)
            corpus = Corpus(Path(self.plan.corpus), Path(self.plan.reports) / "corpus")
            kept = corpus.add(case, first_seen=first_seen(self.plan))
            stands = kept.is_file()
            note = f"{why} before this input was shrunk."
            found = Found((bucket_of(case).id,), case.to_data(), "", str(kept) if stands else "", note)
            self.ledger.find(found, self.at)
            for trouble in corpus.troubles:
                self.ledger.trouble(trouble)
            if stands:
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
            self.watch(self._current())

    def _current(self) -> Record:
        self.record.seconds = round(self.at, 3)
        return self.ledger.fill(self.record)

    def _save(self) -> None:
        try:
            self._current().save(self.folder / FILE)
        except OSError as error:
            self.ledger.trouble(f"{self.folder / FILE} could not be written: {error.strerror or error}")

    def _put_down_logs(self) -> None:
        from properties.harness.device.log import recover_all

        with suppress(OSError):
            recover_all(Path(self.plan.reports) / "pending")
        self._adopt()

    def _adopt(self) -> None:
        """Counterexamples that engines of killed campaigns had in hand: into the corpus, from where they are replayed."""
        for path in (Path(self.plan.reports) / "pending").glob("*.json"):
            engine = re.search(r"\.(\d+)\.json$", path.name)
            if engine is None or lives(int(engine[1])):
                continue
            with suppress(OSError, ValueError):
                corpus = Corpus(Path(self.plan.corpus), Path(self.plan.reports) / "corpus")
                if corpus.add(Case.load(path), first_seen=first_seen(self.plan)).is_file():
                    path.unlink(missing_ok=True)

    def _drop_logs(self) -> None:
        """Of engines that were sent away in the middle of an example; those of other campaigns are in use."""
        from properties.harness.device.log import SUFFIX, drop

        with suppress(OSError):
            for path in (Path(self.plan.reports) / "pending").glob(f"*{SUFFIX}"):
                drop(path)


def _name_of(work: Any) -> str:
    return work.property if isinstance(work, Explore) else type(work).__name__.lower()
