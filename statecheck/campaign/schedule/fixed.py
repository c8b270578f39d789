"""What `statecheck conform` explores: each property of a profile once, with its number of examples."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from statecheck.campaign.ledger import Ledger
from statecheck.campaign.plan import Plan, seed_of
from statecheck.campaign.processes.handle import WorkerHandle
from statecheck.campaign.processes.tasks import Explore, Explored, unit_name

SHRINKING_SECONDS, MANY = 30.0, 4
"""A scenario of an engine may take seconds, and Hypothesis alone would shrink for 300 s: seven wrong properties would outlast the limit of a CI job.
Once so many properties have failed, the inputs of further ones, mostly of the same cause, are reported as they are found: to import a
release once more in order to repeat a failure takes up to half a minute."""
_LEAST_OF_CONFIGURATION = 4
"""Examples of a property with each of many configurations, such as the models of a library: with fewer, mostly one without anything compared."""


def _share(examples: int, configurations: int) -> int:
    """The examples of a property with each of so many configurations."""
    return max(-(-examples // configurations), min(examples, _LEAST_OF_CONFIGURATION))


class FixedExamples:
    """Gives out the explorations of a profile, as `Assignment` does those of other campaigns.

    No verdict depends on time: two runs with the same versions of everything try the same examples until one fails. Only how small
    a failing input becomes does.

    Args:
        examples: of each property, by its id.
    """

    every_property_was_tried = False

    def __init__(self, plan: Plan, ledger: Ledger, examples: Mapping[str, int]) -> None:
        self.done = 0
        self.lost: deque[Explore] = deque()
        """Explorations that ended with their workers, to be done again."""
        self._ledger = ledger
        chosen = [one for one in ledger.standings.values() if one.open]
        shares = Counter(one.name for one in chosen)
        # Long ones first, so that no worker is left with a long one at the end.
        chosen.sort(key=lambda one: (not one.tested.launches, one.configuration, one.tested.id))
        self._waiting = deque(
            Explore(
                one.name,
                seed_of(plan, 0, unit_name(one.tested.id, one.configuration)),
                _share(examples[one.tested.id], shares[one.name]),
                configuration=one.configuration,
            )
            for one in chosen
        )

    def next(self, worker: WorkerHandle, workers: Sequence[WorkerHandle], left: float) -> Explore | None:  # noqa: ARG002 - an assignment's
        """A task for a worker, None where there is nothing for it now."""
        waiting = self.lost or self._waiting
        while waiting:
            task = waiting.popleft()
            standing = self._ledger.standings[task.unit]
            if standing.open:
                failed = sum(one.failed for one in self._ledger.standings.values())
                return replace(
                    task,
                    known=standing.known,
                    isolated=standing.deaths > 0,
                    shrinking=SHRINKING_SECONDS,
                    as_found=failed >= MANY,
                )
            waiting = self.lost or self._waiting
        return None

    def ended(self, task: Explore, message: Explored | None) -> None:
        """An exploration has ended, or was lost with its worker."""

    def again(self, task: Explore) -> None:
        """Have a task done next that was lost."""
        self.lost.append(task)
