"""What a campaign does next. A campaign has phases, and `Scheduler.next` reads them from top to bottom:

1. The canary: first in a short campaign, after three seconds in a longer one.
2. The cases of the corpus, those that failed last or were never replayed first; in a short campaign only for a part of the budget.
3. A first pass over all properties in the learned order. A property gets one compared example; those that find many defects get more,
   at once or later.
4. Explorations that were lost with their workers, again with the same seed in an isolated process.
5. Rounds until the budget is used, in each of which every property comes up once. Three of four rounds are of properties with few compared
   examples only, as long as there are some. Where the budget is in examples, there are rounds alone, and nothing may depend on how
   fast machine or worker are: a shard gives the same wherever it runs.

A profile of `conform` has its fixed examples in place of 3 and 5, and `exhaust` its enumerations.

What is scheduled is a unit: a property, or, where the subject has configurations, such as the models of a library of sequences, a property
with one of them.
"""

from __future__ import annotations

import filecmp
import json
import math
from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby, islice
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from statecheck.campaign.corpus import Corpus, property_in
from statecheck.campaign.plan import Plan, seed_of
from statecheck.campaign.pool import WorkerHandle
from statecheck.campaign.record import NOT_REPLAYED, CorpusRecord, saved_records
from statecheck.campaign.state import CampaignState, PropertyState
from statecheck.campaign.tasks import Explore, Explored, Replay, RunCanary, Task, unit_name
from statecheck.execution.enumerations import Enumeration, Slice, enumerations
from statecheck.execution.example import REFUSAL
from statecheck.execution.property import MachineProperty, Property
from statecheck.execution.selection import follows_requests
from statecheck.subject import is_engine

GRACE_SECONDS = 10.0
"""How long after the end of the budget a worker may go on shrinking."""
_REPLAY_SHARE = 0.2
"""The part of the budget in which the corpus is replayed before properties are explored; the rest of it comes after."""
_CANARY_SECONDS, _LONG_BUDGET = 3.0, 30.0
"""With such a budget or a longer one, the canary runs after three seconds, so that a failure is found sooner. In a short campaign, it runs
first: an example may keep a worker busy until the end."""


class Scheduler:
    """Gives each worker its next task.

    Args:
        examples: of each property of a profile, by its id.
    """

    def __init__(self, plan: Plan, state: CampaignState, examples: Mapping[str, int] | None = None) -> None:
        self._plan, self._state = plan, state
        self._canary: RunCanary | None = None
        self._replays: deque[Replay] = deque()
        self.last: dict[str, str] = {}
        """By the name of a case's file, its verdict when it was replayed last, as far as that is known."""
        self.lost: deque[Explore] = deque()
        """Explorations that ended with their workers, to be done again."""
        homes: dict[str, WorkerHandle] = {}
        self.exhaustion = Exhaustion(plan, state) if plan.exhaustive else None
        self._fixed = FixedExamples(plan, state, examples or {}) if plan.profile else None
        drawn = not plan.exhaustive and not plan.profile
        self._first_pass = FirstPass(plan, state, homes) if drawn and plan.examples is None else None
        self._rounds = Rounds(plan, state, homes)

    @property
    def rounds(self) -> int:
        """Rounds that were begun."""
        return self._rounds.begun

    @property
    def not_replayed(self) -> list[Path]:
        """Cases of the corpus that wait to be replayed."""
        return [Path(task.path) for task in self._replays]

    @property
    def canary_waits(self) -> bool:
        """Whether the canary has yet to be given to a worker."""
        return self._canary is not None

    def begin(self, folder: Path, chosen: Container[str] | None) -> None:
        """Note the canary, and the cases of the corpus.

        Args:
            chosen: properties whose cases are replayed, None for all.
        """
        if self._plan.canary:
            self._canary = RunCanary(str(folder / "canary"))
        if not self._plan.replayed:
            return
        paths = _files((self._plan.corpus, self._plan.keeps_in))
        if chosen is not None:
            paths = [path for path in paths if (name := property_in(path)) in chosen or not name]
        self.last = last_verdicts(self._plan) if paths else {}

        def place(path: Path) -> tuple[bool, int]:
            # Among equals the order is drawn: what there is no time for differs each time.
            is_settled = self.last.get(path.name, "") in _SETTLED
            return is_settled, seed_of(self._plan, self._plan.first_round, f"{path.name} of the corpus")

        self._replays.extend(Replay(str(path)) for path in sorted(paths, key=place))

    def next(
        self, worker: WorkerHandle, workers: Sequence[WorkerHandle], at: float, left: float
    ) -> Task | None:
        """A task for one of the workers, None where there is nothing for it now.

        Args:
            at: seconds since the campaign began.
            left: seconds of the budget.
        """
        budget = self._plan.budget
        if at >= (_CANARY_SECONDS if budget is not None and budget >= _LONG_BUDGET else 0.0):
            canary, self._canary = self._canary, None
            if canary is not None:
                return canary
        if left > 0:
            # In a short campaign the corpus may not keep properties from being tried at all.
            tried = self._first_pass is not None and self._first_pass.over
            if self._replays and (budget is None or tried or at < _REPLAY_SHARE * budget):
                return self._replays.popleft()
            task = self._exploration(worker, workers, left)
            if task is not None:
                return task
        canary, self._canary = self._canary, None
        return canary

    def _exploration(
        self, worker: WorkerHandle, workers: Sequence[WorkerHandle], left: float
    ) -> Explore | None:
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

    def put_first(self, task: Replay | RunCanary) -> None:
        """Have a task done that a worker could not do."""
        if isinstance(task, RunCanary):
            self._canary = task
        else:
            self._replays.appendleft(task)

    def passed_over(self, path: Path, verdict: str, why: str) -> CorpusRecord:
        """The record of a case that was not replayed to its end."""
        return CorpusRecord(path.name, verdict, why, self.last.get(path.name, ""))


# The corpus.

_RECORDS, _MOST_READ = 5, 20
"""Records of earlier campaigns in which is looked for what became of cases, and records that are read for them: others may be of other subjects."""
_PASSED_OVER = ("LEFT OUT", NOT_REPLAYED)
_SETTLED = ("KNOWN", "FIXED", "NOT REPRODUCED", "NOT APPLICABLE")


def _files(folders: Iterable[str]) -> list[Path]:
    """The files of several corpora; of files with the same name and the same contents, one."""

    def are_equal(first: Path, other: Path) -> bool:
        try:
            return filecmp.cmp(first, other, shallow=False)
        except OSError:
            return False

    found: dict[str, list[Path]] = {}
    for folder in dict.fromkeys(folders):
        try:
            paths = Corpus(Path(folder)).paths()
        except OSError:
            # A worker says why it cannot be read.
            paths = [Path(folder)]
        for path in paths:
            same = found.setdefault(path.name, [])
            if not any(are_equal(path, other) for other in same):
                same.append(path)
    return [path for same in found.values() for path in same]


def last_verdicts(plan: Plan) -> dict[str, str]:
    """By the name of a case's file, what came of it in the latest campaigns of the subject on the device; cases that failed there, too."""
    latest = islice(saved_records(Path(plan.reports)), _MOST_READ)
    same = (
        record
        for record in latest
        if (record.plan.subject, record.plan.device) == (plan.subject, plan.device)
    )
    found: dict[str, str] = {}
    for record in islice(same, _RECORDS):
        verdicts = {PurePath(bucket.corpus).name: "FAILED" for bucket in record.buckets if bucket.corpus}
        for row in record.corpus:
            verdict = row.last if row.verdict in _PASSED_OVER else row.verdict
            if verdict and verdicts.get(row.file) != "FAILED":
                verdicts[row.file] = verdict
        # A later record comes before.
        found = verdicts | found
    return found


# The first pass.

FIRST_EXAMPLES = 9
"""The most examples of a property in the first pass. Versions of Hypothesis that draw bytes begin ten or more with simple ones."""
_LEAST_PATIENCE = 0.5
_TURNS = 4
"""How often a property is tried in the first pass that its time was too short for."""
_SHRINKING_SHARE, _SHRINKING_STEP, _LEAST_SHRINKING = 0.25, 1 / 3, 1.0
"""The part of all workers' time in which failing inputs are shrunk; the part of what is left of it that one input gets; seconds that each gets."""
ORDER = Path(__file__).with_name("order.json")
"""The order of properties in the first pass, learned from planted defects: a list of property ids, one for each random example. A property that
finds many defects is in it several times. Where an id follows itself, the examples are run together, which takes less than one by
one. `python -m lab.hunt.learn` measures the properties and writes the file."""


@cache
def visits() -> tuple[tuple[str, int], ...]:
    """The property ids in the order of the first pass, each with the number of its random examples."""
    ids = json.loads(ORDER.read_text(encoding="utf-8"))
    return tuple((id_, len(list(same))) for id_, same in groupby(ids))


def first_compared(tested: Property, random: int = 1) -> int:
    """The compared examples that a property needs in the first pass for so many random examples.

    A state machine begins with the simplest example, so it needs a further one. A scenario of requests takes as long as many examples, so
    the simplest scenario is the first of them.
    """
    return random + (isinstance(tested, MachineProperty) and not follows_requests(tested))


def _shrinking(plan: Plan, state: CampaignState, property_state: PropertyState) -> dict[str, Any]:
    """For how long a failing input may be shrunk: a share of what is left for that, so that no failure takes the time of all properties."""
    if plan.examples is not None:
        return {}
    if property_state.configuration and property_state.failed:
        return {"as_found": True}
    whole = _SHRINKING_SHARE * (plan.budget or 0) * plan.engines
    return {"shrinking": max(_LEAST_SHRINKING, (whole - state.shrinking) * _SHRINKING_STEP)}


class _Visit(NamedTuple):
    """A unit's turn in the first pass, with so many random examples; `configuration` is the unit's.

    `written`: all written examples are run first, and then random ones, as many as a visit has at most.
    """

    unit: str
    examples: int = 1
    configuration: str = ""
    written: bool = False


class FirstPass:
    """Gives out one exploration of each unit.

    Args:
        homes: by the property or the configuration, the worker that has its strategies or its model ready.
    """

    def __init__(self, plan: Plan, state: CampaignState, homes: dict[str, WorkerHandle]) -> None:
        self._plan, self._state, self._homes = plan, state, homes
        untried = [
            candidate
            for candidate in state.property_states.values()
            if candidate.open and not candidate.tried
        ]
        units = {candidate.id: candidate.unit for candidate in untried}
        self._waiting = deque(_Visit(units[id_], examples) for id_, examples in visits() if id_ in units)
        # A written example has all bad input of a function: all of them take less than a second.
        self._waiting.extend(
            _Visit(candidate.unit, written=True) for candidate in untried if candidate.tested.kind == REFUSAL
        )
        measured = {id_ for id_, _ in visits()}
        # Properties without a learned place come last, scenarios behind the others. Units of one configuration follow each other: what it
        # takes to have a model is paid once.
        others = sorted(
            (candidate for candidate in untried if candidate.id not in measured),
            key=lambda candidate: (
                follows_requests(candidate.tested),
                candidate.tested.launches,
                candidate.configuration,
            ),
        )
        self._waiting.extend(
            _Visit(candidate.unit, configuration=candidate.configuration) for candidate in others
        )
        self._visits = Counter[str]()
        self._in_hand = Counter[str]()

    @property
    def over(self) -> bool:
        """Whether every property was tried."""
        return not self._waiting and not self._in_hand.total()

    def next(self, worker: WorkerHandle, left: float) -> Explore | None:
        """A task for a worker, None where there is nothing for it now."""
        states = self._state.property_states
        # A property that ended its worker would end the next worker too, before other properties are tried.
        while self._waiting and not (
            states[self._waiting[0].unit].open and not states[self._waiting[0].unit].deaths
        ):
            self._waiting.popleft()
        if not self._waiting:
            return None
        number = 0
        if self._waiting[0].configuration:
            # If possible a configuration that this worker has, or that none has.
            homes = (self._homes.get(visit.configuration, worker) for visit in self._waiting)
            number = next((number for number, home in enumerate(homes) if home is worker), 0)
        unit, examples, configuration, written = self._waiting[number]
        del self._waiting[number]
        if configuration:
            self._homes.setdefault(configuration, worker)
        untried = 1 + len(self._waiting) + self._in_hand.total()
        patience = max(_LEAST_PATIENCE, left * self._plan.engines / untried)
        property_state = states[unit]
        visit = f"{unit}!{self._visits[unit]}" if self._visits[unit] else f"{unit}!"
        self._visits[unit] += 1
        self._in_hand[unit] += 1
        return Explore(
            property_state.id,
            seed_of(self._plan, self._plan.first_round, visit),
            FIRST_EXAMPLES,
            known=property_state.known,
            patience=min(patience, left),
            deadline=left + GRACE_SECONDS / 2,
            enough=0 if written else first_compared(property_state.tested, examples),
            simplest=written,
            sanitized=property_state.next_sanitized(),
            configuration=configuration,
            **_shrinking(self._plan, self._state, property_state),
        )

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


# Rounds.

# With 170 properties on four workers, rounds of 2 s each take 85 s, and rounds of 0.3 s take 13 s, for which a minute has room.
_SLICE, _SHORTEST_SLICE = 2.0, 0.3
_FIXED_EXAMPLES, _FIXED_SCENARIOS = 40, 4
# First a dozen of everything, since each further example of one property finds less. Of a defect that one example in 20 shows, 60 compared
# examples miss it once in 20 times. A scenario has a dozen steps. Of each level, slow properties come last, so that the levels may not be far apart.
_COMPARED_BY_LEVEL, _SCENARIOS_BY_LEVEL = (12, 30, 60), (3, 6, 12)
# Not every round: properties that are slow would keep all others waiting in a campaign of some minutes.
_ROUNDS_BELOW_LEVEL = 3
# A property of whose examples fewer than one in ten is compared is not waited for.
_MOST_EXAMPLES_PER_COMPARED = 10
_ENGINES = 10
"""How many times as long as others a property gets whose examples are scenarios in the subject's own engine."""
_PATIENT = 3.0
"""How many times as long as its slice an exploration may take; and it has the time for so many examples."""


class Rounds:
    """Gives out explorations in rounds, until the budget is used.

    Args:
        homes: by the property or the configuration, the worker that has its strategies or its model ready.
    """

    def __init__(self, plan: Plan, state: CampaignState, homes: dict[str, WorkerHandle]) -> None:
        self.begun = 0
        """Rounds that were begun."""
        self._plan, self._state, self._homes = plan, state, homes
        self._by_time = plan.examples is None
        self._queue: deque[Explore] = deque()
        self._examples_before = -1
        """Examples of the campaign when the last round began."""
        self._explored = Counter[str]()
        self._level = 0
        """Which of the numbers of `_COMPARED_BY_LEVEL` every property is to reach now."""

    def next(self, worker: WorkerHandle, workers: Sequence[WorkerHandle], left: float) -> Explore | None:
        """A task for one of the workers, None where there is nothing for it now."""
        if not self._queue:
            self._begin_round(workers)
        if not self._queue:
            return None
        # If possible of a property or a configuration that this worker or none has explored: it has its strategies or its model ready.
        homes = (self._homes.get(task.configuration or task.property, worker) for task in self._queue)
        number = next((number for number, home in enumerate(homes) if home is worker), 0)
        task = self._queue[number]
        del self._queue[number]
        self._homes[task.configuration or task.property] = worker
        return self._sized(task, left)

    def _begin_round(self, workers: Sequence[WorkerHandle]) -> None:
        """Begin another round, unless that has to wait or nothing is left to be explored."""
        states = self._state.property_states
        if not self._by_time:
            # What a round begins with must not depend on which worker of the round before was first.
            if any(worker.task is not None for worker in workers):
                return
            if self._examples_before == self._state.examples:
                return
            self._examples_before = self._state.examples
        chosen = [candidate for candidate in states.values() if candidate.open]
        if self._by_time and self.begun % (1 + _ROUNDS_BELOW_LEVEL) < _ROUNDS_BELOW_LEVEL:
            # A round for each level: a property with too few inputs, or too little time, for a level keeps no other from the next.
            self._level = max(self._level, min(self.begun, len(_COMPARED_BY_LEVEL) - 1))
            while not any(self._missing(candidate) > 0 for candidate in chosen) and self._level + 1 < len(
                _COMPARED_BY_LEVEL
            ):
                self._level += 1
            chosen = [
                candidate for candidate in chosen if candidate.unshrunk or self._missing(candidate) > 0
            ] or chosen
        chosen.sort(key=self._urgency)
        # Several explorations of each property, where there are more workers than properties.
        times = -(-len(workers) // len(chosen)) if chosen and self._by_time else 1
        left = (self._plan.examples or 0) - self._state.examples
        for number, candidate in ((number, candidate) for number in range(times) for candidate in chosen):
            unit = candidate.unit
            # Counted by the unit, since which rounds it is in depends on how fast others are.
            nth = self._explored[unit] - (number > 0)
            self._explored[unit] += not number
            seed = seed_of(self._plan, self._plan.first_round + nth, f"{unit}#{number}" if number else unit)
            size = 0
            if not self._by_time:
                # What is left of the examples goes to the units in this order; what shrinking takes beyond that, only later rounds lack.
                is_long = follows_requests(candidate.tested) or candidate.configuration
                size = min(_FIXED_SCENARIOS if is_long else _FIXED_EXAMPLES, left)
                left -= size
            if self._by_time or size > 0:
                self._queue.append(Explore(candidate.id, seed, size, configuration=candidate.configuration))
        self.begun += bool(self._queue)

    def _missing(self, property_state: PropertyState) -> int:
        """Compared examples that are wanting until it has had as many as everything should have; 0 once it has tried enough."""
        few = (_SCENARIOS_BY_LEVEL if follows_requests(property_state.tested) else _COMPARED_BY_LEVEL)[
            self._level
        ]
        counts = property_state.record.counts
        if counts.examples >= _MOST_EXAMPLES_PER_COMPARED * few:
            return 0
        # What was compared says little as long as a situation that the property is for was not reached.
        return few if counts.unreached else few - counts.compared

    def _urgency(self, property_state: PropertyState) -> tuple[bool, float, bool, float]:
        # What was met and not shrunk is worth another look before everything else.
        later = not property_state.unshrunk
        # What has few examples and soon has enough comes first, so that as many as possible have enough.
        missing = max(0, self._missing(property_state)) / (property_state.rate or 1) if self._by_time else 0
        seconds = property_state.record.seconds if self._by_time else 0
        return later, missing, property_state.tested.launches, seconds

    def _sized(self, task: Explore, left: float) -> Explore:
        """The task with its number of examples, and the time that it may take."""
        property_state = self._state.property_states[task.unit]
        known, engines = property_state.known, self._plan.engines
        task = replace(
            task,
            known=known,
            sanitized=property_state.next_sanitized(),
            # What has ended a worker would do so in every round.
            isolated=property_state.deaths > 0,
            deadline=left + GRACE_SECONDS / 2,
            **_shrinking(self._plan, self._state, property_state),
        )
        if not self._by_time:
            return replace(task, patience=left)
        if (missing := self._missing(property_state)) > 0:
            # By count, since the first examples say little about how long others take: strategies and kernels are made for them.
            share = property_state.record.compared / max(1, property_state.examples)
            size = math.ceil(missing / max(share, 1 / _MOST_EXAMPLES_PER_COMPARED))
            fair = min(_SLICE, max(_SHORTEST_SLICE, left * engines / (1 + len(self._queue))))
            patience = min(max(fair, _PATIENT / (property_state.rate or 1)), left)
            return replace(task, max_examples=size, enough=missing, patience=patience)
        # The seconds of a worker that a property gets in a round.
        units = sum(candidate.open for candidate in self._state.property_states.values())
        fair = (self._plan.budget or 0) * engines / (3 * max(1, units))
        times = _ENGINES if any(map(is_engine, property_state.tested.functions)) else 1
        slice_ = min(_SLICE, max(_SHORTEST_SLICE, fair)) * times
        slice_ = min(slice_, max(_SHORTEST_SLICE, left * 0.8))
        size = FIRST_EXAMPLES if property_state.rate == 0 else max(1, int(property_state.rate * slice_))
        return replace(task, max_examples=size, patience=min(max(_LEAST_PATIENCE, _PATIENT * slice_), left))


# Fixed examples: `conform`.

SHRINKING_SECONDS, MANY = 30.0, 4
"""A scenario of an engine may take seconds, and Hypothesis alone would shrink for 300 s: seven wrong properties would outlast the limit of a CI job.
Once so many properties have failed, the inputs of further ones, mostly of the same cause, are reported as they are found: to import a
release once more in order to repeat a failure takes up to half a minute."""
_LEAST_OF_CONFIGURATION = 4
"""Examples of a property with each of many configurations, such as the models of a library: with fewer, mostly one without anything compared."""


class FixedExamples:
    """Gives out one exploration of each property of a profile, or several where there are configurations.

    No verdict depends on time: two runs with the same versions of everything try the same examples until one fails. Only how small
    a failing input becomes does.

    Args:
        examples: of each property, by its id.
    """

    def __init__(self, plan: Plan, state: CampaignState, examples: Mapping[str, int]) -> None:
        self._state = state
        chosen = [candidate for candidate in state.property_states.values() if candidate.open]
        configurations = Counter(candidate.id for candidate in chosen)
        # Long ones first, so that no worker is left with a long one at the end.
        chosen.sort(
            key=lambda candidate: (not candidate.tested.launches, candidate.configuration, candidate.id)
        )
        self._waiting: deque[Explore] = deque()
        for candidate in chosen:
            whole = examples[candidate.id]
            share = max(-(-whole // configurations[candidate.id]), min(whole, _LEAST_OF_CONFIGURATION))
            seed = seed_of(plan, 0, unit_name(candidate.id, candidate.configuration))
            self._waiting.append(
                Explore(
                    candidate.id,
                    seed,
                    share,
                    shrinking=SHRINKING_SECONDS,
                    configuration=candidate.configuration,
                )
            )

    def next(self) -> Explore | None:
        """A task, None where all properties have theirs."""
        states = self._state.property_states
        while self._waiting:
            task = self._waiting.popleft()
            property_state = states[task.unit]
            if property_state.open:
                isolated = property_state.deaths > 0
                as_found = sum(candidate.failed for candidate in states.values()) >= MANY
                return replace(task, known=property_state.known, isolated=isolated, as_found=as_found)
        return None


# Enumerations: `exhaust`. Of every decision all inputs of bound 0, then of bound 1, and so on until the budget is used. A layer of inputs is
# dealt to as many parts as there are workers. A worker tries a part for a second, and sends the number of inputs that it tried.

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
        """Seconds that the decision has had of its share, with those that workers are giving it now."""
        return (self.seconds + self.running * _SLICE_SECONDS) / self.enumeration.share

    def _begin(self) -> None:
        decision = self.enumeration.decision
        self._unfinished = self.parts
        self.waiting.extend(Slice(decision, self.bound, part, self.parts) for part in range(self.parts))

    def next(self) -> Slice:
        self.running += 1
        return self.waiting.popleft()

    def put_back(self, slice_: Slice) -> None:
        """Put a slice back that was lost with its worker."""
        self.running -= 1
        self.waiting.appendleft(slice_)

    def count(self, slice_: Slice, message: Explored) -> None:
        """Count the tried inputs of a slice."""
        self.running -= 1
        self.seconds += message.seconds
        self.begun += message.tried
        if message.status == "falsified":
            self.falsified = True
        elif not message.exhausted:
            self.waiting.append(replace(slice_, done=slice_.done + message.tried))
        else:
            self._unfinished -= 1
            if not self._unfinished and not self.falsified:
                self.bound, self.complete, self.begun = self.bound + 1, self.complete + self.begun, 0
                self._begin()


class Exhaustion:
    """Gives out the inputs of the enumerations."""

    def __init__(self, plan: Plan, state: CampaignState) -> None:
        property_states = {candidate.id: candidate for candidate in state.property_states.values()}
        self.progress = {
            enumeration.decision: DecisionProgress(
                enumeration, property_states[enumeration.property], plan.engines
            )
            for enumeration in enumerations().values()
            if enumeration.property in property_states and enumeration.device in (None, plan.device)
        }

    def next(self, left: float) -> Explore | None:
        """A task, None where there is nothing to do now.

        Args:
            left: seconds of the budget.
        """
        waiting = (progress for progress in self.progress.values() if progress.open)
        chosen = min(waiting, key=lambda progress: progress.urgency, default=None)
        if chosen is None:
            return None
        property_state = chosen.property_state
        return Explore(
            property_state.id,
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
            progress.put_back(task.inputs)
        else:
            progress.count(task.inputs, message)
