"""A campaign's worker where the subject has known defects: it hears of each that shows, and reports it when asked to."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from properties.harness.case import Case
from properties.harness.known_defects import Lift, label, names_of, pending_name, reports_of
from properties.harness.worker import Finished, Setting, Task, Worker, live, pending_path
from properties.subjects import KnownDeviation, Subject

_CUT_SHORT = "**The time was up before this input was shrunk to the end.**"
_MANY = 10_000
_PATIENCE = 6.0
"""Seconds after which an exploration without a failure ends: it was sized for less, by examples that ended early."""


class _TimeIsUp(BaseException):
    """A task has had its time. No `Exception`: it is nothing that the example shows."""


def declaring(subject: Subject, declared: tuple[KnownDeviation, ...]) -> Subject:
    """The same subject with other known deviations."""
    other = copy.copy(subject)
    other.known_deviations = declared
    return other


class Heard:
    """Which known defects of a subject show in examples: `subject` is the one to run them on.

    `hidden`: the sanitizer's finding was one of them.
    """

    def __init__(self, subject: Subject, on_first: Callable[[str, Case], None]) -> None:
        named = zip(names_of(subject.known_deviations), subject.known_deviations, strict=True)
        self.declared = dict(named)
        listening = (replace(one, condition=partial(self._hear, name)) for name, one in self.declared.items())
        self.subject = declaring(subject, tuple(listening))
        self.bare = declaring(subject, ())
        self.shown: Counter[str] = Counter()
        self.hidden = False
        self._on_first = on_first
        self._met: set[str] = set()

    def clear(self) -> None:
        self.shown.clear()
        self.hidden = False

    def _hear(self, name: str, case: Case) -> bool:
        if not self.declared[name].condition(case):
            return False
        self.shown[name] += 1
        self.hidden = self.hidden or case.sanitized
        if name not in self._met:
            self._met.add(name)
            self._on_first(name, case)
        return True

    def which(self, case: Case) -> str | None:
        """The name of the known defect that a case shows."""
        return next((name for name, one in self.declared.items() if one.shows_in(case)), None)


class CampaignWorker(Worker):
    """Runs a campaign's tasks: explorations, and reports of known defects."""

    def __init__(self, setting: Setting, pipe: Connection) -> None:
        super().__init__(setting, pipe)
        subject = self.bench.subject
        self._heard = Heard(declaring(subject, ()) if setting.as_new else subject, self._keep_first)
        self.bench.subject = self._heard.subject
        self._watching = self._plain = self.bench.port
        if setting.sanitized and setting.device == "cpu" and self._isolated is None:
            from properties.harness.port import InProcess

            self._plain = InProcess(subject, setting.device)
        self._lift: Lift | None = None
        self._sanitized = True
        self._until = math.inf
        self._late = False
        self._remark = ""

    def run(self, task: Task) -> None:
        with self._lifted(task) if isinstance(task, Lift) else contextlib.nullcontext():
            super().run(task)

    @contextlib.contextmanager
    def _lifted(self, lift: Lift) -> Iterator[None]:
        """While it is entered, the one known defect is a failure, and all others are gone past."""
        self._lift = lift
        self.bench.subject = self._heard.bare
        self.bench.passes_by = lambda case: self._heard.which(case) != lift.known
        try:
            yield
        finally:
            self._lift = None
            self.bench.subject = self._heard.subject
            self.bench.passes_by = lambda case: False

    def _begin(self, task: Task) -> None:
        super()._begin(task)
        self._heard.clear()
        self._late = False
        self._remark = ""
        self._until = time.monotonic() + (_PATIENCE if self._lift is None else self._lift.seconds)
        self._sanitized = task.sanitized
        self.bench.port = self._watching if task.sanitized else self._plain

    def _explored(self, task: Task) -> tuple[str, str, str]:
        try:
            ended = super()._explored(task)
            if self._lift is not None and ended[0] == "passed":
                # It showed with this seed, but Hypothesis may have had its input from its database, where it is no more.
                ended = super()._explored(replace(task, seed=task.seed + 1, max_examples=_MANY))
        except _TimeIsUp:
            return self._cut_short()
        # A state machine that ends between two draws is taken for one that draws something else each time.
        return self._cut_short() if self._late and ended[0] == "error" else ended

    def _cut_short(self) -> tuple[str, str, str]:
        self._until = math.inf
        if self._lift is None:
            return "passed", "", ""
        if self._latest is None:
            return "passed", "it did not show again in the time that there was", ""
        self._remark = "not shrunk to the end: no time was left"
        return "falsified", self._latest.message, str(self._reported(self._latest, _CUT_SHORT))

    def _count(self) -> None:
        # What an exploration has found is shrunk, however long that takes.
        if time.monotonic() > self._until and (self._lift is not None or self._latest is None):
            self._late = True
            raise _TimeIsUp
        super()._count()

    def _finished(self, finished: Finished) -> Finished:
        shown, hidden = dict(self._heard.shown), self._heard.hidden
        return replace(finished, shown=shown, hidden=hidden, remark=self._remark)

    def _reported(self, case: Case, note: str) -> Path:
        if self._lift is not None:
            name = self._lift.known
            notes = (label(name, self._heard.declared[name]), note)
        else:
            notes = (note, "" if self._sanitized else self._with_sanitizer(case))
        return super()._reported(case, "\n\n".join(filter(None, notes)))

    def _with_sanitizer(self, case: Case) -> str:
        """What hid the case while the sanitizer watched, in a sentence."""
        from properties.harness.known_earlier import ends_earlier

        earlier = ends_earlier(case, self._watching)
        name = self._heard.which(earlier) if earlier is not None else None
        if name is None:
            return "**Found while the sanitizer did not watch.**"
        known = f"known defect {name}, {self._heard.declared[name].link}"
        return (
            "**Found while the sanitizer did not watch. Where it does, the same input ends earlier, with the "
            f"{known}, which may be the cause of this.**"
        )

    @property
    def _reports(self) -> Path:
        return self.reports if self._lift is None else reports_of(self.reports, self._lift.known)

    @property
    def _pending(self) -> Path:
        return super()._pending if self._lift is None else self._known_path(self._lift.known)

    def _known_path(self, name: str) -> Path:
        return pending_path(self.reports, pending_name(name))

    def _keep_first(self, name: str, case: Case) -> None:
        path = self._known_path(name)
        try:
            case.save(path, durable=False)
        except OSError as error:
            self._trouble(path.parent, error)


def main(setting: Setting, pipe: Connection) -> None:
    """The process's life: tasks until None comes, or until the coordinator is gone."""
    live(CampaignWorker, setting, pipe)
