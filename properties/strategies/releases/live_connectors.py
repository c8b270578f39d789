"""Scenarios of a whole engine with a connector, which saves states outside of the cache and loads them at moments of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import strategies as st

from properties.strategies.releases.live import (
    LiveAbort,
    LiveAdd,
    LiveEvent,
    LiveReset,
    LiveStory,
    LiveTurns,
    LiveWorld,
    live_events,
    live_worlds,
)

_STEPS = LiveTurns(times=3)
_FORGETS = LiveReset()
_SAVED = (LiveAdd(9), _STEPS, _FORGETS)
"""A prompt of two blocks that is in the store alone."""
_AGAIN = LiveAdd(1, shared=9)
_LATE = LiveWorld(connector="async", load_steps=(2,))
_PROMPTS = LiveWorld(connector="async", prefix_caching=False)

CONNECTED: Mapping[str, LiveStory] = {
    "a load in the step that wants it": LiveStory(LiveWorld(connector="sync"), (*_SAVED, _AGAIN)),
    "a load in the step that wants it where few blocks are free": LiveStory(
        LiveWorld(connector="sync", num_blocks=12),
        (*_SAVED, LiveAdd(12, max_tokens=12), LiveTurns(times=6), _AGAIN),
    ),
    "a step without rows after drafts were accepted": LiveStory(
        replace(_PROMPTS, num_blocks=14, num_spec=2, method="eagle", async_scheduling=True),
        (
            LiveAdd(3, max_tokens=6),
            LiveAdd(1, max_tokens=4, shared=3),
            LiveTurns(times=2),
            LiveTurns((1,)),
            LiveTurns(times=3),
        ),
    ),
    "drafts that end a request while its next step is in flight": LiveStory(
        LiveWorld(connector="async", num_spec=2, method="eagle", async_scheduling=True),
        (LiveAdd(20, max_tokens=3), LiveTurns((2,), times=4)),
    ),
    "a load that takes steps": LiveStory(_LATE, (*_SAVED, _AGAIN)),
    "loads that are done in another order": LiveStory(
        replace(_LATE, load_steps=(3, 0)), (*_SAVED, _AGAIN, LiveTurns(), LiveAdd(2, shared=9))
    ),
    "a request that goes away while it is loaded": LiveStory(
        _LATE, (*_SAVED, _AGAIN, LiveTurns(), LiveAbort(), LiveAdd(12), LiveAdd(12))
    ),
    "a load that fails": LiveStory(replace(_LATE, failing_loads=(0,)), (*_SAVED, _AGAIN)),
    "a load that fails where few blocks are free": LiveStory(
        replace(_PROMPTS, num_blocks=12, failing_loads=(0,)),
        (LiveAdd(20), LiveTurns(times=4), LiveAdd(2, shared=20)),
    ),
    "a request that is gone before its blocks are saved": LiveStory(
        LiveWorld(connector="async", saves_at_end=True, save_steps=(3,)),
        (LiveAdd(9), LiveTurns(times=2), LiveAdd(12), LiveAdd(12, max_tokens=4), _STEPS, _FORGETS, _AGAIN),
    ),
    "a prompt that another instance computes": LiveStory(_PROMPTS, (LiveAdd(9), _STEPS, _AGAIN)),
}

FINER_CONNECTED: Mapping[str, LiveStory] = {
    "a state that a prefill saves on its way, and a chunk before the last": LiveStory(
        LiveWorld(
            connector="async",
            num_blocks=40,
            max_num_batched_tokens=8,
            num_spec=1,
            retention_interval=0,
            checkpoints=True,
        ),
        (LiveAdd(17), LiveTurns(times=2)),
    ),
    "a state that a prefill saves on its way, and another request hits": LiveStory(
        LiveWorld(connector="async", num_spec=1, method="eagle", async_scheduling=True, checkpoints=True),
        (LiveAdd(9, max_tokens=2), LiveAdd(1, max_tokens=1, shared=8)),
    ),
}
"""Of engines that are the second runner's alone."""


def connected_worlds(runner: str) -> st.SearchStrategy[LiveWorld]:
    """Engines of every feature, with a connector."""
    steps = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
    return st.builds(
        lambda world, connector, loads, saves, failing, at_end, late: replace(
            world,
            connector=connector,
            load_steps=loads if connector == "async" else (0,),
            save_steps=saves,
            failing_loads=failing if connector == "async" else (),
            saves_at_end=at_end,
            late_lookups=late,
        ),
        live_worlds(runner),
        st.sampled_from(("async", "async", "sync")),
        steps,
        steps,
        st.sets(st.integers(0, 2), max_size=1).map(tuple),
        st.booleans(),
        st.integers(0, 1),
    )


def _events(num_spec: int) -> st.SearchStrategy[LiveEvent]:
    """What may happen next, such that prefixes are forgotten and come again."""
    forgets = st.builds(LiveReset, st.booleans())
    again = st.builds(
        LiveAdd,
        own=st.integers(1, 4),
        max_tokens=st.integers(1, 6),
        shared=st.integers(4, 20),
        like=st.integers(0, 3),
    )
    return st.one_of(live_events(num_spec), again, forgets)


def connected_stories(runner: str) -> st.SearchStrategy[LiveStory]:
    """Scenarios of the engine with this model runner and a connector: any, or one that comes to a situation by name."""

    def of(world: LiveWorld) -> st.SearchStrategy[LiveStory]:
        first = st.builds(LiveAdd, own=st.integers(1, 12), max_tokens=st.integers(1, 12))
        more = st.lists(_events(world.num_spec), max_size=20)
        return st.builds(lambda one, events: LiveStory(world, (one, *events)), first, more)

    chosen = {**CONNECTED, **FINER_CONNECTED} if runner == "V2" else CONNECTED
    named = st.sampled_from(tuple(chosen.values()))
    return st.one_of(connected_worlds(runner).flatmap(of), named.flatmap(lambda one: _continued(one, runner)))


def _continued(story: LiveStory, runner: str) -> st.SearchStrategy[LiveStory]:
    world = replace(story.world, runner=runner)
    more = st.lists(_events(world.num_spec), max_size=6).map(tuple)
    return st.builds(lambda events: LiveStory(world, story.events + events), more)
