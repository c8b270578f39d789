"""A campaign: all properties, fresh randomness, all cores, until the time is up.

The coordinator hands tasks to worker processes over pipes, always of the property that has had the least time so
far, and sizes a task by the rate at which the property has run.
"""

from __future__ import annotations

import contextlib
import enum
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

from properties.harness.case import Case
from properties.harness.compilations import Kernels, added
from properties.harness.worker import Finished, Progress, Setting, Task, main, pending_path
from properties.subjects import load

_FIRST_EXAMPLES, _FIRST_LIVES = 10, 2
_LONGEST_SLICE = 3.0
_SHORTEST_SLICE = 0.3
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 10.0
"""How long after the end of the budget a worker may go on shrinking."""


class Status(enum.Enum):
    """What a campaign knows about a property."""

    WAITING = "not reached"
    RUNNING = "running"
    PASSED = "passed"
    KNOWN = "known deviation"
    FALSIFIED = "FALSIFIED"
    UNEXPECTED_PASS = "UNEXPECTED PASS"
    ERROR = "ERROR"
    NOT_APPLICABLE = "not applicable"


@dataclass
class Row:
    """One property's progress. `seconds` counts finished tasks."""

    property_name: str
    status: Status = Status.WAITING
    examples: int = 0
    seconds: float = 0.0
    started: float | None = None
    detail: str = ""
    report: str = ""
    known_failures: set[str] = field(default_factory=set)

    @property
    def elapsed(self) -> float:
        return self.seconds + (time.monotonic() - self.started if self.started is not None else 0.0)

    @property
    def undisturbed(self) -> Status:
        """The status if nothing but declared failures was seen."""
        return Status.KNOWN if self.known_failures else Status.PASSED

    @property
    def rate(self) -> float:
        """Examples per second."""
        return self.examples / self.elapsed if self.elapsed > 0 else 0.0


def _told(row: Row) -> dict[str, Any]:
    seconds = round(row.seconds, 3)
    return {"status": row.status.value, "examples": row.examples, "seconds": seconds, "report": row.report}


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
        known: properties that the subject declares to fail.
        lives: properties of which an example takes as long as many of others.
        seed: every task's seed derives from it.
        watch: called with the campaign after every message, and at least every 0.2 seconds.
    """

    setting: Setting
    properties: list[str]
    budget: float
    workers: int
    seed: int
    skipped: dict[str, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    lives: frozenset[str] = frozenset()
    watch: Callable[[Campaign], None] = lambda campaign: None

    def __post_init__(self) -> None:
        self.rows = {name: Row(name) for name in self.properties}
        for name, reason in self.skipped.items():
            self.rows[name] = Row(name, Status.NOT_APPLICABLE, detail=reason)
        self.started, self._started_at = time.monotonic(), time.time()
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
        self._put_down_logs()
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
        """Write what is known of the campaign as JSON: its setting, its rows, and the kernels that it compiled."""
        content = {
            "subject": self.setting.subject,
            "device": self.setting.device,
            "seed": self.seed,
            "budget": self.budget,
            "interrupted": self.interrupted,
            "properties": {name: _told(row) for name, row in self.rows.items()},
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
        candidates = [
            row for row in self.rows.values() if row.status in (Status.WAITING, Status.PASSED, Status.KNOWN)
        ]
        if not candidates:
            return
        row = min(candidates, key=lambda one: (one.elapsed, self.properties.index(one.property_name)))
        allowed = min(self._slice, self.left * 0.8)
        untried = row.status is Status.WAITING
        if self.left <= 0 or (allowed < _SHORTEST_SLICE and not untried):
            return
        first = _FIRST_LIVES if row.property_name in self.lives else _FIRST_EXAMPLES
        size = first if untried else max(1, int(row.rate * allowed))
        seat.task = Task(row.property_name, self._random.getrandbits(48), size)
        row.status, row.started = Status.RUNNING, time.monotonic()
        # A worker that has died since is found out when it is listened to.
        with contextlib.suppress(BrokenPipeError):
            seat.pipe.send(seat.task)

    def _receive(self, seats: list[_Seat], seat: _Seat) -> None:
        assert seat.task is not None
        row = self.rows[seat.task.property]
        try:
            message: Any = seat.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._bury(seats, seat, row)
            return
        if isinstance(message, Progress):
            row.examples += message.examples
        elif isinstance(message, Finished):
            self._finish(row, message)
            seat.task = None

    def _finish(self, row: Row, message: Finished) -> None:
        row.seconds += message.seconds
        row.started = None
        row.detail, row.report = message.detail, message.report
        row.known_failures.update(message.known_failures)
        self.compiled = added(self.compiled, message.compiled)
        ended = {"falsified": Status.FALSIFIED, "error": Status.ERROR}
        row.status = ended.get(message.status, row.undisturbed)

    def _bury(self, seats: list[_Seat], seat: _Seat, row: Row) -> None:
        seat.process.join(timeout=5)
        assert seat.task is not None
        row.status, row.started = Status.ERROR, None
        row.detail = f"the worker process died with exit code {seat.process.exitcode} (seed {seat.task.seed})"
        self._recover(row, f"The worker process died with exit code {seat.process.exitcode}")
        self._tell_unfinished(row)
        seat.task = None
        seats[seats.index(seat)] = self._hire()

    def _conclude(self) -> None:
        for row in self.rows.values():
            if row.status is Status.RUNNING:
                self._cut_short(row)
            if row.status is Status.PASSED and row.property_name in self.known:
                row.status = Status.UNEXPECTED_PASS
                row.detail = "declared as a known deviation, but no example failed"

    def _cut_short(self, row: Row) -> None:
        row.status = row.undisturbed if row.seconds > 0 else Status.WAITING
        if not self.interrupted:
            row.status, row.detail = Status.ERROR, f"still busy {_GRACE_SECONDS:.0f} s after the time was up"
        row.seconds, row.started = row.elapsed, None
        self._recover(row, "The campaign ended")
        self._tell_unfinished(row)

    def _put_down_logs(self) -> None:
        """What a campaign that was killed had in hand becomes cases, before logs of the same names are written."""
        from properties.harness.device.log import recover_all

        recover_all(Path(self.setting.reports) / "pending")

    def _tell_unfinished(self, row: Row) -> None:
        """Keep the input that a subject's own process had in hand, unless a counterexample says more, or Ctrl-C was to blame."""
        from properties.harness.device.log import put_down, running_path

        path = running_path(Path(self.setting.reports), row.property_name)
        if row.status is not Status.ERROR:
            path.unlink(missing_ok=True)
        elif path.exists() and (saved := put_down(path)) is not None:
            row.detail += f"; it was running: make replay CASE={saved}"

    def _recover(self, row: Row, why: str) -> None:
        """Report the counterexample that a worker had in hand when it ended."""
        from properties.harness.report import write_report

        reports = Path(self.setting.reports)
        path = pending_path(reports, row.property_name)
        if not path.exists() or path.stat().st_mtime < self._started_at:
            return
        case = Case.load(path)
        note = f"**{why} before this input was shrunk.**"
        directory = write_report(case, reports, load(self.setting.subject).module, note=note)
        path.unlink()
        row.status, row.detail, row.report = Status.FALSIFIED, case.message, str(directory)
