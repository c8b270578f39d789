"""One process of a campaign: explores properties, replays the corpus, runs the canary, and sends events to its coordinator.

`main` is the life of the process: it prepares itself, imports the subject, and does tasks until the coordinator sends None or is gone.
Whatever fails is on disk before it is sent.

An `Exploration` is one search of one property. Hypothesis draws examples and shrinks the first that fails; the exploration observes them. It ends
the search when its time is up or enough examples were compared, and has each failing case on disk before it goes on. After the search, the smallest
case is confirmed, attributed and reported, and failures of other kinds that were met on the way go to the corpus as they are.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, wraps
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hypothesis.errors import Flaky

from statecheck.campaign.canary import run_canary
from statecheck.campaign.conformance import with_xfails
from statecheck.campaign.corpus import CorpusFile, CorpusWriter, Pending, not_written, read, replayed
from statecheck.campaign.tasks import (
    BEAT_SECONDS,
    CallBegan,
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
    SearchEnded,
    Setting,
    Task,
    WorkerReady,
)
from statecheck.campaign.worker_output import Output
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.case.values import Outcome, Step
from statecheck.execution import profiles
from statecheck.execution.example import Example, ExecutionContext, Falsified, Observer
from statecheck.execution.executors import Executor, ordinary_port
from statecheck.execution.property import ExampleMachine, MachineProperty
from statecheck.execution.registry import Property, load_properties
from statecheck.execution.verdict import Counts
from statecheck.kernels import launch_counts
from statecheck.kernels.launch_counts import How
from statecheck.reference.situations import take
from statecheck.subject import KnownDefectMatcher, KnownDeviation, Subject, load
from statecheck.workers.forkserver import Surroundings, kernels_of, move_to
from statecheck.workers.port import InWorker, NoWorkerError

_CUT_SHORT = "**The time was up while smaller inputs were tried: there may be one.**"
_AS_FOUND = "**Several properties had failed before: this input was neither shrunk nor run again.**"
_NOT_SHRUNK = "**Met on the way to another failure of this property, and not shrunk.**"
_PROGRESS_SECONDS = 0.2
_MOST_BESIDE = 20
"""Failures of other kinds that one exploration keeps beside its own."""


class _TimeIsUp(BaseException):
    """The exploration has had its time. No `Exception`: it is nothing that the example shows."""


class DeviceGone(BaseException):
    """No worker gets ready on the device any more. No `Exception`, because a search must not take it for a failing example."""


class IsolatedPort(InWorker):
    """The port of a process that searches, whose subject runs in another process."""

    def execute_all(self, steps: Sequence[Step]) -> list[Outcome | None]:
        try:
            return super().execute_all(steps)
        except NoWorkerError as error:
            raise DeviceGone(str(error)) from error


class Exploration(Observer):
    """Explores in the execution context of a worker, and leaves the context as it was."""

    def __init__(self, worker: Worker, task: Explore) -> None:
        self.worker, self.task = worker, task
        self.context = worker.context
        self.tested = worker.properties[task.property]
        self._isolated = worker.isolated_port() if task.isolated else worker.isolated
        self._began = time.monotonic()
        self._until = self._began + task.patience
        self._search_deadline = self._diagnosis_deadline = self._began + task.deadline
        self._late = self._over = False
        self._marks, self._launched = Counter[str](), Counter[How]()
        self._reported, self._reported_at = Counts(), 0.0
        self._tried, self._exhausted = 0, False
        self._pending = Pending(worker.pending, worker.warn, self._into_corpus)
        self._latest: Case | None = None
        """The case that failed last."""
        self._failed_at: float | None = None
        self._failing = Counter[str]()
        """Failing examples by bucket."""
        self._found: list[Found] = []

    def run(self) -> Explored:
        worker, context, task = self.worker, self.context, self.task
        context.counts.take()
        # Launched for other tasks, which is nothing that this property took.
        launched_before = worker.take_launches()
        context.seed, context.configuration = task.seed, task.configuration
        context.known_failures.clear()
        worker.known_defects.clear()
        context.port = self._isolated or (worker.watched if task.sanitized else worker.bounded)
        faults_before, gone = 0, ""
        if self._isolated is not None:
            self._isolated.begin_property()
            faults_before = self._isolated.faults.total()
        context.observer = self
        try:
            status, detail = self._search()
        except DeviceGone as error:
            if worker.isolated is None:
                # The campaign runs the subject in the workers, and goes on without this task.
                status, detail = "error", str(error)
            else:
                status, detail, gone = "passed", "", str(error)
        finally:
            context.port, context.configuration, context.observer = worker.watched, "", Observer()
        self._keep_others()
        self._pending.settle(task.property)
        warnings = (*worker.warnings, *worker.known_defects.errors)
        worker.warnings = []
        # Those since the last message about progress.
        counts = context.counts.take()
        counts.examples -= self._reported.examples
        counts.compared -= self._reported.compared
        return Explored(
            property=task.property,
            status=status,
            seconds=time.monotonic() - self._began,
            detail=detail,
            counts=counts,
            known=dict(worker.known_defects.matched),
            hidden=worker.known_defects.hidden,
            found=tuple(self._found),
            failing=dict(self._failing),
            faults=self._isolated.faults.total() - faults_before if self._isolated is not None else 0,
            late=self._late,
            shrinking=time.monotonic() - self._failed_at if self._failed_at is not None else 0.0,
            marks=dict(self._marks),
            launched=launched_before + self._launched + worker.take_launches(),
            gone=gone,
            tried=self._tried,
            exhausted=self._exhausted,
            warnings=warnings,
        )

    # The search.

    def _search(self) -> tuple[str, str]:
        """Try examples until the search ends, and report what it found; status and detail."""
        task, tested = self.task, noted(self.tested, self._marks.update)
        try:
            try:
                with quietly():
                    if task.inputs is None:
                        tested.explore(
                            self.context,
                            seed=task.seed,
                            max_examples=task.max_examples,
                            simplest=task.simplest,
                        )
                    else:
                        for number in task.inputs.tried(tested, self.context):
                            self._tried += number
                        self._exhausted = True
            finally:
                # Now: what is run again for reports is no part of the search.
                self._launched += self.worker.take_launches()
        except _TimeIsUp:
            return self._cut_short()
        except Exception as error:
            status, detail = self._failed(error)
            # A state machine that ends between two draws is taken for one that draws something else each time.
            return self._cut_short() if self._over and status == "error" else (status, detail)
        return "passed", ""

    def _failed(self, error: Exception) -> tuple[str, str]:
        if _has_memory_error(error):
            # The subject's own would be an outcome. This worker has become too large, and a new one is not.
            raise error
        self.worker.events.send(SearchEnded())
        if isinstance(error, Falsified):
            return self._report(error.case, "")
        if self._latest is None:
            return "error", "".join(traceback.format_exception(error))
        if isinstance(error, Flaky):
            return self._report(self._latest, "", flaky=True)
        brief = f"{type(error).__name__}: {error}".splitlines()[0]
        self.worker.warn(f"{self.task.unit}: an error ended the search for a smaller input: {brief}")
        note = f"**An error ended the search for a smaller input: {brief}**"
        return self._report(self._latest, note, shrunk=False)

    def _cut_short(self) -> tuple[str, str]:
        self.worker.events.send(SearchEnded())
        if self._latest is None:
            return "passed", ""
        return self._report(self._latest, _AS_FOUND if self.task.as_found else _CUT_SHORT, shrunk=False)

    # The examples, as an observer sees them.

    def example_begins(self) -> None:
        now = time.monotonic()
        # Only here: an example that was begun in time gets all the time that its calls may take. What an exploration has found is shrunk
        # as long as there is time.
        if not self._is_enough():
            self._late = now > self._search_deadline or (now > self._until and self._latest is None)
        if self._late or self._is_enough():
            self._over = True
            raise _TimeIsUp
        if now - self._reported_at > _PROGRESS_SECONDS:
            self._tell_progress()

    def example_ended(self) -> None:
        # At the next `example_begins`, Hypothesis has already drawn another example.
        if self._is_enough():
            self._over = True
            raise _TimeIsUp

    def _is_enough(self) -> bool:
        return 0 < self.task.enough <= self.context.counts.compared and self._latest is None

    def known_defect(self, subject: Subject, case: Case) -> KnownDeviation | None:  # noqa: ARG002
        return self.worker.known_defects.known(case)

    def was_met_before(self, case: Case) -> bool:
        bucket = bucket_of(case).id
        self._failing[bucket] += 1
        return bucket in self.task.known

    def falsified(self, case: Case) -> None:
        is_first = self._latest is None
        self._latest = case
        # On disk before anything is sent.
        kept = self._pending.cases
        if bucket_of(case).id in kept or len(kept) <= _MOST_BESIDE:
            self._pending.keep(self.task.property, case)
        else:
            what = f"fails in more than {_MOST_BESIDE} ways at once, and the others were not kept"
            self.worker.warn(f"{self.task.property}: {what}")
        if is_first:
            self._failed_at = time.monotonic()
            seconds = 0.0 if self.task.as_found else self.task.shrinking
            self._search_deadline = min(self._search_deadline, time.monotonic() + seconds)
            self._tell_progress()
            self.worker.events.send(ExampleFailed(self.task.property))

    def property_raised(self, case: Case, error: Exception) -> None:
        folder = Path(self.worker.setting.reports)
        try:
            error.add_note(self.tested.keep_unread(case, folder))
        except OSError as second:
            self.worker.warn(not_written(folder, second))

    def _tell_progress(self) -> None:
        self._reported_at = time.monotonic()
        if self.worker.output is not None:
            # The file that the subject's output goes to stays small.
            self.worker.output.clear(if_large=True)
        counts, reported = self.context.counts, self._reported
        examples, compared = counts.examples - reported.examples, counts.compared - reported.compared
        if examples > 0:
            reported.examples, reported.compared = counts.examples, counts.compared
            self.worker.events.send(ExamplesRun(self.task.property, examples, compared))

    # What was found.

    def _report(self, case: Case, note: str, *, shrunk: bool = True, flaky: bool = False) -> tuple[str, str]:
        """Confirm, attribute and report the smallest case that was found; status and detail."""
        from statecheck.diagnose.diagnosis import SECONDS, Scene, as_found, diagnose, explain, note_of

        worker, setting, subject = self.worker, self.worker.setting, self.context.subject
        own = bucket_of(case).id
        case = replace(case, first_seen=dict(setting.first_seen))
        if self.task.as_found:
            diagnosis = as_found(case)
        else:
            fresh = partial(
                InWorker, setting.subject, setting.device, time_limit=setting.time_limit, spare=False
            )
            left = max(0.0, self._diagnosis_deadline - time.monotonic())
            scene = Scene(subject, self.context.port, fresh, self.context.earlier, min(SECONDS, left))
            diagnosis = diagnose(case, scene)
        sanitizer = "" if self.task.sanitized else self._with_sanitizer(diagnosis.case)
        near = worker.known_defects.nearest(diagnosis.case)
        note = " ".join(filter(None, (note, sanitizer, note_of(diagnosis, flaky=flaky), near)))
        # Before it is explained: whatever happens to the report, this stands.
        stands = self._into_corpus(diagnosis.case)
        alike = [bucket for bucket in self._failing if bucket not in self.task.known and bucket != own]
        diagnosis = explain(diagnosis, subject)
        report = worker.corpus_writer.report(diagnosis.case, note)
        self._found.append(
            Found((own, *alike), diagnosis.case.to_data(), report, stands, note, shrunk=shrunk)
        )
        return "falsified", diagnosis.case.message

    def _with_sanitizer(self, case: Case) -> str:
        """A sentence about the finding that hid the case while the sanitizer watched."""
        from statecheck.diagnose.replay import ends_earlier

        earlier = ends_earlier(case, self.worker.watched)
        defect = self.worker.known_defects.find(earlier) if earlier is not None else None
        if defect is None:
            return "**Found while the sanitizer did not watch.**"
        known = f"known defect {defect.name}, {defect.link}"
        return (
            "**Found while the sanitizer did not watch. Where it does, the same input ends earlier, with the "
            f"{known}, which may be the cause of this.**"
        )

    def _keep_others(self) -> None:
        """Failures of other kinds that were met on the way stand in the corpus too, as they were met."""
        from statecheck.diagnose.diagnosis import with_functions_called

        own = {found.buckets[0] for found in self._found}
        for bucket, met in self._pending.cases.items():
            if bucket not in own:
                case = with_functions_called(met, self.context.subject)
                stands = self._into_corpus(case)
                self._found.append(Found((bucket,), case.to_data(), "", stands, _NOT_SHRUNK, shrunk=False))

    def _into_corpus(self, case: Case) -> str:
        return self.worker.corpus_writer.keep(case, dict(self.worker.setting.first_seen))


def noted(tested: Property, note: Callable[[frozenset[str]], None]) -> Property:
    """The same property, which tells after every example which marks this one has reached."""
    if isinstance(tested, MachineProperty):
        machine = tested.machine

        def begin(self: ExampleMachine, trial: Example) -> None:
            take()
            machine.__init__(self, trial)

        def teardown(self: ExampleMachine) -> None:
            machine.teardown(self)
            note(take())

        noted_machine = type(machine.__name__, (machine,), {"__init__": begin, "teardown": teardown})
        return replace(tested, machine=noted_machine)

    @wraps(tested.body)
    def body(trial: Example, **drawn: Any) -> None:
        # What came up while the example was drawn, or in one that was thrown away, is no part of it.
        take()
        try:
            tested.body(trial, **drawn)
        finally:
            note(take())

    return replace(tested, body=body)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep the output of properties and subjects out of the display."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _has_memory_error(error: BaseException) -> bool:
    """Whether memory was short in an error of Hypothesis, which may say that another error came and went."""
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return isinstance(error, MemoryError) or any(map(_has_memory_error, parts))


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

    `isolated` is the port of a subject that runs in a process of its own, and `watched` the port that explorations use. `bounded` reports only
    accesses outside of all storages, and offsets that overflow. `warnings` says what could not be done, a sentence for each thing.
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
        self.warnings: list[str] = []
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
        self.bounded = self.watched
        if getattr(self.watched, "watched", None):
            from statecheck.execution.in_process import InProcess

            self.bounded = InProcess(load(setting.subject), setting.device, bounded=True, on_call=self.beat)
        self.context = ExecutionContext(subject, self.watched)
        keeps_in, reports = Path(setting.keeps_in), Path(setting.reports)
        self.corpus_writer = CorpusWriter(keeps_in, reports, lambda: subject, self.warn)
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
        setting = self.setting
        port = IsolatedPort(
            setting.subject,
            setting.device,
            time_limit=setting.time_limit,
            on_call=self.beat,
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
                self.events.send(Exploration(self, task).run())
            case Replay():
                from statecheck.diagnose.diagnosis import with_functions_called

                path = Path(task.path)
                entry = read(path) or CorpusFile(path, None, "it is gone")
                ends_process = entry.case is not None and entry.case.fault is not None
                if ends_process:
                    # Calls in another process have limits of their own, behind which this process is not silent for too long.
                    self.events.send(SearchEnded())
                with quietly():
                    port = self.isolated_port() if task.isolated or ends_process else self.watched
                    result, case = replayed(entry, self.context.subject, self.setting.device, port)
                    if case is not None and case.failure is not None:
                        case = with_functions_called(case, self.context.subject)
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

    def take_launches(self) -> Counter[How]:
        """Kernels launched since the last time that this was asked, in this process and in those of isolated subjects."""
        ports = (port for port in (self.isolated, self._apart) if port is not None)
        return sum((port.take_launches() for port in ports), launch_counts.take())

    def warn(self, sentence: str) -> None:
        """Note that something could not be done."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def close(self) -> None:
        if self.output is not None:
            self.output.close()
        for port in (self.isolated, self._apart):
            if port is not None:
                port.close()


def preload() -> None:
    """Import the modules that every worker needs, which take a part of a second."""
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
    except NoWorkerError as gone:
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
