"""One process of a campaign: explores one property at a time and tells its coordinator what it sees.

Messages to the worker are `Task`s, or None to stop. Messages from it are `Progress` and `Finished`. A counterexample
is on disk before it is shrunk, so that a worker that dies leaves it to its coordinator.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from hypothesis.errors import Flaky

from properties.harness.case import Case
from properties.harness.compilations import Kernels, take

_PROGRESS_SECONDS = 0.2


@dataclass(frozen=True)
class Setting:
    """What every task of a campaign has in common."""

    subject: str
    device: str
    reports: str


@dataclass(frozen=True)
class Task:
    """Explore one property with up to `max_examples` examples drawn from `seed`."""

    property: str
    seed: int
    max_examples: int


@dataclass(frozen=True)
class Progress:
    """Examples run since the last message."""

    property: str
    examples: int


@dataclass(frozen=True)
class Finished:
    """The end of a task. `status` is "passed", "falsified" or "error"; `detail` the message or the traceback.

    `compiled` is what Triton compiled since the task before.
    """

    property: str
    status: str
    seconds: float
    detail: str = ""
    report: str = ""
    known_failures: tuple[str, ...] = ()
    compiled: Kernels = field(default_factory=dict)


def pending_path(reports: Path, name: str) -> Path:
    """Where the latest failing input of a property stands until its report is written."""
    return reports / "pending" / f"{name}.json"


class Worker:
    """Runs tasks on one bench."""

    def __init__(self, setting: Setting, pipe: Connection) -> None:
        # Imported here because a spawned process pays for torch only once it knows that it is needed.
        import torch

        from properties.harness import profiles, triton_mode
        from properties.harness.port import InProcess
        from properties.harness.registry import load_properties
        from properties.harness.trial import Bench
        from properties.subjects import load

        torch.set_num_threads(1)
        profiles.load("nightly")
        triton_mode.prepare(setting.device)
        self.properties = load_properties()
        self.pipe = pipe
        self.reports = Path(setting.reports)
        subject = load(setting.subject)
        self.bench = Bench(subject, InProcess(subject, setting.device))
        self.bench.on_example = self._count
        self.bench.on_falsified = self._keep
        self._current = ""
        self._unsent = 0
        self._last_sent = 0.0
        self._latest: Case | None = None

    def run(self, task: Task) -> None:
        self._current, self._latest = task.property, None
        self.bench.seed = task.seed
        self.bench.known_failures.clear()
        started = time.monotonic()
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                self.properties[task.property].explore(
                    self.bench, seed=task.seed, max_examples=task.max_examples
                )
            status, detail, report = "passed", "", ""
        except Exception as error:
            status, detail, report = self._failed(error)
        self._send_progress()
        known = tuple(one.link for one in self.bench.known_failures)
        seconds = time.monotonic() - started
        self.pipe.send(Finished(task.property, status, seconds, detail, report, known, take()))

    def _failed(self, error: Exception) -> tuple[str, str, str]:
        from properties.harness.report import write_report
        from properties.harness.trial import Falsified

        if isinstance(error, Falsified):
            case, note = error.case, ""
        elif isinstance(error, Flaky) and self._latest is not None:
            case, note = self._latest, "**This failure did not repeat when the same input was run again.**"
        else:
            return "error", "".join(traceback.format_exception(error)), ""
        directory = write_report(case, self.reports, self.bench.subject.module, note=note)
        pending_path(self.reports, self._current).unlink(missing_ok=True)
        return "falsified", case.message, str(directory)

    def _keep(self, case: Case) -> None:
        self._latest = case
        case.save(pending_path(self.reports, self._current), durable=False)

    def _count(self) -> None:
        self._unsent += 1
        if time.monotonic() - self._last_sent > _PROGRESS_SECONDS:
            self._send_progress()

    def _send_progress(self) -> None:
        self._last_sent = time.monotonic()
        if self._unsent:
            self.pipe.send(Progress(self._current, self._unsent))
            self._unsent = 0


def main(setting: Setting, pipe: Connection) -> None:
    """The process's life: tasks until None comes, or until the coordinator is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.pop("CI", None)
    worker = Worker(setting, pipe)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while (task := pipe.recv()) is not None:
            worker.run(task)
