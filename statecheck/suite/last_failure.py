"""The input of a property's test that failed last: kept on disk, and reported when the test ends."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from hypothesis.errors import Flaky

from statecheck.campaign.corpus import print_case
from statecheck.case import Case
from statecheck.diagnose.diagnosis import Scene, diagnose, explain, note_of
from statecheck.execution.example import ExecutionContext, Falsified, Observer
from statecheck.execution.registry import Property
from statecheck.report.render import write_report
from statecheck.util.command_lines import command_line
from statecheck.util.files import in_file_name
from statecheck.workers.port import InWorker


class LastFailure(Observer):
    """The last input that failed in a test: on disk from that moment on, until its report is complete."""

    def __init__(self, reports: Path) -> None:
        self.latest: Case | None = None
        self.reported: Case | None = None
        """As its report has it, with the calls of a port's own functions."""
        self._context: ExecutionContext | None = None
        self._tested: Property | None = None
        self._reports = reports
        self._warnings: list[str] = []
        self._name = ""
        self._pending: set[Path] = set()

    def begin(self, tested: Property, context: ExecutionContext) -> None:
        self.latest, self.reported, self._name = None, None, f"{in_file_name(tested.id)}.{os.getpid()}.json"
        self._pending.clear()
        self._context, self._tested = context, tested
        context.observer = self

    def falsified(self, case: Case) -> None:
        self.latest = case
        try:
            self._pending.add(case.save(self._reports / "pending" / self._name, durable=False))
        except OSError as error:
            self._print(case, error)

    def property_raised(self, case: Case, error: Exception) -> None:
        assert self._tested is not None
        try:
            error.add_note(self._tested.keep_unread(case, self._reports))
        except OSError as refusal:
            self._print(case, refusal)

    def _print(self, case: Case, error: OSError) -> None:
        """Print a case that was not written, the first for each reason: what follows are smaller inputs for the same failure."""
        warning = f"{self._reports} took no case ({error.strerror or error}), which is on the standard error"
        if warning not in self._warnings:
            self._warnings.append(warning)
            print_case(case)

    def end(self, error: BaseException | None) -> list[str]:
        """Report what a test that ended with `error` has found; lines for its reader."""
        context, self._context = self._context, None
        if context is None:
            return []
        context.observer = Observer()
        latest, self.latest = self.latest, None
        if isinstance(error, Falsified):
            return self._reported(context, error.case, flaky=False)
        if isinstance(error, Flaky) and latest is not None:
            return [latest.message, *self._reported(context, latest, flaky=True)]
        return [f"an input that failed is in {path}" for path in sorted(self._pending)]

    def _reported(self, context: ExecutionContext, case: Case, *, flaky: bool) -> list[str]:
        fresh = partial(InWorker, context.subject.name, context.port.device, spare=False)
        diagnosis = diagnose(case, Scene(context.subject, context.port, fresh, context.earlier))
        near = context.subject.known_defects.nearest(diagnosis.case)
        repeats = note_of(diagnosis, flaky=flaky)
        note = " ".join(filter(None, (repeats, near)))
        self.reported = case = explain(diagnosis, context.subject).case
        lines = [
            *context.subject.known_defects.errors,
            *([repeats.replace("*", "")] if diagnosis.depends_on or flaky else []),
            *([near] if near else []),
        ]
        try:
            directory = write_report(case, self._reports, context.subject, note=note)
        except OSError as error:
            print_case(case)
            why = error.strerror or error
            return [*lines, f"{self._reports} took no report ({why}): the case is on the standard error"]
        for path in self._pending:
            path.unlink(missing_ok=True)
        again = command_line(
            "replay", directory / "case.json", subject=context.subject.name, device=context.port.device
        )
        return [*lines, f"report: {directory}/report.md", f"run it again: {again}", *self._warnings]
