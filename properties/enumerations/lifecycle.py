"""All schedules of two requests up to a depth, in the smallest engine that drafts and has a prefix cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any

from properties.engine.scenarios import Scenario, Turn
from properties.engine.world import World
from properties.strategies.align.setup import Group, Kept, Setup
from properties.strategies.lifecycle import with_blocks
from statecheck.execution.enumerations import Enumeration

Event = Callable[[Scenario], None]
_BLOCK_SIZE, _FIRST, _SECOND = 2, "r0", "r1"
_PROMPT = (1, 2, 3)
"""A block, and a token of the next."""
_STATES = Kept("conv", (3, 2)), Kept("temporal", (2, 2))
_SETUP = Setup((Group(_STATES),), ("conv", "temporal"), _BLOCK_SIZE, 1)
_ALIGN = with_blocks(World(_SETUP, ("gdn",), max_num_seqs=2, max_model_len=16), 2, 2)
_NONE = with_blocks(replace(_ALIGN, mode="none"), 2, 2)
_PLAIN = Turn()
_TURNS = (_PLAIN, Turn(drafts=1, accepted=1), Turn(drafts=1), Turn(blocks=1), Turn(skipped=True))


def arrive(request: str, *prompt: int) -> Event:
    return partial(Scenario.arrive, request=request, prompt=prompt)


def finish(scenario: Scenario, request: str) -> None:
    """A request that has come to its longest has ended."""
    if request in {live.id for live in scenario.live}:
        scenario.engine.finish(request)


def reset(scenario: Scenario) -> None:
    scenario.engine.reset()


_RESETS: tuple[tuple[Event, ...], ...] = (), (reset,)
_ARRIVALS: tuple[tuple[Event, ...], ...] = (
    (),
    (arrive(_SECOND, *_PROMPT[:_BLOCK_SIZE], 9),),
    (arrive(_SECOND, 7),),
)
"""None, or the second request with a prompt that begins with a full block of the first one's, or with none of its tokens."""


@dataclass(frozen=True)
class Living:
    """Requests that live, in the order of their arrival; whether the second one is still to come; whether there was a step."""

    alive: tuple[str, ...] = (_FIRST,)
    waits: bool = True
    stepped: bool = False

    def next(self) -> Iterator[tuple[tuple[Event, ...], int, Living]]:
        """A step with the events before it, the cost of both, and the requests that live then. Each departure from a plain step costs one more.

        What happens between two steps may happen in any order: first a reset, then the arrival, then ends.
        """
        resets = _RESETS if self.stepped and self.alive else _RESETS[:1]
        ends = (some for number in range(len(self.alive) + 1) for some in combinations(self.alive, number))
        for first, arrival, ended in product(resets, _ARRIVALS if self.waits else _ARRIVALS[:1], ends):
            stay = tuple(request for request in self.alive if request not in ended)
            alive = (*stay, _SECOND) if arrival else stay
            before: tuple[Event, ...] = (
                *first,
                *arrival,
                *(partial(finish, request=request) for request in ended),
            )
            then = Living(alive, self.waits and not arrival, stepped=True)
            for step, cost in _steps(alive, preempts=self.stepped):
                yield (*before, step), len(before) + cost, then


def _steps(alive: tuple[str, ...], *, preempts: bool) -> Iterator[tuple[Event, int]]:
    for turns in product(_TURNS, repeat=len(alive)) if alive else ():
        odd = {request: turn for request, turn in zip(alive, turns, strict=True) if turn != _PLAIN}
        yield partial(Scenario.step, turns=odd), 1 + len(odd)
    for request in alive if preempts else ():
        yield partial(Scenario.step, turns={}, preempted=(request,)), 2


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
        yield {"world": world, "events": (arrive(_FIRST, *_PROMPT), *events)}


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
        ("of V1", "lifecycle/v1-provenance", _ALIGN),
        ("of V2", "lifecycle/v2-provenance", replace(_ALIGN, runner="V2")),
        ("without copies", "lifecycle/no-copies", _NONE),
    )
)
