"""All schedules of two requests up to a depth, in the smallest engine that drafts and has a prefix cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any

from properties.engine.scenarios import Scenario, Turn
from properties.engine.world import World
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.setup import Setup
from properties.strategies.lifecycle import with_blocks
from statecheck.execution.enumerations import Enumeration

_BLOCK_SIZE, _FIRST, _SECOND = 2, "r0", "r1"
_PROMPT = (1, 2, 3)
"""A block, and a token of the next."""
_STATES = Kept("conv", (3, 2)), Kept("temporal", (2, 2))
_SETUP = Setup((Group(_STATES),), ("conv", "temporal"), _BLOCK_SIZE, 1)
ALIGN = with_blocks(World(_SETUP, ("gdn",), max_num_seqs=2, max_model_len=16), 2, 2)
NONE = with_blocks(replace(ALIGN, mode="none"), 2, 2)

PLAIN = Turn()
TURNS = (Turn(drafts=1, accepted=1), Turn(drafts=1), Turn(blocks=1), Turn(skipped=True))
"""Parts of a request in a step that are not the plain one."""


@dataclass(frozen=True)
class Arrive:
    """A request comes in."""

    request: str
    prompt: tuple[int, ...]

    def __call__(self, scenario: Scenario) -> None:
        scenario.arrive(self.request, self.prompt)


@dataclass(frozen=True)
class Finish:
    """A request ends, whatever it was doing."""

    request: str

    def __call__(self, scenario: Scenario) -> None:
        # One that has come to its longest has ended.
        if self.request in {request.id for request in scenario.live}:
            scenario.engine.finish(self.request)


@dataclass(frozen=True)
class Reset:
    """The prefix cache is emptied, for which all requests are preempted."""

    def __call__(self, scenario: Scenario) -> None:
        scenario.engine.reset()


@dataclass(frozen=True)
class EngineStep:
    """The engine takes a step, in which requests take their turns; others take a plain one."""

    turns: tuple[tuple[str, Turn], ...] = ()
    preempted: tuple[str, ...] = ()

    def __call__(self, scenario: Scenario) -> None:
        scenario.step(dict(self.turns), self.preempted)


Event = Arrive | Finish | Reset | EngineStep


@dataclass(frozen=True)
class Living:
    """Requests that live, in the order of their arrival; whether the second one is still to come; whether there was a step."""

    alive: tuple[str, ...] = (_FIRST,)
    waits: bool = True
    stepped: bool = False

    def next(self) -> Iterator[tuple[tuple[Event, ...], int, Living]]:
        """A step and what comes before it, what both cost, and what follows. What departs from plain costs one more each.

        What happens between two steps may happen in any order: first a reset, then the arrival, then ends.
        """
        resets: tuple[tuple[Reset, ...], ...] = ((), (Reset(),)) if self.stepped and self.alive else ((),)
        for reset, arrival, ended in product(resets, self._arrivals(), self._ends()):
            stays = tuple(one for one in self.alive if Finish(one) not in ended)
            then = Living(
                (*stays, *(one.request for one in arrival)), self.waits and not arrival, stepped=True
            )
            before: tuple[Event, ...] = (*reset, *arrival, *ended)
            for step, cost in _steps(then.alive, preempts=self.stepped):
                yield (*before, step), len(before) + cost, then

    def _arrivals(self) -> tuple[tuple[Arrive, ...], ...]:
        """None, or the second request with a prompt that begins with a full block of the first one's, or with none of its tokens."""
        if not self.waits:
            return ((),)
        return (), (Arrive(_SECOND, (*_PROMPT[:_BLOCK_SIZE], 9)),), (Arrive(_SECOND, (7,)),)

    def _ends(self) -> Iterator[tuple[Finish, ...]]:
        for number in range(len(self.alive) + 1):
            yield from combinations(map(Finish, self.alive), number)


def _steps(alive: tuple[str, ...], *, preempts: bool) -> Iterator[tuple[EngineStep, int]]:
    for turns in product((PLAIN, *TURNS), repeat=len(alive)) if alive else ():
        odd = tuple((request, turn) for request, turn in zip(alive, turns, strict=True) if turn != PLAIN)
        yield EngineStep(odd), 1 + len(odd)
    for request in alive if preempts else ():
        yield EngineStep(preempted=(request,)), 2


def schedules(depth: int, living: Living = Living()) -> Iterator[tuple[Event, ...]]:
    """All that may happen at this cost in all, one thing after another, up to a step."""
    if not depth:
        yield ()
    for events, cost, then in living.next():
        if cost <= depth:
            for rest in schedules(depth - cost, then):
                yield (*events, *rest)


def scenarios(world: World, depth: int) -> Iterator[Mapping[str, Any]]:
    """The schedules of that depth, behind the arrival of the first request."""
    for events in schedules(depth):
        yield {"world": world, "events": (Arrive(_FIRST, _PROMPT), *events)}


ENUMERATIONS = tuple(
    Enumeration(
        f"schedules {name}",
        property_id,
        partial(scenarios, world),
        bound="steps, arrivals, ends, resets, preemptions, and turns that are not plain (drafts, a block of the prompt, left out)",
        symmetry="the first request comes first; what happens between two steps is in one order",
        left_out=f"prompts but {len(_PROMPT)}, 3 and 1 tokens, other models and block sizes, full graphs, more than a draft",
        share=3,
    )
    for name, property_id, world in (
        ("of V1", "lifecycle/v1-provenance", ALIGN),
        ("of V2", "lifecycle/v2-provenance", replace(ALIGN, runner="V2")),
        ("without copies", "lifecycle/no-copies", NONE),
    )
)
