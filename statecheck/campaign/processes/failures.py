"""The failing cases of one exploration: what is kept of them at once, and what is reported after the search."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from statecheck.campaign.corpus import not_written
from statecheck.campaign.folder import Pending
from statecheck.campaign.processes.tasks import Explore, Found
from statecheck.case import Case
from statecheck.case.bucket import bucket_of

if TYPE_CHECKING:
    from statecheck.campaign.processes.worker import Worker
    from statecheck.diagnose.diagnosis import Scene
    from statecheck.workers.port import InWorker

_NOT_SHRUNK = "**Met on the way to another failure of this property, and not shrunk.**"
_MOST_BESIDE = 20
"""Failures of other kinds that one exploration keeps beside its own."""


class Failures:
    """Keeps failing cases on disk from the moment when they fail, and reports the smallest one.

    `latest` is the case that failed last, `found` what goes to the coordinator, `failing` counts failing examples by bucket.

    Args:
        isolated: the port of a subject in a process of its own, if it is there.
        deadline: on the monotonic clock, in seconds; a diagnosis takes no longer.
    """

    def __init__(self, worker: Worker, task: Explore, isolated: InWorker | None, deadline: float) -> None:
        self._worker, self._task, self._isolated, self._deadline = worker, task, isolated, deadline
        self._pending = Pending(worker.pending, worker.trouble, self._into_corpus)
        self.latest: Case | None = None
        self.failing: Counter[str] = Counter()
        self.found: list[Found] = []

    def settle(self) -> None:
        """The exploration has ended: what is pending goes to the corpus."""
        self._keep_others()
        self._pending.settle(self._task.property)

    def is_known(self, case: Case) -> bool:
        """Whether the failing example is of a bucket that was met before."""
        bucket = bucket_of(case).id
        self.failing[bucket] += 1
        return bucket in self._task.known

    def keep(self, case: Case) -> None:
        self.latest = case
        self._keep_beside(case)

    def keep_unread(self, case: Case, error: Exception) -> None:
        """The input of an example that is an error of the property, since each outcome is what the rules expect."""
        folder = Path(self._worker.setting.reports)
        try:
            message = self._worker.properties[self._task.property].keep_unread(case, folder)
        except OSError as second:
            self._worker.trouble(not_written(folder, second))
        else:
            error.add_note(message)

    def _keep_beside(self, case: Case) -> None:
        known = self._pending.cases
        if bucket_of(case).id in known or len(known) <= _MOST_BESIDE:
            self._pending.keep(self._task.property, case)
        else:
            what = f"fails in more than {_MOST_BESIDE} ways at once, and the others were not kept"
            self._worker.trouble(f"{self._task.property}: {what}")

    def falsified(
        self, case: Case, note: str, *, shrunk: bool = True, flaky: bool = False
    ) -> tuple[str, str]:
        from statecheck.diagnose.diagnosis import as_found, diagnose, explain, note_of

        own = bucket_of(case).id
        case = replace(case, first_seen=dict(self._worker.setting.first_seen))
        diagnosis = as_found(case) if self._task.as_found else diagnose(case, self._scene())
        sanitizer = "" if self._task.sanitized else self._with_sanitizer(diagnosis.case)
        near = self._worker.known_defects.nearest(diagnosis.case)
        repeats = note_of(diagnosis, flaky=flaky)
        note = " ".join(filter(None, (note, sanitizer, repeats, near)))
        # Before it is explained: whatever happens to the report, this stands.
        stands = self._into_corpus(diagnosis.case)
        alike = [bucket for bucket in self.failing if bucket not in self._task.known and bucket != own]
        diagnosis = explain(diagnosis, self._worker.context.subject)
        report = self._worker.keeper.report(diagnosis.case, note)
        self.found.append(Found((own, *alike), diagnosis.case.to_data(), report, stands, note, shrunk=shrunk))
        return "falsified", diagnosis.case.message

    def _scene(self) -> Scene:
        """Where the failure was found."""
        from statecheck.diagnose.diagnosis import SECONDS, Scene
        from statecheck.workers.port import InWorker

        setting = self._worker.setting
        limit = setting.time_limit
        fresh = partial(InWorker, setting.subject, setting.device, time_limit=limit, spare=False)
        left = max(0.0, self._deadline - time.monotonic())
        context = self._worker.context
        return Scene(context.subject, context.port, fresh, context.earlier, min(SECONDS, left))

    def _with_sanitizer(self, case: Case) -> str:
        """What hid the case while the sanitizer watched, in a sentence."""
        from statecheck.diagnose.rerun import ends_earlier

        known_defects = self._worker.known_defects
        earlier = ends_earlier(case, self._worker.watched)
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
        from statecheck.diagnose.diagnosis import with_functions_called

        own = {found.buckets[0] for found in self.found}
        beside = [(bucket, case) for bucket, case in self._pending.cases.items() if bucket not in own]
        for bucket, met in beside:
            case = with_functions_called(met, self._worker.context.subject)
            stands = self._into_corpus(case)
            self.found.append(Found((bucket,), case.to_data(), "", stands, _NOT_SHRUNK, shrunk=False))

    def _into_corpus(self, case: Case) -> str:
        return self._worker.keeper.keep(case, dict(self._worker.setting.first_seen))
