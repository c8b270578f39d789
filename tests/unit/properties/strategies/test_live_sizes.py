"""Engines of scenarios are small mostly, and as large as each bound now and then."""

from __future__ import annotations

from dataclasses import replace

from properties.strategies.releases.live import LiveStory, LiveWorld
from statecheck.subject.profile import DOCUMENTS


def test_a_release_that_refuses_wide_blocks_has_steps_as_long_as_a_block() -> None:
    story = LiveStory(LiveWorld(block_size=16, max_num_batched_tokens=4), ())
    refusing = replace(DOCUMENTS, blocks_wider_than_steps=False)
    assert story.of_release(DOCUMENTS).world.max_num_batched_tokens == 4
    assert story.of_release(refusing).world.max_num_batched_tokens == 16
    without = replace(story, world=replace(story.world, prefix_caching=False))
    assert without.of_release(refusing).world.max_num_batched_tokens == 4
