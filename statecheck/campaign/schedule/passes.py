"""The first pass over all properties, and the rounds that follow it.

The unit is a property, or, where the subject has configurations, such as the models of a library of sequences, a property with one of them.
First every unit gets one example, in the order of `learned`. Properties that find many defects get more, at once or later. Then rounds
follow, in which every property comes up once: first what soon has enough examples. Three of four rounds are of properties with few compared
examples only, as long as there are some. Where the budget is in examples, there are rounds alone, and nothing may depend on how fast machine
or worker are: a shard gives the same wherever it runs.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from statecheck.campaign.plan import Plan, seed_of
from statecheck.campaign.processes.handle import WorkerHandle
from statecheck.campaign.processes.tasks import Explore, Explored
from statecheck.campaign.schedule.learned import visits
from statecheck.campaign.state import CampaignState, PropertyState
from statecheck.execution.machines import MachineProperty
from statecheck.execution.property import Property
from statecheck.execution.selection import follows_requests
from statecheck.subject import is_engine

# With 170 properties on four workers, rounds of 2 s each take 85 s, and rounds of 0.3 s take 13 s, for which a minute has room.
_SLICE, _SHORTEST_SLICE = 2.0, 0.3
FIRST_EXAMPLES = 9
"""The most examples of a property in the first pass. With ten or more, Hypothesis draws simple examples first, which find a fifth as many defects."""
_FIXED_EXAMPLES, _FIXED_SCENARIOS = 40, 4
# First a dozen of everything, since each further example of one property finds less. Of a defect that one example in 20 shows, 60 compared
# examples miss it once in 20 times. A scenario has a dozen steps. Of each level, slow properties come last, so that the levels may not be far apart.
_FEW, _FEW_SCENARIOS = (12, 30, 60), (3, 6, 12)
# Not every round: properties that are slow would keep all others waiting in a campaign of some minutes.
_ROUNDS_OF_FEW = 3
# A property of whose examples fewer than one in ten is compared is not waited for.
_MOST_FOR_FEW = 10
_ENGINES = 10
"""How many times as long as others a property gets whose examples are scenarios in the subject's own engine."""
_PATIENT = 3.0
"""How many times as long as its slice an exploration may take; and it has the time for so many examples."""
_LEAST_PATIENCE = 0.5
_TURNS = 4
"""How often a property is tried in the first pass that its time was too short for."""
_SHRINKING_SHARE, _SHRINKING_STEP, _LEAST_SHRINKING = 0.25, 1 / 3, 1.0
"""The part of all workers' time in which failing inputs are shrunk; the part of what is left of it that one input gets; seconds that each gets."""
GRACE_SECONDS = 10.0
"""How long after the end of the budget a worker may go on shrinking."""


def first_compared(tested: Property, random: int = 1) -> int:
    """The compared examples that a property needs in the first pass for so many random examples.

    A state machine begins with the simplest example, so it needs a further one. A scenario of requests takes as long as many examples, so
    the simplest scenario is the first of them.
    """
    return random + (isinstance(tested, MachineProperty) and not follows_requests(tested))


class _Visit(NamedTuple):
    """A unit's turn in the first pass, with so many random examples; `configuration` is the unit's."""

    unit: str
    examples: int = 1
    configuration: str = ""


def _first_visits(untried: Sequence[PropertyState], scenarios: frozenset[str]) -> Iterator[_Visit]:
    """The order of the first pass. Properties without a learned place come last, scenarios behind the others."""
    units = {
        property_state.tested.id: property_state.unit
        for property_state in untried
        if property_state.tested.id
    }
    for id_, examples in visits():
        if id_ in units:
            yield _Visit(units[id_], examples)
    measured = {id_ for id_, _ in visits()}
    others = [property_state for property_state in untried if property_state.tested.id not in measured]
    # Units of one configuration follow each other: what it takes to have a model is paid once.
    for one in sorted(
        others, key=lambda one: (one.name in scenarios, one.tested.launches, one.configuration)
    ):
        yield _Visit(one.unit, configuration=one.configuration)


def _shrinking(plan: Plan, state: CampaignState, property_state: PropertyState) -> dict[str, Any]:
    """For how long a failing input may be shrunk: a share of what is left for that, so that no failure takes the time of all properties."""
    if plan.examples is not None:
        return {}
    if property_state.configuration and property_state.failed:
        return {"as_found": True}
    whole = _SHRINKING_SHARE * (plan.budget or 0) * plan.engines
    return {"shrinking": max(_LEAST_SHRINKING, (whole - state.shrinking) * _SHRINKING_STEP)}


class FirstPass:
    """Gives out one exploration of each unit.

    Args:
        scenarios: properties of which an example takes as long as many of others.
        homes: by the property or the configuration, the worker that has its strategies or its model ready.
    """

    def __init__(
        self, plan: Plan, state: CampaignState, scenarios: frozenset[str], homes: dict[str, WorkerHandle]
    ) -> None:
        self._plan, self._state, self._homes = plan, state, homes
        untried = [
            property_state
            for property_state in state.property_states.values()
            if property_state.open and not property_state.tried
        ]
        self._waiting = deque(_first_visits(untried, scenarios))
        self._visits = Counter[str]()
        self._in_hand = Counter[str]()

    @property
    def over(self) -> bool:
        """Whether every property was tried."""
        return not self._waiting and not self._in_hand.total()

    def next(self, worker: WorkerHandle, left: float) -> Explore | None:
        """A task for a worker, None where there is nothing for it now."""
        while self._waiting and not self._may_be_tried(self._waiting[0].unit):
            self._waiting.popleft()
        if not self._waiting:
            return None
        unit, examples, configuration = self._first_of(worker)
        untried = 1 + len(self._waiting) + self._in_hand.total()
        patience = max(_LEAST_PATIENCE, left * self._plan.engines / untried)
        property_state = self._state.property_states[unit]
        number = f"{unit}!{self._visits[unit]}" if self._visits[unit] else f"{unit}!"
        self._visits[unit] += 1
        self._in_hand[unit] += 1
        return Explore(
            property_state.name,
            seed_of(self._plan, self._plan.first_round, number),
            FIRST_EXAMPLES,
            known=property_state.known,
            patience=min(patience, left),
            deadline=left + GRACE_SECONDS / 2,
            enough=first_compared(property_state.tested, examples),
            simplest=False,
            sanitized=property_state.next_sanitized(),
            configuration=configuration,
            **_shrinking(self._plan, self._state, property_state),
        )

    def _may_be_tried(self, unit: str) -> bool:
        property_state = self._state.property_states[unit]
        # A property that ended its worker would end the next worker too, before other properties are tried.
        return property_state.open and not property_state.deaths

    def _first_of(self, worker: WorkerHandle) -> _Visit:
        """The next turn of the first pass, if possible of a configuration that this worker has, or that none has."""
        if not self._waiting[0].configuration:
            return self._waiting.popleft()
        homes = (self._homes.get(visit.configuration, worker) for visit in self._waiting)
        number = next((number for number, home in enumerate(homes) if home is worker), 0)
        visit = self._waiting[number]
        del self._waiting[number]
        self._homes.setdefault(visit.configuration, worker)
        return visit

    def ended(self, task: Explore, message: Explored | None) -> None:
        """An exploration has ended, or was lost with its worker."""
        unit, property_state = task.unit, self._state.property_states[task.unit]
        if not self._in_hand[unit]:
            return
        self._in_hand[unit] -= 1
        too_short = message is not None and message.late and not property_state.record.counts.compared
        waits = any(visit.unit == unit for visit in self._waiting)
        if too_short and property_state.open and not waits and self._visits[unit] < _TURNS:
            self._waiting.append(_Visit(unit, configuration=task.configuration))


class Rounds:
    """Gives out explorations in rounds, until the budget is used.

    Args:
        scenarios: properties of which an example takes as long as many of others.
        homes: by the property or the configuration, the worker that has its strategies or its model ready.
    """

    def __init__(
        self, plan: Plan, state: CampaignState, scenarios: frozenset[str], homes: dict[str, WorkerHandle]
    ) -> None:
        self.begun = 0
        """Rounds that were begun."""
        self._plan, self._state, self._scenarios, self._homes = plan, state, scenarios, homes
        self._by_time = plan.examples is None
        self._queue: deque[Explore] = deque()
        self._examples_at_turn = -1
        self._explored = Counter[str]()
        self._level = 0
        """Which of the numbers of `_FEW` every property is to reach now."""

    def next(self, worker: WorkerHandle, workers: Sequence[WorkerHandle], left: float) -> Explore | None:
        """A task for one of the workers, None where there is nothing for it now."""
        if not self._queue and not self._turn(workers):
            return None
        return self._sized(self._chosen(worker), left)

    def _chosen(self, worker: WorkerHandle) -> Explore:
        """The next task, if possible of a property or a configuration that this worker or none has explored: it has its strategies or its model ready."""
        homes = (self._homes.get(task.configuration or task.property, worker) for task in self._queue)
        number = next((number for number, home in enumerate(homes) if home is worker), 0)
        task = self._queue[number]
        del self._queue[number]
        self._homes[task.configuration or task.property] = worker
        return task

    def _turn(self, workers: Sequence[WorkerHandle]) -> bool:
        """Begin another round, unless that has to wait or nothing is left to be explored."""
        if not self._by_time:
            # What a round begins with must not depend on who of the round before was first.
            if any(worker.task is not None for worker in workers):
                return False
            if self._examples_at_turn == self._state.examples:
                return False
            self._examples_at_turn = self._state.examples
        chosen = [
            property_state for property_state in self._state.property_states.values() if property_state.open
        ]
        if self._by_time and self.begun % (1 + _ROUNDS_OF_FEW) < _ROUNDS_OF_FEW:
            # A round for each level: a property with too few inputs, or too little time, for a level keeps no other from the next.
            self._level = max(self._level, min(self.begun, len(_FEW) - 1))
            while not any(self._missing(one) > 0 for one in chosen) and self._level + 1 < len(_FEW):
                self._level += 1
            few = [one for one in chosen if one.unshrunk or self._missing(one) > 0]
            chosen = few or chosen
        chosen.sort(key=self._urgency)
        times = -(-len(workers) // len(chosen)) if chosen and self._by_time else 1
        tasks = (
            self._explore(property_state, number) for number in range(times) for property_state in chosen
        )
        self._queue.extend(tasks if self._by_time else self._shared(tasks))
        self.begun += bool(self._queue)
        return bool(self._queue)

    def _few(self, property_state: PropertyState) -> int:
        return (_FEW_SCENARIOS if property_state.name in self._scenarios else _FEW)[self._level]

    def _missing(self, property_state: PropertyState) -> int:
        """Compared examples that are wanting until it has had as many as everything should have; 0 once it has tried enough."""
        few = self._few(property_state)
        return (
            few - property_state.record.counts.compared
            if property_state.record.counts.examples < _MOST_FOR_FEW * few
            else 0
        )

    def _urgency(self, property_state: PropertyState) -> tuple[bool, float, bool, float]:
        # What was met and not shrunk is worth another look before everything else.
        later = not property_state.unshrunk
        # What has few examples and soon has enough comes first, so that as many as possible have enough.
        missing = max(0, self._missing(property_state)) / (property_state.rate or 1) if self._by_time else 0
        return (
            later,
            missing,
            property_state.tested.launches,
            property_state.record.seconds if self._by_time else 0,
        )

    def _explore(self, property_state: PropertyState, number: int) -> Explore:
        unit = property_state.unit
        # Counted by the unit, since which rounds it is in depends on how fast others are.
        nth = self._explored[unit] - (number > 0)
        self._explored[unit] += not number
        seed = seed_of(self._plan, self._plan.first_round + nth, unit if not number else f"{unit}#{number}")
        return Explore(property_state.name, seed, 0, configuration=property_state.configuration)

    def _shared(self, tasks: Iterable[Explore]) -> Iterator[Explore]:
        """What is left of the examples goes to the tasks in this order; what shrinking takes beyond that, only later rounds lack."""
        left = (self._plan.examples or 0) - self._state.examples
        for task in tasks:
            fixed = (
                _FIXED_SCENARIOS
                if task.property in self._scenarios or task.configuration
                else _FIXED_EXAMPLES
            )
            size = min(fixed, left)
            left -= size
            if size > 0:
                yield replace(task, max_examples=size)

    def _sized(self, task: Explore, left: float) -> Explore:
        property_state = self._state.property_states[task.unit]
        # What has ended a worker would do so in every round.
        isolated = property_state.deaths > 0
        sized = replace(
            task, known=property_state.known, sanitized=property_state.next_sanitized(), isolated=isolated
        )
        sized = replace(sized, **_shrinking(self._plan, self._state, property_state))
        if not self._by_time:
            return replace(sized, patience=left, deadline=left + GRACE_SECONDS / 2)
        if (missing := self._missing(property_state)) > 0:
            # By count, since the first examples say little about how long others take: strategies and kernels are made for them.
            share = property_state.record.counts.compared / max(1, property_state.examples)
            size = math.ceil(missing / max(share, 1 / _MOST_FOR_FEW))
            fair = min(_SLICE, max(_SHORTEST_SLICE, left * self._plan.engines / (1 + len(self._queue))))
            patience = min(max(fair, _PATIENT / (property_state.rate or 1)), left)
            late = left + GRACE_SECONDS / 2
            return replace(sized, max_examples=size, enough=missing, patience=patience, deadline=late)
        slice_ = self._slice(property_state, left)
        size = FIRST_EXAMPLES if property_state.rate == 0 else max(1, int(property_state.rate * slice_))
        patience = min(max(_LEAST_PATIENCE, _PATIENT * slice_), left)
        return replace(sized, max_examples=size, patience=patience, deadline=left + GRACE_SECONDS / 2)

    def _slice(self, property_state: PropertyState, left: float) -> float:
        """Seconds of a worker that a property gets in a round."""
        units = sum(one.open for one in self._state.property_states.values())
        fair = (self._plan.budget or 0) * self._plan.engines / (3 * max(1, units))
        times = _ENGINES if any(map(is_engine, property_state.tested.functions)) else 1
        slice_ = min(_SLICE, max(_SHORTEST_SLICE, fair)) * times
        return min(slice_, max(_SHORTEST_SLICE, left * 0.8))
