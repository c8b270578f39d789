"""Engines of scenarios are small mostly, and as large as each bound now and then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from oracle.profile import DOCUMENTS
from properties.engine.world import World
from properties.strategies.lifecycle import worlds
from properties.strategies.releases.live import LiveStory, LiveWorld, live_worlds
from tests.unit.properties.strategies.drawing import drawn


def is_wide(world: LiveWorld) -> bool:
    return world.prefix_caching and world.block_size > world.max_num_batched_tokens


LIVE: dict[str, tuple[Callable[[LiveWorld], object], float, float]] = {
    "more than three drafts": (lambda world: world.num_spec > 3, 4, 30),
    "eight drafts or more": (lambda world: world.num_spec >= 8, 1, 15),
    "seven rows or more": (lambda world: world.max_num_seqs >= 7, 2, 20),
    "16 rows or more": (lambda world: world.max_num_seqs >= 16, 0.5, 12),
    "blocks wider than a step": (is_wide, 5, 35),
    "blocks of 16 tokens": (lambda world: world.block_size == 16, 3, 40),
    "no block beyond those of a request": (lambda world: world.num_blocks == world.blocks_of_one, 2, 50),
    "blocks for all rows": (
        lambda world: world.num_blocks > world.max_num_seqs * (world.blocks_of_one - 1),
        4,
        60,
    ),
}
"""By name, of a hundred engines so many at least, and at most."""
SIMULATED: dict[str, tuple[Callable[[World], object], float, float]] = {
    "more than three drafts": (lambda world: world.num_spec > 3, 1, 25),
    "eight drafts": (lambda world: world.num_spec == 8, 0.4, 15),
    "nine rows or more": (lambda world: world.max_num_seqs >= 9, 1, 25),
    "16 rows": (lambda world: world.max_num_seqs == 16, 0.4, 15),
}


@pytest.mark.parametrize("runner", ["V1", "V2"])
@pytest.mark.slow
def test_engines_of_a_release_reach_each_bound_now_and_then(runner: str) -> None:
    found = drawn(live_worlds(runner))
    seen = {name: 100 * sum(map(bool, map(has, found))) / len(found) for name, (has, *_) in LIVE.items()}
    assert {name: share for name, share in seen.items() if not LIVE[name][1] <= share <= LIVE[name][2]} == {}


@pytest.mark.slow
def test_simulated_engines_reach_each_bound_now_and_then() -> None:
    found = drawn(worlds(modes=("align",), runners=("V1", "V2")))
    shares = {
        name: 100 * sum(map(bool, map(has, found))) / len(found) for name, (has, *_) in SIMULATED.items()
    }
    wrong = {name: n for name, n in shares.items() if not SIMULATED[name][1] <= n <= SIMULATED[name][2]}
    assert wrong == {}


def test_a_release_that_refuses_wide_blocks_has_steps_as_long_as_a_block() -> None:
    story = LiveStory(LiveWorld(block_size=16, max_num_batched_tokens=4), ())
    refusing = replace(DOCUMENTS, blocks_wider_than_steps=False)
    assert story.of_release(DOCUMENTS).world.max_num_batched_tokens == 4
    assert story.of_release(refusing).world.max_num_batched_tokens == 16
    without = replace(story, world=replace(story.world, prefix_caching=False))
    assert without.of_release(refusing).world.max_num_batched_tokens == 4
