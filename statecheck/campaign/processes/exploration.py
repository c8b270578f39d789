"""One exploration of one property in a worker: what it counts, what it finds, and when it ends."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from typing import TypeVar

from hypothesis.errors import Flaky

from statecheck.campaign.processes.failures import Failures
from statecheck.campaign.processes.tasks import (
    ExampleFailed,
    ExamplesRun,
    Explore,
    Explored,
    SearchEnded,
)
from statecheck.campaign.processes.worker import Worker, quietly
from statecheck.case import Case
from statecheck.execution.counts import Counts
from statecheck.execution.example import Falsified, Observer
from statecheck.kernels.launch_counts import How
from statecheck.subject import KnownDeviation, Subject
from statecheck.workers.shared_workers import DeviceGone

_Kind = TypeVar("_Kind", bound=BaseException)
_CUT_SHORT = "**The time was up while smaller inputs were tried: there may be one.**"
_AS_FOUND = "**Several properties had failed before: this input was neither shrunk nor run again.**"
_PROGRESS_SECONDS = 0.2


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
        self._until, self._deadline = self._began + task.patience, self._began + task.deadline
        self._failures = Failures(worker, task, self._isolated, self._deadline)
        self._late = self._over = False
        self._marks: Counter[str] = Counter()
        self._launched_before, self._launched_by_search = Counter[How](), Counter[How]()
        self._reported = Counts()
        self._reported_at = 0.0
        self._gone = ""
        self._failed_at: float | None = None
        self._tried, self._exhausted = 0, False
        self._faults_before = 0

    def run(self) -> Explored:
        self._begin()
        try:
            status, detail = self._explored(self.task)
        finally:
            self._end()
        self._failures.settle()
        return self._summed_up(status, detail)

    def _begin(self) -> None:
        worker, context, task = self.worker, self.context, self.task
        context.counts.take()
        # Launched for other tasks, which is nothing that this property took.
        self._launched_before = worker.take_launches()
        context.seed, context.configuration = task.seed, task.configuration
        context.known_failures.clear()
        worker.known_defects.clear()
        context.port = self._isolated or (worker.watched if task.sanitized else worker.plain)
        context.observer = self
        if self._isolated is not None:
            self._isolated.begin_property()
            self._faults_before = self._isolated.faults.total()

    def _end(self) -> None:
        context = self.context
        context.port, context.configuration = self.worker.watched, ""
        context.observer = Observer()

    def _explored(self, task: Explore) -> tuple[str, str]:
        """Status and detail."""
        try:
            ended = self._searched(task)
        except _TimeIsUp:
            return self._cut_short()
        except DeviceGone as gone:
            self._gone = str(gone)
            return "passed", ""
        # A state machine that ends between two draws is taken for one that draws something else each time.
        return self._cut_short() if self._over and ended[0] == "error" else ended

    def _searched(self, task: Explore) -> tuple[str, str]:
        try:
            with quietly():
                self._search(task)
        except Exception as error:
            return self._failed(error)
        return "passed", ""

    def _search(self, task: Explore) -> None:
        from statecheck.campaign.marks import noted

        try:
            tested = noted(self.tested, self._marks.update)
            if task.inputs is None:
                tested.explore(
                    self.context, seed=task.seed, max_examples=task.max_examples, simplest=task.simplest
                )
            else:
                for number in task.inputs.tried(tested, self.context):
                    self._tried += number
                self._exhausted = True
        finally:
            # Now: what is run again for reports is no part of the search.
            self._launched_by_search += self.worker.take_launches()

    def _failed(self, error: Exception) -> tuple[str, str]:
        if _within(error, MemoryError) is not None:
            # The subject's own would be an outcome. This worker has become too large, and a new one is not.
            raise error
        self.worker.events.send(SearchEnded())
        if isinstance(error, Falsified):
            return self._failures.falsified(error.case, "")
        if self._failures.latest is None:
            return "error", "".join(traceback.format_exception(error))
        if isinstance(error, Flaky):
            return self._failures.falsified(self._failures.latest, "", flaky=True)
        brief = f"{type(error).__name__}: {error}".splitlines()[0]
        self.worker.trouble(f"{self.task.unit}: an error ended the search for a smaller input: {brief}")
        return self._failures.falsified(
            self._failures.latest, f"**An error ended the search for a smaller input: {brief}**", shrunk=False
        )

    def _cut_short(self) -> tuple[str, str]:
        self.worker.events.send(SearchEnded())
        if self._failures.latest is None:
            return "passed", ""
        note = _AS_FOUND if self.task.as_found else _CUT_SHORT
        return self._failures.falsified(self._failures.latest, note, shrunk=False)

    def example_begins(self) -> None:
        # Only here: an example that was begun in time gets all the time that its calls may take.
        if self._is_over():
            self._over = True
            raise _TimeIsUp
        if time.monotonic() - self._reported_at > _PROGRESS_SECONDS:
            self._tell_progress()

    def example_ended(self) -> None:
        # At the next `example_begins`, Hypothesis has already drawn another example.
        if self._is_enough():
            self._over = True
            raise _TimeIsUp

    def known_defect(self, subject: Subject, case: Case) -> KnownDeviation | None:  # noqa: ARG002
        return self.worker.known_defects.known(case)

    def passes_by(self, case: Case) -> bool:
        return self._failures.is_known(case)

    def property_raised(self, case: Case, error: Exception) -> None:
        self._failures.keep_unread(case, error)

    def falsified(self, case: Case) -> None:
        is_first = self._failures.latest is None
        # On disk before anything is sent.
        self._failures.keep(case)
        if is_first:
            self._failed_at = time.monotonic()
            seconds = 0.0 if self.task.as_found else self.task.shrinking
            self._deadline = min(self._deadline, time.monotonic() + seconds)
            self._tell_progress()
            self.worker.events.send(ExampleFailed(self.task.property))

    def _is_over(self) -> bool:
        return self._is_enough() or self._is_late()

    def _is_enough(self) -> bool:
        wanted = self.task.enough
        return 0 < wanted <= self.context.counts.compared and self._failures.latest is None

    def _is_late(self) -> bool:
        now = time.monotonic()
        # What an exploration has found is shrunk as long as there is time.
        late = now > self._deadline or (now > self._until and self._failures.latest is None)
        self._late = self._late or late
        return late

    def _tell_progress(self) -> None:
        self._reported_at = time.monotonic()
        if self.worker.output is not None:
            # The file that the subject's output goes to stays small.
            self.worker.output.bound()
        counts = self.context.counts
        examples, compared = (
            counts.examples - self._reported.examples,
            counts.compared - self._reported.compared,
        )
        if examples > 0:
            self._reported.examples, self._reported.compared = counts.examples, counts.compared
            self.worker.events.send(ExamplesRun(self.task.property, examples, compared))

    def _summed_up(self, status: str, detail: str) -> Explored:
        worker, failures = self.worker, self._failures
        troubles = (*worker.troubles, *worker.known_defects.errors)
        worker.troubles = []
        return Explored(
            property=self.task.property,
            status=status,
            seconds=time.monotonic() - self._began,
            detail=detail,
            counts=self._unreported_counts(),
            known=dict(worker.known_defects.shown),
            hidden=worker.known_defects.hidden,
            found=tuple(failures.found),
            failing=dict(failures.failing),
            faults=self._isolated.faults.total() - self._faults_before if self._isolated is not None else 0,
            late=self._late,
            shrinking=time.monotonic() - self._failed_at if self._failed_at is not None else 0.0,
            marks=dict(self._marks),
            launched=self._launched_before + self._launched_by_search + worker.take_launches(),
            gone=self._gone,
            tried=self._tried,
            exhausted=self._exhausted,
            troubles=troubles,
        )

    def _unreported_counts(self) -> Counts:
        """Of the examples since the last message about progress."""
        counts = self.context.counts.take()
        counts.examples -= self._reported.examples
        counts.compared -= self._reported.compared
        return counts


def _within(error: BaseException, kind: type[_Kind]) -> _Kind | None:
    """An error of that kind in what Hypothesis raises, which may be that it came and went."""
    if isinstance(error, kind):
        return error
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((found for found in (_within(part, kind) for part in parts) if found is not None), None)
