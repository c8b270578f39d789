"""All schedules of two requests up to a depth, in the smallest engine that drafts and has a prefix cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
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
    """Who is there: requests that live, in the order of their arrival, and whether the second one is still to come."""

    alive: tuple[str, ...] = (_FIRST,)
    waits: bool = True

    def next(self) -> Iterator[tuple[Event, int, Living]]:
        """What may happen, what it costs, and who is there then. What departs from plain costs one more each."""
        yield from self._steps() if self.alive else ()
        if self.waits:
            then = Living((*self.alive, _SECOND), waits=False)
            # A prompt that begins with a full block of the first request's, or with none of its tokens.
            yield Arrive(_SECOND, (*_PROMPT[:_BLOCK_SIZE], 9)), 1, then
            yield Arrive(_SECOND, (7,)), 1, then
        for request in self.alive:
            yield Finish(request), 1, replace(self, alive=tuple(one for one in self.alive if one != request))
        if self.alive:
            yield Reset(), 1, self

    def _steps(self) -> Iterator[tuple[Event, int, Living]]:
        for turns in product((PLAIN, *TURNS), repeat=len(self.alive)):
            chosen = zip(self.alive, turns, strict=True)
            odd = tuple((request, turn) for request, turn in chosen if turn != PLAIN)
            yield EngineStep(odd), 1 + len(odd), self
        for request in self.alive:
            yield EngineStep(preempted=(request,)), 2, self


def schedules(depth: int, living: Living = Living()) -> Iterator[tuple[Event, ...]]:
    """All that may happen at this cost in all, one thing after another, and that ends with a step."""
    if not depth:
        yield ()
    for event, cost, then in living.next():
        if cost <= depth:
            for rest in schedules(depth - cost, then):
                if rest or isinstance(event, EngineStep):
                    yield (event, *rest)


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
        symmetry="the first request comes first; a plain turn after its end",
        left_out=f"prompts but {len(_PROMPT)}, 3 and 1 tokens, other models and block sizes, full graphs, more than a draft",
    )
    for name, property_id, world in (
        ("of V1", "lifecycle/v1-provenance", ALIGN),
        ("of V2", "lifecycle/v2-provenance", replace(ALIGN, runner="V2")),
        ("without copies", "lifecycle/no-copies", NONE),
    )
)
