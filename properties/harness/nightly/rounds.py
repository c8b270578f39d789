"""What is explored when, and with how many examples.

In a round every property comes up once, what has just shown something new first. Where the budget is in examples, nothing may
depend on how fast machine or engine are: a unit of work gives the same wherever it is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from properties.harness.nightly.engine import Explore
from properties.harness.nightly.ledger import Ledger, Standing
from properties.harness.nightly.plan import Plan, seed_of
from properties.harness.nightly.seats import Seat

_SLICE, _SHORTEST_SLICE = 2.0, 0.3
_FIRST_EXAMPLES, _FIRST_LIVES = 10, 2
_FIXED_EXAMPLES, _FIXED_LIVES = 40, 4


class Rounds:
    """Gives out the explorations of a campaign.

    Args:
        lives: properties of which an example takes as long as many of others.
        done: rounds that were begun before this, where a campaign goes on.
    """

    def __init__(self, plan: Plan, ledger: Ledger, lives: frozenset[str], done: int) -> None:
        self.done = done
        self._plan, self._ledger, self._lives = plan, ledger, lives
        self._queue: deque[Explore] = deque()
        self._homes: dict[str, Seat] = {}
        self._examples_at_turn = -1

    @property
    def _by_time(self) -> bool:
        return self._plan.examples is None

    def next(self, seat: Seat, seats: Sequence[Seat], left: float) -> Explore | None:
        """A task for one of the engines, None where there is nothing for it now.

        Args:
            left: seconds of the budget.
        """
        if left <= 0 or (not self._by_time and self._unassigned(seats) <= 0):
            return None
        if not self._queue and not self._turn(seats):
            return None
        return self._sized(self._chosen(seat), seats, left)

    def _unassigned(self, seats: Iterable[Seat]) -> int:
        """Examples of the budget that are neither run nor in hand."""
        works = ((seat.work, seat.examples) for seat in seats)
        in_hand = (max(0, one.max_examples - ran) for one, ran in works if isinstance(one, Explore))
        return (self._plan.examples or 0) - self._ledger.examples - sum(in_hand)

    def _chosen(self, seat: Seat) -> Explore:
        """The next task, if possible of a property that this engine or none has explored: it has its strategies ready."""
        homes = (self._homes.get(task.property, seat) for task in self._queue)
        number = next((number for number, home in enumerate(homes) if home is seat), 0)
        task = self._queue[number]
        del self._queue[number]
        self._homes[task.property] = seat
        return task

    def _turn(self, seats: Sequence[Seat]) -> bool:
        """Begin another round, unless that has to wait or nothing is left to be explored."""
        if not self._by_time:
            # What a round begins with must not depend on who of the round before was first.
            if any(seat.work is not None for seat in seats):
                return False
            if self._examples_at_turn == self._ledger.examples:
                return False
            self._examples_at_turn = self._ledger.examples
        chosen = [one for one in self._ledger.standings.values() if one.open]
        for one in chosen:
            one.turn()
        chosen.sort(key=lambda one: (-one.fresh, one.tested.launches, one.seconds if self._by_time else 0))
        times = -(-len(seats) // len(chosen)) if chosen and self._by_time else 1
        tasks = (self._explore(one, number) for number in range(times) for one in chosen)
        self._queue.extend(tasks if self._by_time else self._shared(tasks, seats))
        self.done += 1
        return bool(chosen)

    def _explore(self, standing: Standing, number: int) -> Explore:
        name = standing.tested.name
        seed = seed_of(
            self._plan, self._plan.first_round + self.done, name if not number else f"{name}#{number}"
        )
        return Explore(name, seed, 0)

    def _shared(self, tasks: Iterable[Explore], seats: Sequence[Seat]) -> Iterator[Explore]:
        """What is left of the examples goes to the tasks in this order, whoever is first to take one."""
        left = self._unassigned(seats)
        for task in tasks:
            fixed = _FIXED_LIVES if task.property in self._lives else _FIXED_EXAMPLES
            size = min(self._ledger.standings[task.property].weight * fixed, left)
            left -= size
            if size > 0:
                yield Explore(task.property, task.seed, size)

    def _sized(self, task: Explore, seats: Sequence[Seat], left: float) -> Explore:
        standing = self._ledger.standings[task.property]
        if self._by_time:
            size = self._by_rate(standing, left, lives=task.property in self._lives)
        else:
            # Shrinking takes examples that nobody has counted on.
            size = min(task.max_examples, self._unassigned(seats))
        return Explore(task.property, task.seed, size, frozenset(standing.known))

    def _by_rate(self, standing: Standing, left: float, *, lives: bool) -> int:
        if not standing.seconds or not standing.examples:
            return _FIRST_LIVES if lives else _FIRST_EXAMPLES
        fair = (self._plan.budget or 0) * self._plan.engines / (3 * max(1, len(self._ledger.standings)))
        slice_ = min(_SLICE, max(_SHORTEST_SLICE, fair)) * standing.weight
        return max(1, int(standing.rate * min(slice_, max(_SHORTEST_SLICE, left * 0.8))))
