"""All interleavings of a small launch, up to equivalence.

Two interleavings are equivalent if one becomes the other by exchanging neighbouring operations of two programs that touch
no byte together, or only read those. One of each class is run (Mazurkiewicz's traces): a search by dynamic partial-order
reduction, with source sets and sleep sets, after Abdulla, Aronis, Jonsson and Sagonas, "Optimal dynamic partial order
reduction". Every run starts from the same memory, as nothing of a program's state can be copied.

The terms, for a launch whose operations are events:

    conflict         two operations touch a byte, and one of them writes it
    happens before   the order of one program's operations, and of those that conflict, and what follows from these
    vector clock     of an event: how many operations of each program happen before it, itself included
    race             two conflicting events of two programs with no third event between them in happens-before
    initials         of a sequence of events: the programs whose first operation no other event of it happens before
    source set       of a state: programs that have to go on from there, so that every class is run; each reversed race needs
                     one of its initials there
    sleep set        of a state: programs that need not go on from there, as an earlier run has begun so, and nothing since
                     conflicts with their next operation
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from statecheck.case.program_schedule import schedule_text
from statecheck.kernels.observed import ObservedMemory
from statecheck.kernels.orders.footprints import Footprints, LastFootprint
from statecheck.kernels.orders.journal import Journal, WrittenBytes
from statecheck.kernels.orders.program_choice import PATIENCE, Ready, Turns
from statecheck.kernels.orders.running import run_interleaved

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched


def first_difference(launch: Launched, most: int, most_operations: int = PATIENCE) -> str:
    """The schedule of an interleaving with which memory, or how the launch ends, is another than in the plain order.

    Memory is as before then.

    Args:
        most: interleavings that are run, no two of them equivalent.
        most_operations: of all of these together.

    Returns:
        "" if there is none, or none was found up to these limits.
    """
    first = None
    for number, ended in enumerate(Walk(launch, most_operations).runs(), 1):
        first = first or ended
        if not ended.same(first):
            return ended.schedule
        if ended.cut_short or number >= most:
            break
    return ""


@dataclass(eq=False)
class Ended:
    """An interleaving that was run: the program of each operation, its schedule, and what it has left."""

    choices: tuple[int, ...]
    schedule: str
    left: WrittenBytes
    error: str
    cut_short: bool

    def same(self, other: Ended) -> bool:
        return self.error == other.error and (bool(self.error) or self.left.leaves_as(other.left))


@dataclass(eq=False)
class _Event:
    """An operation of the present interleaving."""

    program: int
    footprint: int
    vector_clock: list[int]

    def happens_before(self, other: _Event) -> bool:
        return self.vector_clock[self.program] <= other.vector_clock[self.program]


@dataclass(eq=False)
class _Node:
    """A state from which programs go on; `chosen` is the program that does in the present interleaving."""

    chosen: int
    source_set: set[int]
    sleep_set: dict[int, int] = field(default_factory=dict)
    """Programs, and the footprints of their next operations."""


class _RunEnds(Exception):
    """A run goes no further: every program that could go on is in a sleep set, or there were too many operations."""


class Walk:
    """The search itself: `runs` goes through one interleaving of each class, the plain order first."""

    def __init__(self, launch: Launched, most_operations: int = PATIENCE) -> None:
        self._launch, self._left = launch, most_operations
        self._count = len(list(launch.programs()))
        self._footprints = Footprints()
        self._last = LastFootprint(self._footprints)
        self._nodes: list[_Node] = []
        self._events: list[_Event] = []
        self._depth = 0

    def runs(self) -> Iterator[Ended]:
        more = True
        while more:
            ended = self._run()
            if ended is not None:
                yield ended
            more = self._turn_back()

    def _turn_back(self) -> bool:
        """Go back to the last state from which another program has to go on."""
        while self._nodes:
            node = self._nodes[-1]
            del self._events[len(self._nodes) :]
            if len(self._events) == len(self._nodes):
                node.sleep_set[node.chosen] = self._events.pop().footprint
            untried = node.source_set - set(node.sleep_set)
            if untried:
                node.chosen = min(untried)
                return True
            self._nodes.pop()
        return False

    def _run(self) -> Ended | None:
        """Run one interleaving to its end; None where it leads to nothing new."""
        journal, turns, error, ended = Journal(), Turns(self._choice), "", True
        memory = ObservedMemory(journal, self._last)
        memory.taken, memory.took = self._launch.taken, self._launch.taken.add
        self._depth = 0
        try:
            run_interleaved(self._launch, memory, turns)
        except _RunEnds:
            ended = False
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        # The operation was made before what failed; unless it is noted, the search tries it again for ever.
        self._note_last()
        left = journal.take_back()
        self._left -= self._depth
        if not ended and self._left:
            return None
        choices = tuple(node.chosen for node in self._nodes)
        return Ended(choices, schedule_text([turns.switches]), left, error, not ended)

    def _choice(self, _: int | None, ready: Ready) -> int:
        """The program of the next operation: that of the next state, or of a new one."""
        self._note_last()
        if self._depth == self._left or (self._depth == len(self._nodes) and not self._extend(ready.all())):
            raise _RunEnds
        self._last.begin(asked=self._depth == len(self._events))
        self._depth += 1
        return self._nodes[self._depth - 1].chosen

    def _note_last(self) -> None:
        """Note the operation that was made last, if it is new."""
        if self._depth > len(self._events):
            self._add(self._nodes[self._depth - 1].chosen, self._last.number)

    def _extend(self, unfinished: Sequence[int]) -> bool:
        """Choose the program that goes on from a new state; False if all that could are in its sleep set."""
        sleep_set: dict[int, int] = {}
        running = None
        if self._nodes:
            last, event = self._nodes[-1], self._events[-1]
            running = event.program
            sleep_set = {
                number: footprint
                for number, footprint in last.sleep_set.items()
                if number != running and footprint not in self._footprints.conflicts[event.footprint]
            }
        awake = [number for number in unfinished if number not in sleep_set]
        if not awake:
            return False
        chosen = running if running in awake else awake[0]
        assert chosen is not None
        self._nodes.append(_Node(chosen, {chosen}, sleep_set))
        return True

    def _add(self, program: int, footprint: int) -> None:
        """Note an operation, and extend the source sets of states before operations that it races with."""
        events = self._events
        own = next((earlier.vector_clock for earlier in reversed(events) if earlier.program == program), None)
        clock = list(own or [0] * self._count)
        races, conflicts = [], self._footprints.conflicts[footprint]
        for at in range(len(events) - 1, -1, -1):
            other = events[at]
            # An event that happens before it by way of a third one is no race with it.
            if other.footprint in conflicts and other.vector_clock[other.program] > clock[other.program]:
                races.append(at)
                clock = [max(pair) for pair in zip(clock, other.vector_clock, strict=True)]
        clock[program] += 1
        event = _Event(program, footprint, clock)
        events.append(event)
        for at in races:
            self._reverse(at, event)

    def _reverse(self, at: int, event: _Event) -> None:
        """Have a program in the source set of a state that leads to `event` before the operation that was made there."""
        first = self._events[at]
        after = [
            later for later in self._events[at + 1 :] if later is event or not first.happens_before(later)
        ]
        initials: list[int] = []
        for number, later in enumerate(after):
            earlier = after[:number]
            if later.program not in initials and not any(other.happens_before(later) for other in earlier):
                initials.append(later.program)
        source_set = self._nodes[at].source_set
        if not source_set.intersection(initials):
            source_set.add(event.program if event.program in initials else initials[0])
