"""Scenarios of a whole engine that lead to a situation by name, which scenarios that are drawn event by event seldom come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

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
    live_stories,
)

_STEP = LiveTurns()
_DRAFTS = LiveWorld(num_spec=1, num_blocks=40)
_MODEL = replace(_DRAFTS, method="eagle")
_OVERLAPPED = replace(_MODEL, async_scheduling=True)
_EVERY = LiveWorld(num_blocks=60, mamba_cache_mode="all")

SITUATIONS: Mapping[str, LiveStory] = {
    "a hit of which the draft's block is dropped": LiveStory(
        replace(_MODEL, max_num_seqs=1),
        (LiveAdd(8), _STEP, _STEP, LiveAdd(1, shared=4)),
    ),
    "a prompt that gets what a step has left": LiveStory(
        replace(_MODEL, max_num_batched_tokens=8), (LiveAdd(13), LiveAdd(5))
    ),
    "a prompt of one token beside decodes with drafts": LiveStory(
        _DRAFTS, (LiveAdd(1, max_tokens=2), _STEP, LiveAdd(1, max_tokens=2))
    ),
    "a preempted request with a short rest beside decodes with drafts": LiveStory(
        _DRAFTS,
        (LiveAdd(1, max_tokens=9), LiveAdd(4, max_tokens=5), _STEP, _STEP, LiveReset(preempt=True)),
    ),
    "a reset while steps with drafts are in flight": LiveStory(
        replace(_OVERLAPPED, max_num_seqs=1, prefix_caching=False),
        (LiveAdd(1, max_tokens=3), _STEP, _STEP, LiveReset(preempt=True)),
    ),
    "a row that moves after it has accepted drafts": LiveStory(
        _OVERLAPPED,
        (
            LiveAdd(1, max_tokens=3),
            LiveAdd(10, max_tokens=3, shared=1),
            _STEP,
            LiveTurns((0, 1)),
            LiveAdd(1),
            _STEP,
            LiveAbort(0),
        ),
    ),
    "a decode without room for drafts after it has accepted some": LiveStory(
        replace(_DRAFTS, kinds=("gdn",), max_model_len=28),
        (LiveAdd(12, max_tokens=16), LiveTurns((1,), times=12)),
    ),
    "prompts of one token in blocks that were used before": LiveStory(
        LiveWorld(num_blocks=12), (LiveAdd(9), _STEP, _STEP, LiveAdd(1), LiveAdd(1))
    ),
}

EVERY_BOUNDARY: Mapping[str, LiveStory] = {
    "a chunk that begins inside of a block and passes several": LiveStory(
        replace(_EVERY, max_num_batched_tokens=10), (LiveAdd(3, max_tokens=4), LiveAdd(12, max_tokens=4))
    ),
    "a hit of some of the blocks of a request that goes on": LiveStory(
        _EVERY, (LiveAdd(12, max_tokens=6), _STEP, _STEP, LiveAdd(3, shared=9))
    ),
    "decodes that pass a block's end": LiveStory(_EVERY, (LiveAdd(3, max_tokens=8), LiveTurns(times=8))),
}
"""Of engines that keep the state at every boundary, which are the first runner's alone."""
FINER: Mapping[str, LiveStory] = {
    "a hit inside of a block, and a prompt that goes on past its end": LiveStory(
        LiveWorld(num_blocks=40, prefix_match_unit=2), (LiveAdd(3), _STEP, _STEP, LiveAdd(7, shared=2))
    ),
}
"""Of engines with hits inside of blocks, which are the second runner's alone."""


def stories_with_situations(runner: str) -> st.SearchStrategy[LiveStory]:
    """Scenarios of the engine with this model runner: any, or one that comes to a situation and goes on from there."""
    chosen = {**SITUATIONS, **(FINER if runner == "V2" else EVERY_BOUNDARY)}
    named = st.sampled_from(tuple(chosen.values()))
    return st.one_of(live_stories(runner), named.flatmap(lambda story: _continued(story, runner)))


def _continued(story: LiveStory, runner: str) -> st.SearchStrategy[LiveStory]:
    world = replace(story.world, runner=runner)
    return st.builds(lambda events: LiveStory(world, story.events + events), _more_events(world.num_spec))


@cache
def _more_events(num_spec: int) -> st.SearchStrategy[tuple[LiveEvent, ...]]:
    return st.lists(live_events(num_spec), max_size=6).map(tuple)
