"""What a campaign does next: the corpus, explorations, the canary."""

from __future__ import annotations

import filecmp
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

from statecheck.campaign.corpus import Corpus, property_in
from statecheck.campaign.plan import Plan, seed_of
from statecheck.campaign.processes.handle import WorkerHandle
from statecheck.campaign.processes.tasks import Explore, Explored, Replay, RunCanary, Task
from statecheck.campaign.record import FILE, NOT_REPLAYED, CampaignRecord, CorpusRecord
from statecheck.campaign.schedule.exhaustion import Exhaustion
from statecheck.campaign.schedule.fixed import FixedExamples
from statecheck.campaign.schedule.passes import GRACE_SECONDS, FirstPass, Rounds
from statecheck.campaign.state import CampaignState

_REPLAY_SHARE = 0.2
"""The part of the budget in which the corpus is replayed before properties are explored; the rest of it comes after."""
_CANARY_SECONDS, _LONG_BUDGET = 3.0, 30.0
"""With such a budget or a longer one, the canary runs after three seconds, so that a failure is found sooner. In a short campaign, it runs
first: an example may keep a worker busy until the end."""
_RECORDS, _MOST_READ = 5, 20
"""Records of earlier campaigns in which is looked for what became of cases, and records that are read for them: others may be of other subjects."""
_PASSED_OVER = ("LEFT OUT", NOT_REPLAYED)
_SETTLED = ("KNOWN", "FIXED", "NOT REPRODUCED", "NOT APPLICABLE")


class Scheduler:
    """Gives each worker its next task.

    A campaign has phases: the cases of the corpus; a first pass over all properties in the learned order; explorations that were lost with
    their workers; and then rounds. A profile has its fixed examples in place of passes and rounds, and `exhaust` its enumerations.

    Args:
        scenarios: properties of which an example takes as long as many of others.
        examples: of each property of a profile, by its id.
    """

    def __init__(
        self,
        plan: Plan,
        state: CampaignState,
        scenarios: frozenset[str] = frozenset(),
        examples: Mapping[str, int] | None = None,
    ) -> None:
        self._plan, self._state = plan, state
        self._first: deque[Replay] = deque()
        self._canary: RunCanary | None = None
        self.last: dict[str, str] = {}
        """By the name of a case's file, its verdict when it was replayed last, as far as that is known."""
        self.lost: deque[Explore] = deque()
        """Explorations that ended with their workers, to be done again."""
        self.exhaustion = Exhaustion(plan, state) if plan.exhaustive else None
        self._fixed = FixedExamples(plan, state, examples or {}) if plan.profile else None
        self._first_pass: FirstPass | None = None
        self._rounds: Rounds | None = None
        if self.exhaustion is None and self._fixed is None:
            homes: dict[str, WorkerHandle] = {}
            self._rounds = Rounds(plan, state, scenarios, homes)
            if plan.examples is None:
                self._first_pass = FirstPass(plan, state, scenarios, homes)

    @property
    def rounds(self) -> int:
        """Rounds that were begun."""
        return self._rounds.begun if self._rounds is not None else 0

    @property
    def not_replayed(self) -> list[Path]:
        """Cases of the corpus that wait to be replayed."""
        return [Path(task.path) for task in self._first]

    @property
    def canary_waits(self) -> bool:
        """Whether the canary has yet to be given to a worker."""
        return self._canary is not None

    def passed_over(self, path: Path, verdict: str, why: str) -> CorpusRecord:
        """The record of a case that was not replayed to its end."""
        return CorpusRecord(path.name, verdict, why, self.last.get(path.name, ""))

    def put_first(self, task: Replay | RunCanary) -> None:
        """Have a task done that a worker could not do."""
        if isinstance(task, RunCanary):
            self._canary = task
        else:
            self._first.appendleft(task)

    def begin(self, folder: Path, chosen: Container[str] | None) -> None:
        """Note the canary, and the cases of the corpus.

        Args:
            chosen: properties whose cases are replayed, None for all.
        """
        if self._plan.canary:
            self._canary = RunCanary(str(folder / "canary"))
        if not self._plan.replayed:
            return
        paths = list(_files((self._plan.corpus, self._plan.keeps_in)))
        if chosen is not None:
            paths = [path for path in paths if (name := property_in(path)) in chosen or not name]
        self.last = last_verdicts(self._plan) if paths else {}
        self._first.extend(Replay(str(path)) for path in self._in_order(paths))

    def _in_order(self, paths: Sequence[Path]) -> list[Path]:
        """What failed last, or was never replayed, comes first. Among equals the order is drawn: what there is no time for differs each time."""

        def place(path: Path) -> tuple[bool, int]:
            is_settled = self.last.get(path.name, "") in _SETTLED
            return is_settled, seed_of(self._plan, self._plan.first_round, f"{path.name} of the corpus")

        return sorted(paths, key=place)

    def next(
        self, worker: WorkerHandle, workers: Sequence[WorkerHandle], at: float, left: float
    ) -> Task | None:
        """A task for one of the workers, None where there is nothing for it now.

        Args:
            at: seconds since the campaign began.
            left: seconds of the budget.
        """
        if self._canary is not None and at >= self._canary_at:
            return self._taken_canary()
        if left > 0 and self._first and self._replays_now(at):
            return self._first.popleft()
        return self._exploration(worker, workers, left) or self._taken_canary()

    def _exploration(
        self, worker: WorkerHandle, workers: Sequence[WorkerHandle], left: float
    ) -> Explore | None:
        if left <= 0:
            return None
        if self._first_pass is not None and (task := self._first_pass.next(worker, left)) is not None:
            return task
        # Not before: what ends its process takes long to shrink, and others have not been tried yet.
        while self.lost:
            task = self.lost.popleft()
            property_state = self._state.property_states[task.unit]
            if property_state.open:
                isolated = task.isolated or property_state.deaths > 0
                return replace(task, isolated=isolated, patience=left, deadline=left + GRACE_SECONDS / 2)
        if self.exhaustion is not None:
            return self.exhaustion.next(left)
        if self._fixed is not None:
            return self._fixed.next()
        assert self._rounds is not None
        return self._rounds.next(worker, workers, left)

    def ended(self, task: Explore, message: Explored | None) -> None:
        """An exploration has ended, or was lost with its worker."""
        if self.exhaustion is not None:
            self.exhaustion.ended(task, message)
        if self._first_pass is not None:
            self._first_pass.ended(task, message)

    def again(self, task: Explore) -> None:
        """Have an exploration done again that was lost. The inputs of an enumeration wait among the others already."""
        if self.exhaustion is None:
            self.lost.append(task)

    @property
    def _canary_at(self) -> float:
        budget = self._plan.budget
        return _CANARY_SECONDS if budget is not None and budget >= _LONG_BUDGET else 0.0

    def _taken_canary(self) -> RunCanary | None:
        taken, self._canary = self._canary, None
        return taken

    def _replays_now(self, at: float) -> bool:
        """Whether a case is replayed now: in a short campaign the corpus may not keep properties from being tried at all."""
        budget = self._plan.budget
        if budget is None or (self._first_pass is not None and self._first_pass.over):
            return True
        return at < _REPLAY_SHARE * budget


def _files(folders: Iterable[str]) -> list[Path]:
    """The files of several corpora; of files with the same name and the same contents, one."""
    found: dict[str, list[Path]] = {}
    for folder in dict.fromkeys(folders):
        try:
            paths = Corpus(Path(folder)).paths()
        except OSError:
            # A worker says why it cannot be read.
            paths = [Path(folder)]
        for path in paths:
            same = found.setdefault(path.name, [])
            if not any(_are_equal(path, other) for other in same):
                same.append(path)
    return [path for same in found.values() for path in same]


def _are_equal(one: Path, other: Path) -> bool:
    try:
        return filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def last_verdicts(plan: Plan) -> dict[str, str]:
    """By the name of a case's file, what came of it in the latest campaigns of the subject on the device; cases that failed there, too."""
    found: dict[str, str] = {}
    for record in _latest(plan):
        verdicts = {PurePath(bucket.corpus).name: "FAILED" for bucket in record.buckets if bucket.corpus}
        for row in record.corpus:
            verdict = row.last if row.verdict in _PASSED_OVER else row.verdict
            if verdict and verdicts.get(row.file) != "FAILED":
                verdicts[row.file] = verdict
        found = verdicts | found
    return found


def _latest(plan: Plan) -> Iterator[CampaignRecord]:
    """The latest records of campaigns of the plan's subject and device, the newest first."""
    paths: list[tuple[float, Path]] = []
    for path in (Path(plan.reports) / "campaigns").glob(f"*/{FILE}"):
        with suppress(OSError):
            paths.append((path.stat().st_mtime, path))
    number = 0
    for _, path in sorted(paths, reverse=True)[:_MOST_READ]:
        # What cannot be read says nothing.
        with suppress(OSError, ValueError):
            record = CampaignRecord.load(path)
            if (record.plan.subject, record.plan.device) == (plan.subject, plan.device):
                number += 1
                yield record
        if number >= _RECORDS:
            return
