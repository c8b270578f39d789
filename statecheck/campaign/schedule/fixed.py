"""What `statecheck conform` explores: each property of a profile once, with its number of examples."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace

from statecheck.campaign.plan import Plan, seed_of
from statecheck.campaign.processes.tasks import Explore, unit_name
from statecheck.campaign.state import CampaignState

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
    """Gives out one exploration of each property of a profile, or several where there are configurations.

    No verdict depends on time: two runs with the same versions of everything try the same examples until one fails. Only how small
    a failing input becomes does.

    Args:
        examples: of each property, by its id.
    """

    def __init__(self, plan: Plan, state: CampaignState, examples: Mapping[str, int]) -> None:
        self._state = state
        chosen = [one for one in state.property_states.values() if one.open]
        shares = Counter(one.name for one in chosen)
        # Long ones first, so that no worker is left with a long one at the end.
        chosen.sort(key=lambda one: (not one.tested.launches, one.configuration, one.tested.id))
        self._waiting = deque(
            Explore(
                one.name,
                seed_of(plan, 0, unit_name(one.tested.id, one.configuration)),
                _share(examples[one.tested.id], shares[one.name]),
                shrinking=SHRINKING_SECONDS,
                configuration=one.configuration,
            )
            for one in chosen
        )

    def next(self) -> Explore | None:
        """A task, None where all properties have theirs."""
        while self._waiting:
            task = self._waiting.popleft()
            property_state = self._state.property_states[task.unit]
            if property_state.open:
                failed = sum(one.failed for one in self._state.property_states.values())
                return replace(
                    task,
                    known=property_state.known,
                    isolated=property_state.deaths > 0,
                    as_found=failed >= MANY,
                )
        return None
