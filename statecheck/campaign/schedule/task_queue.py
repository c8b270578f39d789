"""What a campaign does next: the corpus, explorations, the canary."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from pathlib import Path

from statecheck.campaign.corpus import Corpus
from statecheck.campaign.plan import Plan
from statecheck.campaign.processes.handle import WorkerHandle
from statecheck.campaign.processes.tasks import Replay, RunCanary, Task
from statecheck.campaign.schedule.assignment import Assignment
from statecheck.campaign.schedule.exhaustion import Exhaustion
from statecheck.campaign.schedule.fixed import FixedExamples

Explorations = Assignment | Exhaustion | FixedExamples
"""What gives out the explorations of a campaign."""

_REPLAY_SHARE = 0.2
"""The part of the budget in which the corpus is replayed before properties are explored; the rest of it comes after."""
_CANARY_SECONDS, _LONG_BUDGET = 3.0, 30.0
"""With such a budget or a longer one, the canary runs after three seconds, so that a failure is found sooner. In a short campaign, it runs
first: an example may keep a worker busy until the end."""


class TaskQueue:
    """Gives each worker its next task.

    Args:
        assignment: of the explorations.
    """

    def __init__(self, plan: Plan, assignment: Explorations) -> None:
        self._plan, self._assignment = plan, assignment
        self._first: deque[Replay] = deque()
        self._canary: RunCanary | None = None

    @property
    def left_out(self) -> int:
        """Cases of the corpus that wait to be replayed."""
        return len(self._first)

    @property
    def canary_waits(self) -> bool:
        """Whether the canary has yet to be given to a worker."""
        return self._canary is not None

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
        done = set[str]()
        if self._plan.canary:
            self._canary = RunCanary(str(folder / "canary"))
        if not self._plan.replayed:
            return
        for corpus in dict.fromkeys((self._plan.corpus, self._plan.keeps_in)):
            for entry in Corpus(Path(corpus)).entries():
                is_chosen = chosen is None or entry.case is None or entry.case.property_name in chosen
                if entry.path.name not in done and is_chosen:
                    done.add(entry.path.name)
                    self._first.append(Replay(str(entry.path)))

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
        return self._assignment.next(worker, workers, left) or self._taken_canary()

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
        if budget is None or self._assignment.every_property_was_tried:
            return True
        return at < _REPLAY_SHARE * budget
