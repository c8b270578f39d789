"""What workers and campaigns that have ended left on disk: it becomes findings, reports and cases of the corpus."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from statecheck.campaign.claim import unclaimed
from statecheck.campaign.known_defects import KnownDefects
from statecheck.campaign.pending import left_behind, left_by, pending_of
from statecheck.campaign.processes.handle import WorkerHandle
from statecheck.campaign.processes.output import take_output
from statecheck.campaign.processes.tasks import Found
from statecheck.campaign.state import CampaignState
from statecheck.case import Case
from statecheck.case.bucket import bucket_of


class Recovery:
    """Of one campaign, whose folder this is."""

    def __init__(self, folder: Path, state: CampaignState, defects: KnownDefects) -> None:
        assert state.keeper is not None, "what is recovered has to be kept"
        self._folder, self._state, self._defects, self._keeper = folder, state, defects, state.keeper
        self._pending = pending_of(folder)

    def adopt(self) -> None:
        """What campaigns that have ended had in hand: into the corpus, from where it is replayed."""
        for campaign in sorted(self._folder.parent.glob("*/")):
            # Its own folder may be that of a campaign of the same name, which has ended.
            if campaign != self._folder and not unclaimed(campaign):
                continue
            with suppress(OSError):
                for path, case in left_behind(pending_of(campaign)):
                    if self._keeper.keep(case, self._state.first_seen):
                        _remove(path)

    def output(self, worker: WorkerHandle) -> str:
        """What a worker that ended wrote last, and where its interpreter was; "" where it wrote nothing."""
        return take_output(self._pending, worker.pid)

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

    def find(self, case: Case, note: str, at: float) -> bool:
        """Put a case into the corpus, the state of the campaign and a report, unless it shows a known defect; whether it is on disk there."""
        if self._is_known(case):
            return True
        kept = self._keeper.keep(case, self._state.first_seen)
        report = self._keeper.report(case, f"**{note}**")
        self._state.find(Found((bucket_of(case).id,), case.to_data(), report, kept, note, shrunk=False), at)
        return bool(kept or report)

    def _is_known(self, case: Case) -> bool:
        matcher = self._defects.matcher
        name = matcher.name_of(case)
        for error in matcher.errors:
            self._state.trouble(error)
        if name is None:
            return False
        property_state = self._state.standing_of(case)
        if property_state is not None:
            property_state.record.known[name] += 1
        return True

    def restore(self) -> None:
        """Write cases and reports again that were removed after they had been written: the subject may have done so."""
        for bucket in self._state.buckets.values():
            case = Case.from_data(bucket.case)
            if not Path(bucket.corpus).is_file():
                bucket.corpus = self._state.keep(case)
            if bucket.report and not Path(bucket.report).is_dir():
                self._state.trouble(f"{bucket.report} was removed, and the coordinator has written it again")
                bucket.report = self._keeper.report(case, bucket.note)


def _remove(path: Path) -> None:
    # Another process may have removed the folder, or put a file in its place.
    with suppress(OSError):
        path.unlink()
