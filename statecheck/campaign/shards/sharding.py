"""Which part of a campaign this machine does, and how a campaign is cut into units of work for machines that come and go."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from statecheck.campaign.plan import Plan
from statecheck.campaign.record import require_id

_CAMPAIGN = "CAMPAIGN"
_RUNS = {"GITHUB_RUN_ID": "github", "SLURM_ARRAY_JOB_ID": "slurm", "BUILDKITE_BUILD_NUMBER": "buildkite"}
_SHARD, _SHARDS = "SHARD", "SHARDS"
_SLURM = "SLURM_ARRAY_TASK_ID"
_KUBERNETES = "JOB_COMPLETION_INDEX"
_BUILDKITE, _BUILDKITE_COUNT = "BUILDKITE_PARALLEL_JOB", "BUILDKITE_PARALLEL_JOB_COUNT"


def shard_of(environment: Mapping[str, str], option: str = "") -> tuple[int, int]:
    """The shard that a job does, counted from 0, and the number of shards: (0, 1) is the whole campaign.

    The option comes first, then the variable SHARD in the same form, an array of Slurm, an indexed job of Kubernetes (with
    SHARDS for the number of its completions) and a parallel step of Buildkite. An empty variable is not set.

    Args:
        option: "2/8" for the second of eight shards, "" where it is not given.

    Raises:
        ValueError: not of that form, half of a pair is set, not a number, or out of range.
    """
    variables = {name: value for name, value in environment.items() if value.strip()}
    if option or _SHARD in variables:
        return _named("shard", option) if option else _named(_SHARD, variables[_SHARD])
    if _SHARDS in variables and _KUBERNETES not in variables:
        raise ValueError(
            f"{_SHARDS} = {variables[_SHARDS]!r}, but should be set beside {_KUBERNETES} [shard_of]"
        )
    if _SLURM in variables:
        return _slurm(variables)
    if _KUBERNETES in variables:
        return _pair(variables, _KUBERNETES, _SHARDS)
    if _BUILDKITE in variables or _BUILDKITE_COUNT in variables:
        return _pair(variables, _BUILDKITE, _BUILDKITE_COUNT)
    return 0, 1


def campaign_of(environment: Mapping[str, str]) -> str:
    """The name that all shards of a campaign find in their surroundings, "" where no scheduler says anything.

    CAMPAIGN comes first; then what a run of GitHub Actions, an array of Slurm or a build of Buildkite is called.

    Raises:
        ValueError: no name for a folder.
    """
    variables = {name: environment.get(name, "").strip() for name in (_CAMPAIGN, *_RUNS)}
    if variables[_CAMPAIGN]:
        require_id(variables[_CAMPAIGN], _CAMPAIGN)
    names = (f"{kind}-{variables[name]}" for name, kind in _RUNS.items() if variables[name])
    return variables[_CAMPAIGN] or next(names, "")


def _named(name: str, text: str) -> tuple[int, int]:
    form = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    if form is None or not 1 <= int(form[1]) <= int(form[2]):
        rule = "a shard and the number of shards, such as 2/8 for the second of eight"
        raise ValueError(f"{name} = {text!r}, but should be {rule} [shard_of]")
    return int(form[1]) - 1, int(form[2])


def _pair(variables: Mapping[str, str], which: str, count: str) -> tuple[int, int]:
    return _within(which, _number(variables, which, count), count, _number(variables, count, which))


def _slurm(variables: Mapping[str, str]) -> tuple[int, int]:
    """An array's tasks by their places, whatever its first number and its step: `--array=10-40:10` has four."""
    first, count, step = (f"SLURM_ARRAY_TASK_{name}" for name in ("MIN", "COUNT", "STEP"))
    task, shards = _number(variables, _SLURM, count), _number(variables, count, _SLURM)
    width = _number({step: "1", **variables}, step, _SLURM)
    past = task - _number(variables, first, _SLURM)
    if width < 1 or past % width:
        rule = f"{first} plus a multiple of {step} = {width}"
        raise ValueError(f"{_SLURM} = {task}, but should be {rule} [shard_of]")
    return _within(f"({_SLURM} - {first}) / {step}", past // width, count, shards)


def _number(variables: Mapping[str, str], name: str, partner: str) -> int:
    text = variables.get(name, "").strip()
    if not text:
        raise ValueError(f"{name} = '', but should be set beside {partner} [shard_of]")
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} = {text!r}, but should be a number [shard_of]")
    return int(text)


def _within(which: str, shard: int, count: str, shards: int) -> tuple[int, int]:
    if shards < 1:
        raise ValueError(f"{count} = {shards}, but should be >= 1 [shard_of]")
    if shard >= shards:
        raise ValueError(f"{which} = {shard}, but should be < {shards} [{count}]")
    if shard < 0:
        raise ValueError(f"{which} = {shard}, but should be >= 0 [shard_of]")
    return shard, shards


@dataclass(frozen=True)
class Cut:
    """How a campaign is cut into units.

    Args:
        count: of units, where the budget is in examples; each gets an equal share.
        seconds: of a unit, where the budget is in seconds; units are begun until it is used up.
        tries: how often a unit may fail before it is given up.
    """

    count: int = 16
    seconds: float = 600.0
    tries: int = 3

    def __post_init__(self) -> None:
        for name, value in (("count", self.count), ("seconds", self.seconds), ("tries", self.tries)):
            if value <= 0:
                raise ValueError(f"{name} = {value}, but should be > 0 [Cut]")


class UnitQueue:
    """The units of a campaign: to be done, in hand, done, or given up.

    A unit is the same work wherever and whenever it is done, so that one that was lost is simply done again.

    Args:
        least: seconds that have to be left of a budget for another unit to be begun.
    """

    def __init__(self, plan: Plan, cut: Cut, *, least: float = 10.0) -> None:
        if (plan.budget is None) == (plan.examples is None):
            both = f"({plan.budget}, {plan.examples})"
            raise ValueError(f"(budget, examples) = {both}, but should be one of them and None [Work]")
        self.plan, self.cut = plan, cut
        self.troubles: list[str] = []
        self.in_hand: set[int] = set()
        self.done: set[int] = set()
        self.given_up: set[int] = set()
        self.retried = 0
        self._least = min(least, (plan.budget or least) / 2)
        self._tries: Counter[int] = Counter()
        self.units = 0 if plan.examples is None else min(cut.count, plan.examples)
        self._waiting = deque(range(self.units))

    def next(self, passed: float) -> Plan | None:
        """Take a unit in hand, `passed` seconds after the campaign began; None where there is nothing to be begun."""
        if not self._left(passed):
            return None
        if self.plan.examples is None and not self._waiting:
            self._waiting.append(self.units)
            self.units += 1
        if not self._waiting:
            return None
        unit = self._waiting.popleft()
        self.in_hand.add(unit)
        return self._planned(unit, passed)

    def finish(self, unit: int) -> None:
        """What the unit came to is known, and counts."""
        self.in_hand.remove(unit)
        self.done.add(unit)

    def lose(self, unit: int, why: str) -> None:
        """Nothing came of it this time; it is done again, before others, unless that has happened too often."""
        self.in_hand.remove(unit)
        self._tries[unit] += 1
        if self._tries[unit] < self.cut.tries:
            self.retried += 1
            self._waiting.appendleft(unit)
            return
        self.given_up.add(unit)
        self.troubles.append(f"unit {unit} failed {self._tries[unit]} times and is given up: {why}")

    def over(self, passed: float) -> bool:
        """Nothing is in hand, and nothing will be begun."""
        return not self.in_hand and (not self._left(passed) or not self._waiting_or_more())

    @property
    def missing(self) -> list[int]:
        """Units that were to be done, and did not come to anything."""
        return sorted(set(range(self.units)) - self.done)

    def _waiting_or_more(self) -> bool:
        return self.plan.examples is None or bool(self._waiting)

    def _left(self, passed: float) -> bool:
        return self.plan.budget is None or self.plan.budget - passed >= self._least

    def _planned(self, unit: int, passed: float) -> Plan:
        """The unit as a plan of its own; the corpus is replayed by the first one for all of them."""
        mine = replace(self.plan, unit=unit, replayed=self.plan.replayed and unit == 0)
        if self.plan.budget is not None:
            return replace(mine, budget=min(self.cut.seconds, self.plan.budget - passed))
        assert self.plan.examples is not None
        share, more = divmod(self.plan.examples, self.units)
        return replace(mine, examples=share + (unit < more))
