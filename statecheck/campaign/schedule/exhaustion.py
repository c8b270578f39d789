"""What `statecheck exhaust` explores when: of every decision all inputs of bound 0, then of bound 1, and so on until the budget is used.

A layer of inputs is dealt to as many parts as there are workers. A worker tries a part for a second, and sends the number of inputs that it tried.
The next decision is that with the least time of its share. A falsified decision is closed: its smallest failing input was found.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from statecheck.campaign.plan import Plan
from statecheck.campaign.processes.tasks import Explore, Explored
from statecheck.campaign.schedule.passes import GRACE_SECONDS
from statecheck.campaign.state import CampaignState, PropertyState
from statecheck.execution.enumerations import Enumeration, Slice, enumerations

_SLICE_SECONDS = 1.0
"""How long a worker tries inputs of one decision: with 20 decisions on two workers, each comes up several times in a minute."""


@dataclass
class DecisionProgress:
    """How far the inputs of a decision were tried.

    Args:
        bound: the one in hand.
        complete: inputs up to the bound before it, all of which were tried.
        begun: inputs of the bound in hand that were tried.
        falsified: whether one of these failed.
    """

    enumeration: Enumeration
    property_state: PropertyState
    parts: int
    bound: int = 0
    complete: int = 0
    begun: int = 0
    falsified: bool = False
    seconds: float = 0.0
    running: int = 0
    waiting: deque[Slice] = field(default_factory=deque)
    _unfinished: int = 0

    def __post_init__(self) -> None:
        self._begin()

    @property
    def open(self) -> bool:
        """Whether there are inputs to try."""
        return self.property_state.open and not self.falsified and bool(self.waiting)

    @property
    def urgency(self) -> float:
        """Seconds that it has had of its share, those among them that workers are giving it."""
        return (self.seconds + self.running * _SLICE_SECONDS) / self.enumeration.share

    def _begin(self) -> None:
        decision = self.enumeration.decision
        self._unfinished = self.parts
        self.waiting.extend(Slice(decision, self.bound, part, self.parts) for part in range(self.parts))

    def next(self) -> Slice:
        self.running += 1
        return self.waiting.popleft()

    def lost(self, slice_: Slice) -> None:
        """It was not tried, or not to its end, with nothing said of it."""
        self.running -= 1
        self.waiting.appendleft(slice_)

    def tried(self, slice_: Slice, message: Explored) -> None:
        """So many inputs of it were tried."""
        self.running -= 1
        self.seconds += message.seconds
        self.begun += message.tried
        if message.status == "falsified":
            self.falsified = True
        elif not message.exhausted:
            self.waiting.append(replace(slice_, done=slice_.done + message.tried))
        else:
            self._end_part()

    def _end_part(self) -> None:
        self._unfinished -= 1
        if not self._unfinished and not self.falsified:
            self.bound, self.complete, self.begun = self.bound + 1, self.complete + self.begun, 0
            self._begin()


class Exhaustion:
    """Gives out the inputs of the enumerations."""

    def __init__(self, plan: Plan, state: CampaignState) -> None:
        property_states = {one.tested.id: one for one in state.property_states.values()}
        self.progress = {
            one.decision: DecisionProgress(one, property_states[one.property], plan.engines)
            for one in enumerations().values()
            if one.property in property_states and one.device in (None, plan.device)
        }

    def next(self, left: float) -> Explore | None:
        """A task, None where there is nothing to do now.

        Args:
            left: seconds of the budget.
        """
        waiting = [one for one in self.progress.values() if one.open]
        if not waiting:
            return None
        chosen = min(waiting, key=lambda one: one.urgency)
        property_state = chosen.property_state
        return Explore(
            property_state.name,
            0,
            0,
            # A failure that another decision of this property met fails here, too: none goes past it.
            known=frozenset(),
            patience=min(_SLICE_SECONDS, left),
            deadline=left + GRACE_SECONDS / 2,
            isolated=property_state.deaths > 0,
            inputs=chosen.next(),
        )

    def ended(self, task: Explore, message: Explored | None) -> None:
        """An exploration has ended, or was lost with its worker: then its inputs wait among the others."""
        assert task.inputs is not None, "every task has inputs"
        progress = self.progress[task.inputs.decision]
        if message is None or message.status == "error":
            progress.lost(task.inputs)
        else:
            progress.tried(task.inputs, message)
