"""One process of a campaign: explores properties, replays the corpus, runs the canary, and sends events to its coordinator.

Whatever fails is on disk before it is sent.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecheck.campaign.processes.output import Output
from statecheck.campaign.processes.tasks import (
    BEAT_SECONDS,
    CallBegan,
    CanaryResult,
    DeviceLost,
    Event,
    Explore,
    Explored,
    Replay,
    Replayed,
    RunCanary,
    Setting,
    Task,
    WorkerReady,
)
from statecheck.kernels import launch_counts
from statecheck.workers.forkserver import kernels_of
from statecheck.workers.inherited import Surroundings, move_to
from statecheck.workers.shared_workers import DeviceGone

if TYPE_CHECKING:
    from statecheck.execution.executors import Executor
    from statecheck.kernels.launch_counts import How
    from statecheck.workers.port import InWorker


class EventPipe:
    """The worker's end of the pipe to the coordinator. A process that the subject has forked sends nothing, and ends."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._owner = pipe, os.getpid()

    def send(self, event: Event) -> None:
        if os.getpid() != self._owner:
            os._exit(1)
        self._pipe.send(event)


class Worker:
    """Does tasks in one execution context."""

    def __init__(self, setting: Setting, pipe: Connection) -> None:
        self.output: Output | None = None
        self._prepare_process(setting)
        from statecheck.campaign.conformance import with_xfails
        from statecheck.campaign.corpus import Keeper
        from statecheck.campaign.known_defects import KnownDefectMatcher
        from statecheck.execution.example import ExecutionContext
        from statecheck.execution.executors import ordinary_port
        from statecheck.execution.registry import load_properties
        from statecheck.subject import load

        self.setting = setting
        self.events = EventPipe(pipe)
        self.pending = Path(setting.pending or Path(setting.reports) / "pending")
        self.troubles: list[str] = []
        """What could not be done, a sentence for each thing."""
        self._beat_at = 0.0
        self.properties = load_properties()
        subject = with_xfails(setting, load(setting.subject))
        self.isolated = self._in_worker() if setting.in_worker else None
        self.watched: Executor = self.isolated or ordinary_port(
            subject, setting.device, sanitized=setting.sanitized, on_call=self.beat
        )
        self._apart: InWorker | None = None
        if subject.sequences is not None and not setting.in_worker:
            subject.sequences.warm_up()
        self.plain = self._without_sanitizer()
        self.context = ExecutionContext(subject, self.watched)
        keeps_in, reports = Path(setting.keeps_in), Path(setting.reports)
        self.keeper = Keeper(keeps_in, reports, lambda: subject.module, self.trouble)
        self.known_defects = KnownDefectMatcher(subject.known_deviations, subject.profile)

    @staticmethod
    def _prepare_process(setting: Setting) -> None:
        """Set what holds for the process, before anything is imported that looks at it."""
        if setting.gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = setting.gpu
        from statecheck.execution import profiles

        profiles.load("nightly")
        if kernels_of(setting.subject, setting.device):
            import torch

            from statecheck.kernels import triton_mode

            torch.set_num_threads(1)
            triton_mode.prepare(setting.device)

    def beat(self) -> None:
        """Tell the coordinator that a call begins. A call hangs if no further message comes."""
        now = time.monotonic()
        if now - self._beat_at > BEAT_SECONDS:
            self._beat_at = now
            self.events.send(CallBegan())

    def _in_worker(self) -> InWorker:
        from statecheck.workers.port import InWorker

        setting = self.setting
        port = InWorker(
            setting.subject,
            setting.device,
            time_limit=setting.time_limit,
            on_call=self.beat,
            share=setting.share,
        )
        # Or else the first property would be taken for a slow one.
        port.warm_up()
        return port

    def isolated_port(self) -> InWorker:
        """A port whose subject runs in a process that it may end."""
        if self.isolated is not None:
            return self.isolated
        if self._apart is None:
            self._apart = self._in_worker()
        return self._apart

    def _without_sanitizer(self) -> Executor:
        if not getattr(self.watched, "watched", None):
            return self.watched
        from statecheck.execution.executors.in_process import InProcess
        from statecheck.subject import load

        return InProcess(load(self.setting.subject), self.setting.device, on_call=self.beat)

    def run(self, task: Task) -> None:
        """Do a task, and send what came of it."""
        if self.output is not None:
            self.output.clear()
        if isinstance(task, Explore):
            self.events.send(self.explored(task))
        elif isinstance(task, Replay):
            self.events.send(self._replayed(Path(task.path), isolated=task.isolated))
        else:
            self.events.send(self._run_canary(task))

    def explored(self, task: Explore) -> Explored:
        from statecheck.campaign.processes.exploration import Exploration

        return Exploration(self, task).run()

    def take_launches(self) -> Counter[How]:
        """Kernels launched since the last time that this was asked, in this process and in those of isolated subjects."""
        ports = (port for port in (self.isolated, self._apart) if port is not None)
        return sum((port.take_launches() for port in ports), launch_counts.take())

    def trouble(self, sentence: str) -> None:
        """Note that something could not be done."""
        if sentence not in self.troubles:
            self.troubles.append(sentence)

    def close(self) -> None:
        if self.output is not None:
            self.output.close()
        for port in (self.isolated, self._apart):
            if port is not None:
                port.close()

    def _replayed(self, path: Path, *, isolated: bool) -> Replayed:
        from statecheck.campaign.corpus import CorpusFile, read, replayed

        entry = read(path) or CorpusFile(path, None, "it is gone")
        with quietly():
            port = self.isolated_port() if isolated else self.watched
            result, case = replayed(entry, self._judged, self.setting.device, port)
        launched = self.take_launches()
        if case is None:
            return Replayed(result, launched=launched)
        return Replayed(result, case.to_data(), launched=launched)

    @cached_property
    def _judged(self) -> Any:
        """The subject with the defects that are taken for known."""
        import copy

        subject = copy.copy(self.context.subject)
        subject.known_deviations = tuple(self.known_defects.declared.values())
        return subject

    def _run_canary(self, task: RunCanary) -> CanaryResult:
        from statecheck.campaign.canary import run_canary

        try:
            with quietly():
                return CanaryResult(run_canary(self.context, Path(task.folder)))
        except Exception as error:
            return CanaryResult("", f"{type(error).__name__}: {error}")
        finally:
            # Its examples count for no property.
            self.context.counts.take()
            self.known_defects.clear()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """What properties and subjects print stays out of the display."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def preload() -> None:
    """What every worker needs, and what would take each of them a part of a second by itself."""
    from statecheck.execution.registry import load_properties
    from statecheck.reference import situations  # noqa: F401 - it observes, as the oracle's do

    load_properties()


def main(descriptor: int, surroundings: Surroundings, setting: Setting) -> None:
    """The process's life: tasks until None comes, or until the coordinator is gone."""
    # Ctrl-C goes to every process of the terminal; the coordinator ends the workers when it has what they know.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    move_to(*surroundings)
    # Where it is set, Hypothesis takes another profile when it is imported.
    os.environ.pop("CI", None)
    pipe = Connection(descriptor)
    # Before the subject is imported, which may write to the terminal as every call of it may.
    output = Output(Path(setting.pending or Path(setting.reports) / "pending"))
    try:
        worker = Worker(setting, pipe)
        worker.output = output
    except DeviceGone as gone:
        with contextlib.suppress(OSError):
            pipe.send(DeviceLost(str(gone)))
        return
    # What has been imported stays; there is no need to look through it again and again.
    gc.freeze()
    with contextlib.suppress(EOFError, OSError):
        worker.events.send(WorkerReady())
        while (task := pipe.recv()) is not None:
            worker.run(task)
    worker.close()
    gc.unfreeze()
