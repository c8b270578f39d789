"""Makes a scenario that breaks a law as short and its engine as plain as it can.

A generic shrinker deletes what happened one thing at a time, but whether a state is lost depends on where boundaries
lie: without a step, all later ones lie elsewhere. Here a scenario may also begin later, with the tokens that its requests
had by then as their prompts, which keeps every later boundary where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from properties.engine.flaws import Flaw
from properties.engine.plainer_worlds import plainer_worlds, plainness
from properties.engine.scenarios import Arrive, EngineStep, Event, Finish, Scenario, Turn
from properties.engine.world import World

Fails = Callable[[World, tuple[Event, ...]], Scenario | None]
"""Executes the events; the scenario up to and with the event that breaks a law, or None."""


@dataclass(frozen=True)
class Failing:
    """A scenario that breaks a law with its last event; `flaw` is what was found first."""

    world: World
    scenario: Scenario
    flaw: Flaw

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self.scenario.events)

    @property
    def size(self) -> tuple[int, ...]:
        """Smaller is simpler: first of all steps, then everything else that happens, then tokens, then the engine."""
        steps = [event for event in self.events if isinstance(event, EngineStep)]
        turns = [turn for step in steps for _, turn in step.turns]
        arrivals = [event for event in self.events if isinstance(event, Arrive)]
        return (
            len(steps),
            len(self.events),
            sum(len(arrival.prompt) for arrival in arrivals),
            sum(turn.drafts for turn in turns),
            sum(turn != Turn() for turn in turns)
            + sum(bool(step.padding) + len(step.order) for step in steps),
            sum(len(step.turns) + len(step.preempted) for step in steps),
            *plainness(self.world),
            sum(sum(arrival.prompt) for arrival in arrivals),
            sum(arrival.id != f"r{number}" for number, arrival in enumerate(arrivals)),
        )


def reduced(failing: Failing, fails: Fails, seconds: float) -> Failing:
    """The simplest scenario found in the time that fails too; deterministic, but for the time."""
    until = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for candidates in PASSES:
            smaller = _best(failing, candidates, fails, until)
            progress = progress or smaller is not failing
            failing = smaller
    return failing


def _best(
    failing: Failing,
    candidates: Callable[[Failing], Iterator[tuple[World, tuple[Event, ...]]]],
    fails: Fails,
    until: float,
) -> Failing:
    """What is left after taking each simpler candidate, as long as there is one."""
    found = True
    while found:
        found = False
        for world, events in candidates(failing):
            if time.monotonic() > until:
                return failing
            if (world, events) == (failing.world, failing.events):
                continue
            scenario = fails(world, events)
            if scenario is not None and Failing(world, scenario, failing.flaw).size < failing.size:
                failing, found = Failing(world, scenario, failing.flaw), True
                break
    return failing


def _later_beginnings(failing: Failing) -> Iterator[tuple[World, tuple[Event, ...]]]:
    """Begin with what the requests have after some of the events, the latest first."""
    for number in range(len(failing.events) - 1, 0, -1):
        prompts = failing.scenario.prompts[number]
        later = failing.events[number:]
        rest = tuple(event for event in later if not (isinstance(event, Arrive) and event.id in prompts))
        arrivals = tuple(Arrive(request, tokens) for request, tokens in prompts.items())
        for steps in range(3):
            yield failing.world, (*arrivals, *(EngineStep(),) * steps, *rest)


def _without_events(failing: Failing) -> Iterator[tuple[World, tuple[Event, ...]]]:
    """Leave out a request, or a run of events, long ones first."""
    events = failing.events
    for event in events:
        if isinstance(event, Arrive):
            yield failing.world, tuple(other for other in events if getattr(other, "id", None) != event.id)
    length = len(events) // 2
    while length:
        for first in range(len(events) - length, -1, -1):
            yield failing.world, events[:first] + events[first + length :]
        length //= 2


def _smaller_blocks(failing: Failing) -> Iterator[tuple[World, tuple[Event, ...]]]:
    """Shorter blocks, with prompts that end as far before a boundary as they do."""
    size = failing.world.setup.block_size
    for smaller in range(max(2, 1 + failing.world.setup.num_spec), size):
        events = tuple(_shortened(event, size, smaller) for event in failing.events)
        yield replace(failing.world, setup=replace(failing.world.setup, block_size=smaller)), events


def _shortened(event: Event, size: int, smaller: int) -> Event:
    if not isinstance(event, Arrive):
        return event
    length = len(event.prompt)
    return replace(event, prompt=event.prompt[: max(1, -(-length // size) * smaller - -length % size)])


def _relabelled(failing: Failing) -> Iterator[tuple[World, tuple[Event, ...]]]:
    """Number requests and tokens in the order in which they come up."""
    arrivals = [event for event in failing.events if isinstance(event, Arrive)]
    names = {arrival.id: f"r{number}" for number, arrival in enumerate(arrivals)}
    tokens = {
        token: number for number, token in enumerate(dict.fromkeys(chain(*(a.prompt for a in arrivals))))
    }
    for renamed in (tokens, {}):
        yield failing.world, tuple(_renamed(event, names, renamed) for event in failing.events)


def _renamed(event: Event, names: dict[str, str], tokens: dict[int, int]) -> Event:
    if isinstance(event, Arrive):
        return Arrive(names[event.id], tuple(tokens.get(token, token) for token in event.prompt))
    if isinstance(event, Finish):
        return Finish(names.get(event.id, event.id))
    if isinstance(event, EngineStep):
        turns = tuple((names[request], turn) for request, turn in event.turns if request in names)
        preempted = tuple(names[request] for request in event.preempted if request in names)
        return EngineStep(
            turns, preempted, tuple(names[one] for one in event.order if one in names), event.padding
        )
    return event


def _plainer_events(failing: Failing) -> Iterator[tuple[World, tuple[Event, ...]]]:
    for number, event in enumerate(failing.events):
        for plainer in _plainer(event):
            yield failing.world, (*failing.events[:number], plainer, *failing.events[number + 1 :])


def _plainer(event: Event) -> Iterator[Event]:
    if isinstance(event, Arrive):
        for length in range(1, len(event.prompt)):
            yield replace(event, prompt=event.prompt[:length])
    elif isinstance(event, EngineStep):
        yield EngineStep()
        yield replace(event, order=(), padding=0)
        yield replace(event, preempted=event.preempted[1:])
        for number, (request, turn) in enumerate(event.turns):
            rest = event.turns[:number], event.turns[number + 1 :]
            yield replace(event, turns=(*rest[0], *rest[1]))
            for plainer in _plainer_turns(turn):
                yield replace(event, turns=(*rest[0], (request, plainer), *rest[1]))
    elif isinstance(event, Finish):
        yield EngineStep()


def _plainer_turns(turn: Turn) -> Iterator[Turn]:
    yield Turn(drafts=turn.drafts, accepted=turn.accepted)
    yield Turn(turn.skipped)
    for drafts in range(turn.drafts):
        yield replace(turn, drafts=drafts, accepted=min(turn.accepted, drafts))
    for accepted in range(turn.accepted):
        yield replace(turn, accepted=accepted)


def _plainer_worlds(failing: Failing) -> Iterator[tuple[World, tuple[Event, ...]]]:
    for world in plainer_worlds(failing.world):
        yield world, failing.events


PASSES = (
    _later_beginnings,
    _without_events,
    _plainer_worlds,
    _smaller_blocks,
    _plainer_events,
    _relabelled,
)
