"""A campaign cut into units of work, for machines that come and go."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

from statecheck.campaign.plan import Plan

_TRIES = 3
"""How often a unit may fail before it is given up."""


class UnitQueue:
    """The units of a campaign: to be done, in hand, done, or given up.

    A unit is the same work wherever and whenever it is done, so that one that was lost is simply done again.

    Args:
        count: of units, where the budget is in examples; each gets an equal share.
        seconds: of a unit, where the budget is in seconds; units are begun until it is used up.
        least: seconds that have to be left of a budget for another unit to be begun.
    """

    def __init__(self, plan: Plan, *, count: int = 16, seconds: float = 600.0, least: float = 10.0) -> None:
        if (plan.budget is None) == (plan.examples is None):
            both = f"({plan.budget}, {plan.examples})"
            raise ValueError(f"(budget, examples) = {both}, but should be one of them and None [Work]")
        self.plan, self._seconds = plan, seconds
        self.troubles: list[str] = []
        self.in_hand: set[int] = set()
        self.done: set[int] = set()
        self.given_up: set[int] = set()
        self.retried = 0
        self._least = min(least, (plan.budget or least) / 2)
        self._tries: Counter[int] = Counter()
        self.units = 0 if plan.examples is None else min(count, plan.examples)
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
        if self._tries[unit] < _TRIES:
            self.retried += 1
            self._waiting.appendleft(unit)
            return
        self.given_up.add(unit)
        self.troubles.append(f"unit {unit} failed {self._tries[unit]} times and is given up: {why}")

    def over(self, passed: float) -> bool:
        """Nothing is in hand, and nothing will be begun."""
        more = self.plan.examples is None or bool(self._waiting)
        return not self.in_hand and not (more and self._left(passed))

    @property
    def missing(self) -> list[int]:
        """Units that were to be done, and did not come to anything."""
        return sorted(set(range(self.units)) - self.done)

    def _left(self, passed: float) -> bool:
        return self.plan.budget is None or self.plan.budget - passed >= self._least

    def _planned(self, unit: int, passed: float) -> Plan:
        """The unit as a plan of its own; the corpus is replayed by the first one for all of them."""
        mine = replace(self.plan, unit=unit, replayed=self.plan.replayed and unit == 0)
        if self.plan.budget is not None:
            return replace(mine, budget=min(self._seconds, self.plan.budget - passed))
        assert self.plan.examples is not None
        share, more = divmod(self.plan.examples, self.units)
        return replace(mine, examples=share + (unit < more))
