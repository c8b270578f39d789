"""Scenarios of an engine whose layers are divided among stages."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from properties.strategies.releases.live import LiveStory
from properties.strategies.releases.live_situations import stories_with_situations


def staged_stories() -> st.SearchStrategy[LiveStory]:
    """Scenarios of the second runner in stages, each of which comes to its batches some batches late."""
    late = st.lists(st.integers(0, 3), max_size=3).map(tuple)
    return st.builds(_in_stages, stories_with_situations("V2"), st.integers(2, 3), late)


def _in_stages(story: LiveStory, stages: int, late: tuple[int, ...]) -> LiveStory:
    world = story.world
    # With stages the scheduler hands out no drafts that it knows.
    overlapped = world.async_scheduling or world.num_spec > 0
    method = "eagle" if world.num_spec else world.method
    staged = replace(
        world, stages=stages, late_stages=late[:stages], async_scheduling=overlapped, method=method
    )
    return replace(story, world=staged)
