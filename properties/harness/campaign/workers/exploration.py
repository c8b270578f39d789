"""One exploration of one property in a worker: what it counts, what it finds, and when it ends."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hypothesis.errors import Flaky

from properties.harness.campaign.defects import label, pending_name, reports_of
from properties.harness.campaign.pending import Pending
from properties.harness.campaign.workers.tasks import ExamplesRun, Explore, Explored, Found
from properties.harness.campaign.workers.worker import Worker, quietly
from properties.harness.case import Case
from properties.harness.case.bucket import bucket_of
from properties.harness.device.shared import DeviceGone
from properties.harness.execution.counts import Counts
from properties.harness.execution.example import Falsified, Tally, Trial
from properties.harness.execution.unread import kept_unread
from properties.harness.kernels.compilations import Kernels, added, take
from properties.harness.kernels.coverage import Coverage

if TYPE_CHECKING:
    from properties.harness.diagnose.diagnosis import Diagnosis, Scene

_Kind = TypeVar("_Kind", bound=BaseException)
_DID_NOT_REPEAT = "**This failure did not repeat when the same input was run again.**"
_CUT_SHORT = "**The time was up before this input was shrunk to the end.**"
_NOT_SHRUNK = "**Met on the way to another failure of this property, and not shrunk.**"
_MANY = 10_000
_MOST_BESIDE = 20
"""Failures of other kinds that one exploration keeps beside its own."""
_PROGRESS_SECONDS = 0.2


class _TimeIsUp(BaseException):
    """The exploration has had its time. No `Exception`: it is nothing that the example shows."""


class Exploration:
    """Explores on the bench of a worker, and leaves the bench as it was."""

    def __init__(self, worker: Worker, task: Explore) -> None:
        self.worker, self.task = worker, task
        self.bench = worker.bench
        self.tested = worker.properties[task.property]
        self._isolated = worker.isolated_port() if task.isolated else worker.isolated
        self._began = time.monotonic()
        self._until, self._deadline = self._began + task.patience, self._began + task.deadline
        self._in_hand = Pending(worker.pending, worker.trouble, self._into_corpus)
        self._latest: Case | None = None
        self._late = self._over = False
        self._failing: Counter[str] = Counter()
        self._marks: Counter[str] = Counter()
        self._kinds: dict[frozenset[str], int] = {}
        self._covered_before = self._covered_by_search = Coverage()
        self._told = Counts()
        self._told_at = 0.0
        self._found: list[Found] = []
        self._remark = self._gone = self._report = ""

    def run(self) -> Explored:
        self._begin()
        try:
            status, detail = self._explored(self.task)
        finally:
            self._end()
        self._keep_others()
        self._in_hand.settle(self.task.property)
        return self._summed_up(status, detail)

    def _begin(self) -> None:
        worker, bench, task = self.worker, self.bench, self.task
        bench.counts.take()
        # Launched for other tasks, which is nothing that this property took.
        self._covered_before = worker.take_coverage()
        bench.tally = Tally()
        bench.seed = task.seed
        bench.known_failures.clear()
        worker.known_defects.clear()
        bench.port = self._isolated or (worker.watched if task.sanitized else worker.plain)
        if task.shown:
            bench.known_by = lambda case: None
            bench.passes_by = self._passes_by_others
        else:
            bench.passes_by = self._is_known
        bench.on_example, bench.on_step, bench.on_falsified = self._on_example, self._on_step, self._keep
        bench.on_error = self._keep_unread
        if worker.log is not None:
            worker.log.begin_task(self._about())
        if self._isolated is not None:
            self._isolated.begin_property(task.property)

    def _end(self) -> None:
        bench, log = self.bench, self.worker.log
        if log is not None and log.problem:
            self.worker.trouble(log.path, RuntimeError(log.problem))
        bench.known_by, bench.port = self.worker.known_defects.known, self.worker.watched
        bench.passes_by = lambda case: False
        bench.on_error = lambda case, error: None
        bench.on_example, bench.on_step, bench.on_falsified = (
            lambda: None,
            lambda trial: None,
            lambda case: None,
        )

    def _about(self) -> dict[str, str | int]:
        """What the log says of all examples."""
        setting, task = self.worker.setting, self.task
        return {
            "property_name": task.property,
            "sentence": self.tested.sentence,
            "property_id": self.tested.id,
            "seed": task.seed,
            "subject": setting.subject,
            "device": setting.device,
        }

    def _explored(self, task: Explore) -> tuple[str, str]:
        """Status and detail."""
        try:
            ended = self._searched(task)
            if task.shown and ended[0] == "passed":
                # It may have shown only while another failure was shrunk, which is passed by now.
                ended = self._searched(replace(task, seed=task.seed + 1, max_examples=_MANY))
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
        from properties.harness.campaign.marks import noted

        try:
            tested = noted(self.tested, self._note)
            tested.explore(self.bench, seed=task.seed, max_examples=task.max_examples)
        finally:
            # Now: what is run again for reports is no part of the search.
            self._covered_by_search += self.worker.take_coverage()

    def _failed(self, error: Exception) -> tuple[str, str]:
        if _within(error, MemoryError) is not None:
            # The subject's own would be an outcome. This worker has become too large, and a new one is not.
            raise error
        self._rest()
        if isinstance(error, Falsified):
            return self._falsified(error.case, "")
        if self._latest is None:
            return "error", "".join(traceback.format_exception(error))
        if isinstance(error, Flaky):
            return self._falsified(self._latest, _DID_NOT_REPEAT)
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        self.worker.troubles.append(
            f"{self.task.property}: an error ended the search for a smaller input: {told}"
        )
        return self._falsified(
            self._latest, f"**An error ended the search for a smaller input: {told}**", shrunk=False
        )

    def _rest(self) -> None:
        """No example is in hand: what follows is run for reports."""
        if self.worker.log is not None:
            self.worker.log.rest()

    def _cut_short(self) -> tuple[str, str]:
        self._rest()
        if self._latest is None:
            return "passed", "it did not show again in the time that there was" if self.task.shown else ""
        self._remark = "not shrunk to the end: no time was left" if self.task.shown else ""
        return self._falsified(self._latest, _CUT_SHORT, shrunk=False)

    def _falsified(self, case: Case, note: str, *, shrunk: bool = True) -> tuple[str, str]:
        from properties.harness.diagnose.diagnosis import diagnose, explain

        own = bucket_of(case).id
        diagnosis = diagnose(case, self._scene())
        if self.task.shown:
            self._report_known(explain(diagnosis, self.bench.subject), note)
            return "falsified", case.message
        sanitizer = "" if self.task.sanitized else self._with_sanitizer(diagnosis.case)
        # What it depends on is why it did not repeat.
        note = "" if note == _DID_NOT_REPEAT and diagnosis.depends_on else note
        note = " ".join(filter(None, (note, sanitizer, diagnosis.note)))
        # Before it is explained: whatever happens to the report, this stands.
        kept = self._into_corpus(diagnosis.case)
        alike = [one for one in self._failing if one not in self.task.known and one != own]
        stands = str(kept) if kept.is_file() else ""
        diagnosis = explain(diagnosis, self.bench.subject)
        found = Found((own, *alike), diagnosis.case.to_data(), "", stands, note, shrunk=shrunk)
        try:
            directory = self._reported(diagnosis, Path(self.worker.setting.reports), note)
        except Exception as error:
            # The report is for reading; what was found must not be lost with it.
            self.worker.trouble(Path(self.worker.setting.reports), error)
        else:
            found = replace(found, report=str(directory))
        self._found.append(found)
        return "falsified", diagnosis.case.message

    def _scene(self) -> Scene:
        """Where the failure was found; a known defect is confirmed only where a worker may end with it."""
        from properties.harness.device.port import InWorker
        from properties.harness.diagnose.diagnosis import SECONDS, Scene

        one = self.worker.setting
        fresh = partial(InWorker, one.subject, one.device, time_limit=one.time_limit, spare=False)
        confirmed = self._isolated is not None or not self.task.shown
        left = max(0.0, self._deadline - time.monotonic())
        bench = self.bench
        return Scene(
            bench.subject, bench.port, fresh if confirmed else None, bench.earlier, min(SECONDS, left)
        )

    def _report_known(self, diagnosis: Diagnosis, note: str) -> None:
        name = self.task.shown
        notes = (label(name, self.worker.known_defects.declared[name]), note, diagnosis.note)
        folder = reports_of(Path(self.worker.setting.reports), name)
        try:
            directory = self._reported(diagnosis, folder, "\n\n".join(filter(None, notes)))
        except Exception as error:
            self.worker.trouble(folder, error)
            self._remark = f"not reported: {error}"
            return
        self._report = str(directory)

    def _reported(self, diagnosis: Diagnosis, folder: Path, note: str) -> Path:
        from properties.harness.report.markdown import write_report

        return write_report(diagnosis.case, folder, self.bench.subject.module, note=note)

    def _with_sanitizer(self, case: Case) -> str:
        """What hid the case while the sanitizer watched, in a sentence."""
        from properties.harness.diagnose.earlier_finding import ends_earlier

        known_defects = self.worker.known_defects
        earlier = ends_earlier(case, self.worker.watched)
        name = known_defects.name_of(earlier) if earlier is not None else None
        if name is None:
            return "**Found while the sanitizer did not watch.**"
        known = f"known defect {name}, {known_defects.declared[name].link}"
        return (
            "**Found while the sanitizer did not watch. Where it does, the same input ends earlier, with the "
            f"{known}, which may be the cause of this.**"
        )

    def _keep_others(self) -> None:
        """Failures of other kinds that were met on the way stand in the corpus too, as they were met."""
        from properties.harness.diagnose.own_calls import with_own_calls

        own = {one.buckets[0] for one in self._found}
        beside = [(bucket, case) for bucket, case in self._in_hand.cases.items() if bucket not in own]
        if self.task.shown:
            known_defects = self.worker.known_defects
            beside = [(bucket, case) for bucket, case in beside if known_defects.name_of(case) is None]
        for bucket, met in beside:
            case = with_own_calls(met, self.bench.subject)
            kept = self._into_corpus(case)
            stands = str(kept) if kept.is_file() else ""
            self._found.append(Found((bucket,), case.to_data(), "", stands, _NOT_SHRUNK, shrunk=False))

    def _into_corpus(self, case: Case) -> Path:
        return self.worker.corpus.add(case, first_seen=dict(self.worker.setting.first_seen))

    def _on_example(self) -> None:
        if self._is_over():
            self._over = True
            raise _TimeIsUp
        if time.monotonic() - self._told_at > _PROGRESS_SECONDS:
            self._tell_progress()

    def _on_step(self, trial: Trial) -> None:
        if self._is_late():
            if not trial.is_compared:
                # What was cut short is no example.
                self.bench.counts.examples -= 1
            self._over = True
            raise _TimeIsUp

    def _is_over(self) -> bool:
        enough = self.task.enough and self._latest is None and self.bench.counts.compared >= self.task.enough
        return bool(enough) or self._is_late()

    def _is_late(self) -> bool:
        now = time.monotonic()
        # What an exploration has found is shrunk as long as there is time.
        late = now > self._deadline or (now > self._until and (self._latest is None or bool(self.task.shown)))
        self._late = self._late or late
        return late

    def _tell_progress(self) -> None:
        self._told_at = time.monotonic()
        self.worker.bound_output()
        counts = self.bench.counts
        examples, compared = counts.examples - self._told.examples, counts.compared - self._told.compared
        if examples > 0:
            self._told.examples, self._told.compared = counts.examples, counts.compared
            self.worker.events.send(ExamplesRun(self.task.property, examples, compared))

    def _note(self, reached: frozenset[str]) -> None:
        self._marks.update(reached)
        if reached not in self._kinds:
            self._kinds[reached] = behaviour(reached)

    def _is_known(self, case: Case) -> bool:
        """Whether the failing example is of a bucket that was met before."""
        bucket = bucket_of(case).id
        self._failing[bucket] += 1
        return bucket in self.task.known

    def _passes_by_others(self, case: Case) -> bool:
        """While one known defect is searched, other known ones are passed by, and a new failure is kept."""
        name = self.worker.known_defects.name_of(case)
        if name is None and not self._is_known(case):
            self._keep_beside(case)
        return name != self.task.shown

    def _keep(self, case: Case) -> None:
        self._latest = case
        self._keep_beside(case)

    def _keep_unread(self, case: Case, error: Exception) -> None:
        """The input of an example that is an error of the property, since each outcome is what the rules expect."""
        folder = Path(self.worker.setting.reports)
        try:
            told = kept_unread(case, folder, self.tested)
        except OSError as second:
            self.worker.trouble(folder, second)
        else:
            error.add_note(told)

    def _keep_beside(self, case: Case) -> None:
        known = self._in_hand.cases
        if bucket_of(case).id in known or len(known) <= _MOST_BESIDE:
            self._in_hand.keep(self._name, case)
        else:
            told = f"{self.task.property}: fails in more than {_MOST_BESIDE} ways at once, and the others were not kept"
            self.worker.troubles.append(told) if told not in self.worker.troubles else None

    @property
    def _name(self) -> str:
        return pending_name(self.task.shown) if self.task.shown else self.task.property

    def _summed_up(self, status: str, detail: str) -> Explored:
        worker, port = self.worker, self._isolated
        faults = dict(port.faults) if port is not None else {}
        if port is not None:
            port.faults.clear()
        counts = self.bench.counts.take()
        counts.examples -= self._told.examples
        counts.compared -= self._told.compared
        troubles = (*worker.corpus.troubles, *worker.troubles, *worker.known_defects.errors)
        worker.troubles = []
        return Explored(
            property=self.task.property,
            status=status,
            seconds=time.monotonic() - self._began,
            detail=detail,
            counts=counts,
            known=dict(worker.known_defects.shown),
            hidden=worker.known_defects.hidden,
            found=tuple(self._found),
            failing=dict(self._failing),
            report=self._report,
            remark=self._remark,
            late=self._late,
            marks=dict(self._marks),
            behaviours=frozenset(self._kinds.values()) | self._branches(),
            compiled=self._compiled(),
            covered=self._covered_before + self._covered_by_search + worker.take_coverage(),
            faults=faults,
            gone=self._gone,
            tally=self.bench.tally,
            troubles=troubles,
            remarks=worker.remarks(),
        )

    def _branches(self) -> frozenset[int]:
        """Numbers of the branches of kernels that examples took."""
        taken = self._covered_by_search.taken
        return frozenset(
            behaviour(frozenset((one.kernel, f"{one.file}:{one.line}", one.way))) for one in taken
        )

    def _compiled(self) -> Kernels:
        ours, port = take(), self._isolated
        return ours if port is None else added(ours, port.take_compilations())


def _within(error: BaseException, kind: type[_Kind]) -> _Kind | None:
    """An error of that kind in what Hypothesis raises, which may be that it came and went."""
    if isinstance(error, kind):
        return error
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((found for found in (_within(part, kind) for part in parts) if found is not None), None)


def behaviour(names: frozenset[str]) -> int:
    """A number that stands for a set of names, the same in every process."""
    import hashlib

    return int.from_bytes(hashlib.sha256("\0".join(sorted(names)).encode()).digest()[:8], "big")
