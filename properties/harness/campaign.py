"""A campaign: all properties, fresh randomness, all cores, until the time is up.

The coordinator hands tasks to worker processes over pipes, always of the property that has had the least time so
far, and sizes a task by the rate at which the property has run. Known defects that have shown are reported towards the end.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from properties.harness.campaign_pending import Pending
from properties.harness.campaign_rows import Row, Status
from properties.harness.compilations import Kernels, added
from properties.harness.known_defects import Defect, KnownDefects, Lift, label, pending_name, reports_of
from properties.harness.known_worker import main
from properties.harness.worker import Finished, Progress, Setting, Task
from properties.subjects import KnownDeviation

__all__ = ["Campaign", "Row", "Status"]

_FIRST_EXAMPLES, _FIRST_LIVES = 10, 2
_LONGEST_SLICE = 3.0
_SHORTEST_SLICE = 0.3
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 10.0
"""How long after the end of the budget a worker may go on shrinking."""


@dataclass
class _Seat:
    """A worker process and the task it is busy with."""

    process: BaseProcess
    pipe: Connection
    task: Task | None = None


@dataclass
class Campaign:
    """Explores `properties` on the setting's subject for `budget` seconds with `workers` processes.

    Args:
        skipped: property names with the reason why they do not apply.
        known: what the subject declares.
        lives: properties of which an example takes as long as many of others.
        slow: properties whose examples launch kernels.
        selected: only some of the properties were asked for.
        seed: every task's seed derives from it.
        watch: called with the campaign after every message, and at least every 0.2 seconds.
    """

    setting: Setting
    properties: list[str]
    budget: float
    workers: int
    seed: int
    skipped: dict[str, str] = field(default_factory=dict)
    known: tuple[KnownDeviation, ...] = ()
    lives: frozenset[str] = frozenset()
    slow: frozenset[str] = frozenset()
    selected: bool = False
    watch: Callable[[Campaign], None] = lambda campaign: None

    def __post_init__(self) -> None:
        self.rows = {name: Row(name) for name in self.properties}
        for name, reason in self.skipped.items():
            self.rows[name] = Row(name, Status.NOT_APPLICABLE, detail=reason)
        self.defects = KnownDefects(self.known, self.lives | self.slow, selected=self.selected)
        self.reporting: set[str] = set()
        """The names of the known defects whose reports are being written."""
        self.started = time.monotonic()
        self._pending = Pending(Path(self.setting.reports), self.setting.subject, time.time())
        self.interrupted = False
        self.compiled: Kernels = {}
        self._random = random.Random(self.seed)
        # Every property comes round a few times even in a short campaign.
        fair = self.budget * self.workers / (3 * max(1, len(self.properties)))
        self._slice = min(_LONGEST_SLICE, max(_SHORTEST_SLICE, fair))

    @property
    def left(self) -> float:
        return self.budget - (time.monotonic() - self.started)

    @property
    def examples(self) -> int:
        return sum(row.examples for row in self.rows.values())

    def run(self) -> dict[str, Row]:
        """Run to the end of the budget; Ctrl-C ends it early with what is known by then."""
        self._pending.put_down_all()
        seats = [self._hire() for _ in range(self.workers)]
        try:
            self._loop(seats)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            for seat in seats:
                self._dismiss(seat)
        self._conclude()
        return self.rows

    def save(self, path: Path) -> None:
        """Write what is known of the campaign as JSON: its setting, its rows, known defects, and compiled kernels.

        Each of `properties`, by name: `status` (a value of `Status`), `examples`, `seconds`, `report` (a folder, or ""), and where
        there are any `detail` (the message, or why not), `outside` (examples that said nothing, by the reason), `known` (examples
        that showed a known defect, by its id).
        Each of `known`: `id`, `title`, `link`, `standing` ("showed", "no longer fails", "not tried enough", "not tried"), `stale`
        (whether it no longer fails), `examples`, `properties` (examples by property), `report` (a folder, or ""), `remark`.
        """
        content = {
            "subject": self.setting.subject,
            "device": self.setting.device,
            "seed": self.seed,
            "budget": self.budget,
            "interrupted": self.interrupted,
            "properties": {name: row.told() for name, row in self.rows.items()},
            "known": [one.told() for one in self.defects.all.values()],
            "kernels": {
                name: {"variants": len(one.variants), "compilations": one.compilations}
                for name, one in self.compiled.items()
            }
            if self.setting.device != "cpu"
            else "interpreted",
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def _loop(self, seats: list[_Seat]) -> None:
        while True:
            for seat in seats:
                if seat.task is None:
                    self._assign(seat)
            busy = [seat for seat in seats if seat.task is not None]
            if not busy or self.left < -_GRACE_SECONDS:
                return
            for ready in wait([seat.pipe for seat in busy], timeout=_POLL_SECONDS):
                seat = next(one for one in busy if one.pipe is ready)
                self._receive(seats, seat)
            self.watch(self)

    def _hire(self) -> _Seat:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=main, args=(self.setting, theirs), daemon=True)
        # Ctrl-C is the coordinator's to handle, from the first moment of a worker's life.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
        theirs.close()
        return _Seat(process, ours)

    def _dismiss(self, seat: _Seat) -> None:
        if seat.task is None and seat.process.is_alive():
            seat.pipe.send(None)
            seat.process.join(timeout=5)
        if seat.process.is_alive():
            seat.process.kill()
            seat.process.join()

    def _assign(self, seat: _Seat) -> None:
        reserve = self.defects.reserve(self.budget, self.workers)
        due = self.defects.waiting and self.left <= reserve
        task = (self._report() if due else None) or self._exploration(reserve) or self._report()
        if task is None:
            return
        seat.task = task
        # A worker that has died since is found out when it is listened to.
        with contextlib.suppress(BrokenPipeError):
            seat.pipe.send(task)

    def _report(self) -> Lift | None:
        """The report of a known defect to write now."""
        lift = self.defects.next_lift(self.budget, self.left, self.workers)
        if lift is not None:
            self.reporting.add(lift.known)
        return lift

    def _exploration(self, reserve: float) -> Task | None:
        """What to explore next, in the time that is left but for the last `reserve` seconds."""
        candidates = [
            row
            for row in self.rows.values()
            if row.status in (Status.WAITING, Status.PASSED, Status.KNOWN) and self._has_time(row)
        ]
        if not candidates:
            return None
        row = min(candidates, key=lambda one: (one.elapsed, self.properties.index(one.property_name)))
        left = self.left - reserve
        allowed = min(self._slice, left * 0.8)
        untried = row.status is Status.WAITING
        if left <= 0 or (allowed < _SHORTEST_SLICE and not untried):
            return None
        first = _FIRST_LIVES if row.property_name in self.lives else _FIRST_EXAMPLES
        size = first if untried else max(1, int(row.rate * allowed))
        row.status, row.started = Status.RUNNING, time.monotonic()
        return Task(row.property_name, self._random.getrandbits(48), size, sanitized=row.next_sanitized())

    def _has_time(self, row: Row) -> bool:
        """Whether an example of the property, as long as those before took, would end in time."""
        return row.rate == 0 or 1 / row.rate < max(self.left, 0.0) + _GRACE_SECONDS / 2

    def _receive(self, seats: list[_Seat], seat: _Seat) -> None:
        assert seat.task is not None
        row = self.rows[seat.task.property]
        try:
            message: Any = seat.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._bury(seats, seat, row)
            return
        if isinstance(message, Finished):
            self._heard(seat.task, row, message)
            seat.task = None
        elif isinstance(message, Progress) and not isinstance(seat.task, Lift):
            row.examples += message.examples

    def _heard(self, task: Task, row: Row, message: Finished) -> None:
        if isinstance(task, Lift):
            self.reporting.discard(task.known)
            self.defects.reported(task, message)
            self.compiled = added(self.compiled, message.compiled)
        else:
            self.defects.hear(task, message)
            self._finish(row, message)

    def _finish(self, row: Row, message: Finished) -> None:
        row.seconds += message.seconds
        row.started = None
        row.detail, row.report = message.detail, message.report
        row.known_failures.update(message.known_failures)
        row.outside.update(message.outside)
        row.known.update(message.shown)
        row.hidden = row.hidden or message.hidden
        self.compiled = added(self.compiled, message.compiled)
        ended = {"falsified": Status.FALSIFIED, "error": Status.ERROR}
        row.status = ended.get(message.status, row.undisturbed)

    def _bury(self, seats: list[_Seat], seat: _Seat, row: Row) -> None:
        seat.process.join(timeout=5)
        died = f"the worker process died with exit code {seat.process.exitcode}"
        if isinstance(seat.task, Lift):
            self.reporting.discard(seat.task.known)
            self.defects.died(seat.task, died)
        else:
            self._lost(seat, row, died)
        seat.task = None
        seats[seats.index(seat)] = self._hire()

    def _lost(self, seat: _Seat, row: Row, died: str) -> None:
        assert seat.task is not None
        row.status, row.started = Status.ERROR, None
        row.detail = f"{died} (seed {seat.task.seed})"
        self._recover(row, died[:1].upper() + died[1:])
        self._tell_unfinished(row)

    def _conclude(self) -> None:
        for row in self.rows.values():
            if row.status is Status.RUNNING:
                self._cut_short(row)
            if row.status is Status.PASSED and 0 < row.examples <= row.outside.total():
                # Nothing was tried that the subject is meant for: nobody may take that for a pass.
                row.status, row.detail = Status.NOT_APPLICABLE, "; ".join(map(str, row.outside))
        self.defects.conclude(self.rows)
        for one in self.defects.all.values():
            self._conclude_known(one)

    def _conclude_known(self, defect: Defect) -> None:
        self._recover_known(defect)
        row = self.rows.get(defect.declared.alone or "")
        if defect.stale and row is not None and row.status is Status.PASSED:
            row.status = Status.UNEXPECTED_PASS
            row.detail = f"declared as a known deviation, but no example failed: {defect.declared.link}"

    def _cut_short(self, row: Row) -> None:
        row.status = row.undisturbed if row.seconds > 0 else Status.WAITING
        if not self.interrupted:
            row.status, row.detail = Status.ERROR, f"still busy {_GRACE_SECONDS:.0f} s after the time was up"
        row.seconds, row.started = row.elapsed, None
        self._recover(row, "The campaign ended")
        self._tell_unfinished(row)

    def _tell_unfinished(self, row: Row) -> None:
        """Keep the input that a subject's own process had in hand, unless a counterexample says more, or Ctrl-C was to blame."""
        saved = self._pending.put_down(row.property_name, kept=row.status is Status.ERROR)
        if saved is not None:
            row.detail += f"; it was running: make replay CASE={saved}"

    def _recover(self, row: Row, why: str) -> None:
        """Report the counterexample that a worker had in hand when it ended."""
        note = f"**{why} before this input was shrunk.**"
        found = self._pending.reported(row.property_name, self._pending.reports, note)
        if found is not None:
            case, directory = found
            row.status, row.detail, row.report = Status.FALSIFIED, case.message, str(directory)

    def _recover_known(self, defect: Defect) -> None:
        """Report the example of a known defect that nobody has shrunk."""
        pending = pending_name(defect.name)
        if defect.report:
            self._pending.forget(pending)
            return
        note = f"{label(defect.name, defect.declared)}\n\n**This input was not shrunk to the end.**"
        found = self._pending.reported(pending, reports_of(self._pending.reports, defect.name), note)
        if found is not None:
            defect.report, defect.standing = str(found[1]), "showed"
            defect.remark = defect.remark or "not shrunk: the time was up"
