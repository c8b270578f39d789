"""One exploration of one property in a worker: what it counts, what it finds, and when it ends.

Hypothesis draws examples and shrinks the first that fails; the exploration observes them. It ends the search when its time is up or enough
examples were compared, and has each failing case on disk before it goes on. After the search, the smallest case is confirmed, attributed
and reported, and failures of other kinds that were met on the way go to the corpus as they are.
"""

from __future__ import annotations

import contextlib
import io
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis.errors import Flaky

from statecheck.campaign.corpus import not_written
from statecheck.campaign.folder import Pending
from statecheck.campaign.marks import noted
from statecheck.campaign.processes.tasks import (
    ExampleFailed,
    ExamplesRun,
    Explore,
    Explored,
    Found,
    SearchEnded,
)
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.execution.example import Falsified, Observer
from statecheck.execution.verdict import Counts
from statecheck.kernels.launch_counts import How
from statecheck.subject import KnownDeviation, Subject
from statecheck.workers.shared_workers import DeviceGone

if TYPE_CHECKING:
    from statecheck.campaign.processes.worker import Worker

_CUT_SHORT = "**The time was up while smaller inputs were tried: there may be one.**"
_AS_FOUND = "**Several properties had failed before: this input was neither shrunk nor run again.**"
_NOT_SHRUNK = "**Met on the way to another failure of this property, and not shrunk.**"
_PROGRESS_SECONDS = 0.2
_MOST_BESIDE = 20
"""Failures of other kinds that one exploration keeps beside its own."""


class _TimeIsUp(BaseException):
    """The exploration has had its time. No `Exception`: it is nothing that the example shows."""


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
        self._pending = Pending(worker.pending, worker.trouble, self._into_corpus)
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
        context.port = self._isolated or (worker.watched if task.sanitized else worker.plain)
        faults_before, gone = 0, ""
        if self._isolated is not None:
            self._isolated.begin_property()
            faults_before = self._isolated.faults.total()
        context.observer = self
        try:
            status, detail = self._search()
        except DeviceGone as error:
            status, detail, gone = "passed", "", str(error)
        finally:
            context.port, context.configuration, context.observer = worker.watched, "", Observer()
        self._keep_others()
        self._pending.settle(task.property)
        troubles = (*worker.troubles, *worker.known_defects.errors)
        worker.troubles = []
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
            troubles=troubles,
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
        self.worker.trouble(f"{self.task.unit}: an error ended the search for a smaller input: {brief}")
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

    def passes_by(self, case: Case) -> bool:
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
            self.worker.trouble(f"{self.task.property}: {what}")
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
            self.worker.trouble(not_written(folder, second))

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
        from statecheck.workers.port import InWorker

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
        report = worker.keeper.report(diagnosis.case, note)
        self._found.append(
            Found((own, *alike), diagnosis.case.to_data(), report, stands, note, shrunk=shrunk)
        )
        return "falsified", diagnosis.case.message

    def _with_sanitizer(self, case: Case) -> str:
        """What hid the case while the sanitizer watched, in a sentence."""
        from statecheck.diagnose.rerun import ends_earlier

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
        return self.worker.keeper.keep(case, dict(self.worker.setting.first_seen))


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """What properties and subjects print stays out of the display."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _has_memory_error(error: BaseException) -> bool:
    """Whether memory was short in what Hypothesis raises, which may be that an error came and went."""
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return isinstance(error, MemoryError) or any(map(_has_memory_error, parts))
