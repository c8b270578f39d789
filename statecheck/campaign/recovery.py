"""What workers and campaigns that have ended left on disk: it becomes findings, reports and cases of the corpus."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from statecheck.campaign.claim import unclaimed
from statecheck.campaign.known_defects import KnownDefects
from statecheck.campaign.ledger import Ledger
from statecheck.campaign.pending import left_behind, left_by, pending_of, running_left_by
from statecheck.campaign.processes.handle import WorkerHandle
from statecheck.campaign.processes.output import last_words
from statecheck.campaign.processes.tasks import Found
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.case.compare import outcome_difference
from statecheck.case.failure import failure_of
from statecheck.case.faults import Fault


class Recovery:
    """Of one campaign, whose folder this is."""

    def __init__(self, folder: Path, ledger: Ledger, defects: KnownDefects) -> None:
        assert ledger.keeper is not None, "what is recovered has to be kept"
        self._folder, self._ledger, self._defects, self._keeper = folder, ledger, defects, ledger.keeper
        self._pending = pending_of(folder)

    def adopt(self) -> None:
        """What campaigns that have ended had in hand: into the corpus, from where it is replayed."""
        for campaign in sorted(self._folder.parent.glob("*/")):
            # Its own folder may be that of a campaign of the same name, which has ended.
            if campaign != self._folder and not unclaimed(campaign):
                continue
            with suppress(OSError):
                for path, case in left_behind(pending_of(campaign)):
                    if self._keeper.keep(case, self._ledger.first_seen):
                        _remove(path)

    def running(self, worker: WorkerHandle) -> Path | None:
        """The input that a worker was running when it ended, as a case file; None where it had none in hand."""
        words = last_words(self._pending, worker.pid)
        if words:
            self._ledger.remark({"last words": f"the subject wrote before its worker ended: {words}"})
        try:
            return running_left_by(self._pending, worker.pid, worker.log_path)
        except OSError as error:
            self._ledger.trouble(f"{self._pending} could not be read: {error.strerror or error}")
            return None

    def has_pending(self, worker: WorkerHandle) -> bool:
        """Whether a worker has failing inputs in hand."""
        return next(left_by(self._pending, worker.pid), None) is not None

    def find_pending(self, worker: WorkerHandle, note: str, at: float) -> int:
        """Take the failing inputs that a worker had in hand when it ended for findings; how many there were."""
        number = 0
        for path, case in left_by(self._pending, worker.pid):
            number += 1
            if self.find(case, note, at):
                _remove(path)
        return number

    def find_fault(self, running: Path, fault: Fault, note: str, at: float) -> bool:
        """Take the input that a worker was ended in for a finding; whether it could be."""
        try:
            case = _as_faulted(Case.load(running), fault)
        except (OSError, ValueError):
            return False
        if self.find(case, note, at):
            _remove(running)
        return True

    def find(self, case: Case, note: str, at: float) -> bool:
        """Put a case into the corpus, the ledger and a report, unless it shows a known defect; whether it is on disk there."""
        if self._is_known(case):
            return True
        kept = self._keeper.keep(case, self._ledger.first_seen)
        report = self._keeper.report(case, f"**{note}**")
        self._ledger.find(Found((bucket_of(case).id,), case.to_data(), report, kept, note, shrunk=False), at)
        return bool(kept or report)

    def _is_known(self, case: Case) -> bool:
        matcher = self._defects.matcher
        # Conditions are asked apart: the worker may have ended in one of them.
        name = matcher.name_apart(case)
        for error in matcher.errors:
            self._ledger.trouble(error)
        if name is None:
            return False
        standing = self._ledger.standing_of(case)
        if standing is not None:
            standing.deviations[name] += 1
        return True

    def restore(self) -> None:
        """Write cases and reports again that were removed after they had been written: the subject may have done so."""
        for bucket in self._ledger.buckets.values():
            case = Case.from_data(bucket.case)
            if not Path(bucket.corpus).is_file():
                bucket.corpus = self._ledger.keep(case)
            if bucket.report and not Path(bucket.report).is_dir():
                self._ledger.trouble(f"{bucket.report} was removed, and the coordinator has written it again")
                bucket.report = self._keeper.report(case, bucket.note)


def _remove(path: Path) -> None:
    # Another process may have removed the folder, or put a file in its place.
    with suppress(OSError):
        path.unlink()


def _as_faulted(case: Case, fault: Fault) -> Case:
    """The case of an example that was ended in its last call by this fault."""
    number = len(case.calls) - 1
    outcome, expected, call = fault.outcome, case.expected[-1], case.calls[-1]
    difference = outcome_difference(expected, outcome, places=False)
    assert difference is not None
    failure = failure_of(
        difference, expected, outcome, function=call.function, call=number, shown=f"{call.function}(…)"
    )
    return replace(case, actual=(*case.actual[:-1], outcome), failure=failure)
