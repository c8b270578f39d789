"""One process of a campaign: explores properties, replays the corpus, runs the canary, and sends events to its coordinator.

`main` is the life of the process: it prepares itself, imports the subject, and does tasks until the coordinator sends None or is gone.
Whatever fails is on disk before it is sent.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from statecheck.campaign.canary import run_canary
from statecheck.campaign.conformance import with_xfails
from statecheck.campaign.corpus import CorpusFile, Keeper, read, replayed
from statecheck.campaign.processes.exploration import Exploration, quietly
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
from statecheck.execution import profiles
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import Executor, ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.kernels import launch_counts
from statecheck.kernels.launch_counts import How
from statecheck.subject import KnownDefectMatcher, load
from statecheck.workers.forkserver import Surroundings, kernels_of, move_to
from statecheck.workers.shared_workers import DeviceGone

if TYPE_CHECKING:
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
    """Does tasks in one execution context.

    `isolated` is the port of a subject that runs in a process of its own, `watched` the one that explorations use, and `plain` the same
    without the sanitizer. `troubles` says what could not be done, a sentence for each thing.
    """

    def __init__(self, setting: Setting, pipe: Connection, output: Output | None = None) -> None:
        # What holds for the process is set before the subject is imported, which may look at it.
        if setting.gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = setting.gpu
        profiles.load("nightly")
        if kernels_of(setting.subject, setting.device):
            import torch

            from statecheck.kernels import triton_mode

            torch.set_num_threads(1)
            triton_mode.prepare(setting.device)
        self.setting, self.output = setting, output
        self.events = EventPipe(pipe)
        self.pending = Path(setting.pending or Path(setting.reports) / "pending")
        self.troubles: list[str] = []
        self._beat_at = 0.0
        self.properties = load_properties()
        subject = with_xfails(setting, load(setting.subject))
        self._apart: InWorker | None = None
        self.isolated = self._in_worker() if setting.in_worker else None
        self.watched: Executor = self.isolated or ordinary_port(
            subject, setting.device, sanitized=setting.sanitized, on_call=self.beat
        )
        if subject.sequences is not None and not setting.in_worker:
            subject.sequences.warm_up()
        self.plain = self.watched
        if getattr(self.watched, "watched", None):
            from statecheck.execution.in_process import InProcess

            self.plain = InProcess(load(setting.subject), setting.device, on_call=self.beat)
        self.context = ExecutionContext(subject, self.watched)
        keeps_in, reports = Path(setting.keeps_in), Path(setting.reports)
        self.keeper = Keeper(keeps_in, reports, lambda: subject.module, self.trouble)
        self.known_defects = KnownDefectMatcher(subject.known_deviations, subject.profile)

    def beat(self) -> None:
        """Tell the coordinator that a call begins. A call hangs if no further message comes."""
        now = time.monotonic()
        if now - self._beat_at > BEAT_SECONDS:
            self._beat_at = now
            self.events.send(CallBegan())

    def isolated_port(self) -> InWorker:
        """A port whose subject runs in a process that it may end."""
        if self.isolated is not None:
            return self.isolated
        if self._apart is None:
            self._apart = self._in_worker()
        return self._apart

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

    def run(self, task: Task) -> None:
        """Do a task, and send what came of it."""
        if self.output is not None:
            self.output.clear()
        match task:
            case Explore():
                self.events.send(self.explored(task))
            case Replay():
                path = Path(task.path)
                entry = read(path) or CorpusFile(path, None, "it is gone")
                with quietly():
                    port = self.isolated_port() if task.isolated else self.watched
                    result, case = replayed(entry, self.context.subject, self.setting.device, port)
                content = {} if case is None else case.to_data()
                self.events.send(Replayed(result, content, self.take_launches()))
            case RunCanary():
                try:
                    with quietly():
                        canary = CanaryResult(run_canary(self.context, Path(task.folder)))
                except Exception as error:
                    canary = CanaryResult("", f"{type(error).__name__}: {error}")
                # Its examples count for no property.
                self.context.counts.take()
                self.known_defects.clear()
                self.events.send(canary)

    def explored(self, task: Explore) -> Explored:
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


def preload() -> None:
    """What every worker needs, and what would take each of them a part of a second by itself."""
    from statecheck.reference import situations  # noqa: F401 - it observes, as the oracle's do

    load_properties()


def main(descriptor: int, surroundings: Surroundings, setting: Setting) -> None:
    """The process's life: tasks until None comes, or until the coordinator is gone."""
    # Ctrl-C goes to every process of the terminal; the coordinator ends the workers when it has what they know.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    move_to(*surroundings)
    pipe = Connection(descriptor)
    # Before the subject is imported, which may write to the terminal as every call of it may.
    output = Output(Path(setting.pending or Path(setting.reports) / "pending"))
    try:
        worker = Worker(setting, pipe, output)
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
