"""Engines of scenarios are small mostly, and as large as each bound now and then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from properties.strategies.bounds import MANY_DRAFTS, MOST_DRAFTS
from properties.strategies.releases import radix
from properties.strategies.releases.live import (
    ITEM,
    MANY_REQUESTS,
    WIDE_BLOCKS,
    LiveAdd,
    LiveReset,
    LiveSleep,
    LiveStory,
    LiveWeights,
    LiveWorld,
    live_stories,
    with_connector,
    with_items,
    with_remote_prompts,
)
from statecheck.subject.profile import DOCUMENTS
from tests.unit.properties.strategies.drawing import drawn

RADIX = radix.RadixWorld(num_draft_tokens=3, strategy="extra_buffer", mamba_track_interval=8)


def test_a_release_that_refuses_wide_blocks_has_steps_as_long_as_a_block() -> None:
    story = LiveStory(LiveWorld(block_size=16, max_num_batched_tokens=4), ())
    refusing = replace(DOCUMENTS, blocks_wider_than_steps=False)
    assert story.of_release(DOCUMENTS).world.max_num_batched_tokens == 4
    assert story.of_release(refusing).world.max_num_batched_tokens == 16
    without = replace(story, world=replace(story.world, prefix_caching=False))
    assert without.of_release(refusing).world.max_num_batched_tokens == 4


def test_an_engine_beside_mooncakes_store_only_pauses_and_beside_nixl_does_not() -> None:
    events = (LiveSleep(2), LiveSleep(1, aborts=True), LiveWeights(sleep=True), LiveReset(external=True))
    awake = (LiveSleep(0), LiveSleep(0, aborts=True), LiveWeights(), LiveReset(external=True))
    assert with_connector(LiveStory(LiveWorld(), events), "simple").events == events
    assert with_connector(LiveStory(LiveWorld(), events), "mooncake").events == awake
    assert with_connector(LiveStory(LiveWorld(), events), "nixl").events == (LiveReset(external=True),)


def test_blocks_of_prompts_that_are_yet_to_be_loaded_are_no_blocks_of_the_engine() -> None:
    world, requests = LiveWorld(num_blocks=20), [LiveAdd()] * 6
    story = with_remote_prompts(LiveStory(world, (LiveAdd(9), *requests)), [False] + [True] * 9)
    assert [getattr(event, "remote", None) for event in story.events] == [False, *[True] * 4, False, False]
    assert story.world.num_blocks == 20 + 4 * (world.blocks_of_a_request - 1)


def test_equal_tokens_have_equal_items() -> None:
    items = ((2, 3), (6, 2))
    whole = with_items(tuple(range(1, 10)), items)
    assert [at for at, token in enumerate(whole) if token >= ITEM] == [2, 3, 4, 6, 7]
    # A prompt ends before an item that it has no room for, and other prompts have other items.
    assert with_items(whole[:7], items) == whole[:6]
    assert with_items(whole[:4], items) == whole[:2]
    assert with_items(whole[:2], items) == whole[:2]
    assert set(with_items(tuple(range(11, 20)), items)).isdisjoint(whole)


@pytest.mark.slow
def test_engines_of_vllm_are_as_large_as_each_bound_now_and_then() -> None:
    worlds = [story.world for story in drawn(live_stories("V2"), range(15))]
    assert {world.num_spec for world in worlds} >= {*MANY_DRAFTS, MOST_DRAFTS}
    assert {world.block_size for world in worlds} >= {*WIDE_BLOCKS}
    assert max(world.max_num_seqs for world in worlds) > MANY_REQUESTS[0]
    assert any(world.block_size > world.max_num_batched_tokens for world in worlds)


def test_other_sizes_of_sglangs_engine_are_its_bounds() -> None:
    worlds = drawn(radix.other_sizes(RADIX))
    assert {world.num_draft_tokens - 1 for world in worlds} == {*radix.DRAFTS, RADIX.num_draft_tokens - 1}
    assert {world.max_running_requests for world in worlds} >= {1, 2, radix.MOST_RUNNING}
    assert {world.page_size for world in worlds} == {*radix.PAGES}
    assert {world.mamba_chunk_size for world in worlds} == {*radix.CHUNKS}
    # Slots of states run out while keys remain.
    scarce = RADIX.states_of_a_request, radix.KEYS_THAT_REMAIN
    assert scarce in {(world.max_mamba_cache_size, world.max_total_tokens) for world in worlds}


@pytest.mark.slow
def test_scenarios_of_sglangs_engine_have_other_sizes_now_and_then() -> None:
    worlds = [story.world for story in drawn(radix.radix_stories(RADIX))]
    assert 0 < sum(world != RADIX for world in worlds) < len(worlds) / 20
