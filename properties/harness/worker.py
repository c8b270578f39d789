"""One process of a campaign: explores one property at a time and tells its coordinator what it sees.

Messages to the worker are `Task`s, or None to stop. Messages from it are `Progress` and `Finished`. A counterexample
is on disk before it is shrunk, so that a worker that dies leaves it to its coordinator. Where the subject runs in a process
of its own (see `properties.device`), what it is about to run is on disk as well.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis.errors import Flaky

from properties.harness.case import Case
from properties.harness.compilations import Kernels, added, take
from properties.harness.device.forkserver import die_with_parent, server_for

if TYPE_CHECKING:
    from properties.harness.device.port import InWorker
    from properties.harness.execution.confirm import Confirmation
    from properties.harness.registry import Property

_DID_NOT_REPEAT = "**This failure did not repeat when the same input was run again.**"
_PROGRESS_SECONDS = 0.2


@dataclass(frozen=True)
class Setting:
    """What every task of a campaign has in common.

    `isolated`: the subject runs in a process that can be killed, and that has `time_limit` seconds for each call. Where it is
    None, this is so on every device but the CPU. `sanitized`: where kernels are interpreted, the sanitizer watches; it
    always does in a process of its own. `share` is where workers are shared (see `device.share`), `gpu` the index of the only GPU to
    use, "" for the first. `as_new`: what the subject declares as known is taken for new.
    """

    subject: str
    device: str
    reports: str
    isolated: bool | None = None
    time_limit: float = 30.0
    sanitized: bool = True
    share: str = ""
    gpu: str = ""
    as_new: bool = field(default=False, kw_only=True)

    @property
    def in_worker(self) -> bool:
        return self.device != "cpu" if self.isolated is None else self.isolated


@dataclass(frozen=True)
class Task:
    """Explore one property with up to `max_examples` examples drawn from `seed`.

    `sanitized`: the sanitizer watches, where it does in the campaign.
    """

    property: str
    seed: int
    max_examples: int
    sanitized: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class Progress:
    """Examples run since the last message."""

    property: str
    examples: int


@dataclass(frozen=True)
class Finished:
    """The end of a task. `status` is "passed", "falsified" or "error"; `detail` the message or the traceback.

    `compiled` is what Triton compiled since the task before, `outside` how many examples said nothing, by the reason. `shown` is
    how many showed a known defect, by its name, and `hidden` whether one was the sanitizer's finding, behind which nothing is seen;
    `remark` is what is to be told of a report besides.
    """

    property: str
    status: str
    seconds: float
    detail: str = ""
    report: str = ""
    known_failures: tuple[str, ...] = ()
    compiled: Kernels = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    hidden: bool = False
    remark: str = ""


def pending_path(reports: Path, name: str) -> Path:
    """Where the latest failing input of a property stands until its report is written."""
    return reports / "pending" / f"{name}.json"


class Worker:
    """Runs tasks on one bench."""

    def __init__(self, setting: Setting, pipe: Connection) -> None:
        if setting.gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = setting.gpu
        if setting.in_worker and not setting.share:
            # It imports what it needs while this process does.
            server_for(setting.device)
        # Imported here because a spawned process pays for torch only once it knows that it is needed.
        import torch

        from properties.harness import profiles, triton_mode
        from properties.harness.execution.example import Bench
        from properties.harness.port import ordinary_port
        from properties.harness.registry import load_properties
        from properties.subjects import load

        torch.set_num_threads(1)
        profiles.load("nightly")
        triton_mode.prepare(setting.device)
        self.properties = load_properties()
        self.pipe = pipe
        self.reports = Path(setting.reports)
        self.setting = setting
        subject = load(setting.subject)
        self._isolated = self._in_worker() if setting.in_worker else None
        self.bench = Bench(
            subject,
            self._isolated or ordinary_port(subject, setting.device, sanitized=setting.sanitized),
        )
        self.bench.on_example = self._count
        self.bench.on_falsified = self._keep
        self.troubles: list[str] = []
        """What could not be written, a sentence for each place and reason."""
        self._current = ""
        self._unsent = 0
        self._last_sent = 0.0
        self._latest: Case | None = None
        self._last_note = ""

    def _in_worker(self) -> InWorker:
        from properties.harness.device.port import InWorker

        setting = self.setting
        port = InWorker(setting.subject, setting.device, time_limit=setting.time_limit, share=setting.share)
        # Or else the first property would be taken for a slow one.
        port.warm_up()
        return port

    def run(self, task: Task) -> None:
        self._begin(task)
        started = time.monotonic()
        status, detail, report = self._explored(task)
        self._send_progress()
        known = tuple(one.link for one in self.bench.known_failures)
        seconds = time.monotonic() - started
        if self._isolated is not None:
            self._isolated.end_property()
        compiled = self._take_compilations()
        self.pipe.send(
            self._finished(
                Finished(
                    task.property,
                    status,
                    seconds,
                    detail,
                    report,
                    known,
                    compiled,
                    dict(self.bench.counts.outside + self.bench.counts.not_offered),
                )
            )
        )

    def _finished(self, finished: Finished) -> Finished:
        return finished

    def _begin(self, task: Task) -> None:
        self._current, self._latest = task.property, None
        self.bench.seed = task.seed
        self.bench.known_failures.clear()
        self.bench.counts.take()
        if self._isolated is not None:
            from properties.harness.device.log import running_path

            log, sentence = running_path(self.reports, task.property), self.properties[task.property].sentence
            self._isolated.begin_property(task.property, sentence, log=log, seed=task.seed)

    def _take_compilations(self) -> Kernels:
        ours = take()
        return ours if self._isolated is None else added(ours, self._isolated.take_compilations())

    def _explored(self, task: Task) -> tuple[str, str, str]:
        """Status, detail and report of a task."""
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                self._property(task.property).explore(
                    self.bench, seed=task.seed, max_examples=task.max_examples
                )
        except Exception as error:
            return self._failed(error)
        return "passed", "", ""

    def _property(self, name: str) -> Property:
        return self.properties[name]

    def _failed(self, error: Exception) -> tuple[str, str, str]:
        from properties.harness.execution.example import Falsified

        if isinstance(error, Falsified):
            case, note = error.case, ""
        elif isinstance(error, Flaky) and self._latest is not None:
            case, note = self._latest, _DID_NOT_REPEAT
        else:
            return "error", "".join(traceback.format_exception(error)), ""
        return "falsified", case.message, str(self._reported(case, note))

    def _reported(self, case: Case, note: str) -> Path:
        """The report's directory. What the campaign announces is complete there, and only then no longer pending."""
        from properties.harness.report import write_report
        from properties.harness.witness import explained

        module = self.bench.subject.module
        directory = write_report(case, self._reports, module, note=note)
        if self._isolated is not None:
            note = " ".join(filter(None, (note, self._confirmed(case).note)))
        self._last_note = note
        write_report(explained(case, self.bench.subject), self._reports, module, note=note)
        self._pending.unlink(missing_ok=True)
        return directory

    def _confirmed(self, case: Case) -> Confirmation:
        from properties.harness.device.port import InWorker
        from properties.harness.execution.confirm import confirm

        setting = self.setting
        return confirm(
            case,
            lambda: InWorker(setting.subject, setting.device, time_limit=setting.time_limit, spare=False),
        )

    def close(self) -> None:
        if self._isolated is not None:
            self._isolated.close()

    def _keep(self, case: Case) -> None:
        self._latest = case
        try:
            case.save(self._pending, durable=False)
        except OSError as error:
            # Or else a full disk would be taken for what fails, and shrunk.
            self._trouble(self._pending.parent, error)

    def _trouble(self, place: Path, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        told = f"{place} could not be written: {why}"
        if told not in self.troubles:
            self.troubles.append(told)

    @property
    def _reports(self) -> Path:
        return self.reports

    @property
    def _pending(self) -> Path:
        return pending_path(self.reports, self._current)

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
    live(Worker, setting, pipe)


def live(kind: type[Worker], setting: Setting, pipe: Connection) -> None:
    """As `main`, for workers of any kind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    os.environ.pop("CI", None)
    worker = kind(setting, pipe)
    # What has been imported stays; there is no need to look through it again and again.
    gc.collect()
    gc.freeze()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while (task := pipe.recv()) is not None:
            worker.run(task)
    worker.close()
    gc.unfreeze()
