"""The situations that configurations of an engine with a radix tree are for: each property has some, and steps that are there are seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import find, settings
from hypothesis import strategies as st

from properties.releases import marks, test_radix_engine, test_real_engine
from properties.releases.marks import RadixMarks
from properties.releases.radix_run import RadixRun
from properties.strategies.releases.live import LiveAbort, LiveAdd, LiveReset, LiveTurns
from properties.strategies.releases.radix import (
    DRAFTS,
    KEYS_THAT_REMAIN,
    MOST_RUNNING,
    RadixStory,
    RadixWorld,
    other_sizes,
    radix_stories,
)
from statecheck.case.failure import Failure
from statecheck.case.values import Call, Returned, record

OVERLAPPED = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=16, overlap=True)
WITH_DRAFTS = RadixWorld(
    strategy="extra_buffer", max_mamba_cache_size=16, overlap=True, num_draft_tokens=3, mamba_track_interval=8
)
EXAMPLES = settings(max_examples=2000, database=None, derandomize=True)


def row(computed: int, tokens: int, *, begins: bool = False, drafts: int = 0) -> dict[str, Any]:
    return {"computed": computed, "tokens": tokens, "drafts": drafts, "begins": begins}


def seen(world: RadixWorld, *steps: dict[str, Any], stops: dict[str, int] | None = None) -> set[str]:
    """The marks of a scenario of these steps."""
    usual: dict[str, Any] = {
        "scheduled": {},
        "finished": (),
        "outputs": {},
        "published": (),
        "owners_after": (),
    }
    noted = RadixMarks(world, stops or {})
    for step in steps:
        noted.step(record("RadixStep", **(usual | step)), [])
    return noted.seen


def test_each_configuration_of_an_engine_has_a_situation() -> None:
    tables = (test_radix_engine.CONFIGURATIONS, test_real_engine.CONFIGURATIONS)
    assert all(configuration.situations for table in tables for configuration in table)


@pytest.mark.parametrize(
    ("mark", "step"),
    [
        (marks.HIT, {"scheduled": {"r0": row(4, 2, begins=True)}}),
        (marks.PAGES, {"scheduled": {"r0": row(8, 2, begins=True)}}),
        (marks.PASSED, {"scheduled": {"r0": row(0, 5, begins=True)}}),
        (marks.BOUNDARY, {"scheduled": {"r0": row(3, 1)}}),
        (marks.MIXED, {"scheduled": {"r0": row(3, 1), "r1": row(0, 4, begins=True)}}),
        (marks.GRID, {"scheduled": {"r0": row(0, 3, begins=True), "r1": row(0, 4, begins=True)}}),
        (marks.ACCEPTED, {"scheduled": {"r0": row(5, 3, drafts=2)}, "outputs": {"r0": (1, 2)}}),
        (marks.SOME, {"scheduled": {"r0": row(5, 3, drafts=2)}, "outputs": {"r0": (1, 2)}}),
        (marks.SEVERAL, {"scheduled": {"r0": row(6, 3, drafts=2)}, "outputs": {"r0": (1, 2)}}),
        (marks.STOPPED, {"outputs": {"r0": (1, 2)}, "finished": ("r0",)}),
        (marks.UNREAD, {"failed_reads": 1}),
        (marks.FULL, {"owners_after": tuple(("r0", 1, at, at + 1) for at in range(16))}),
    ],
)
def test_a_step_of_a_situation_is_seen(mark: str, step: dict[str, Any]) -> None:
    world = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=16, overlap=True, page_size=4)
    assert mark in seen(world, step, stops={"r0": 2})
    assert mark not in seen(world, {"scheduled": {"r0": row(0, 2, begins=True)}}, stops={"r0": 2})


def test_a_hit_of_host_memory_is_one_that_the_device_did_not_have() -> None:
    hit = {"scheduled": {"r1": row(4, 2, begins=True)}}
    assert marks.HOST in seen(OVERLAPPED, {"published": ((1, 1003, "r0", 4),)}, hit)
    assert marks.HOST not in seen(OVERLAPPED, {"published": ((1, 1003, "r0", 4), (1, 3, "r0", 4))}, hit)


@pytest.mark.parametrize(
    ("world", "holds"),
    [
        (
            OVERLAPPED,
            lambda world: world.max_mamba_cache_size == 5 and world.max_total_tokens == KEYS_THAT_REMAIN,
        ),
        (OVERLAPPED, lambda world: world.chunked_prefill_size > world.mamba_chunk_size + world.page_size),
        (OVERLAPPED, lambda world: world.chunked_prefill_size < world.mamba_chunk_size),
        (OVERLAPPED, lambda world: world.page_size > world.mamba_chunk_size),
        (OVERLAPPED, lambda world: world.page_size < world.mamba_chunk_size and world.page_size > 1),
        (OVERLAPPED, lambda world: world.max_running_requests == MOST_RUNNING),
        *((WITH_DRAFTS, lambda world, drafts=drafts: world.num_spec == drafts) for drafts in DRAFTS),
    ],
)
def test_each_bound_is_drawn(world: RadixWorld, holds: Any) -> None:
    found = find(other_sizes(world), holds, settings=EXAMPLES)
    assert found.mamba_track_interval % found.page_size == 0
    assert found.mamba_track_interval >= found.num_draft_tokens
    assert found.chunked_prefill_size % found.page_size == 0


def test_scenarios_draw_other_sizes_and_stop_tokens() -> None:
    def of(holds: Any) -> RadixStory:
        stories: st.SearchStrategy[RadixStory] = radix_stories(WITH_DRAFTS)
        return find(stories, holds, settings=EXAMPLES)

    assert of(lambda story: story.world != WITH_DRAFTS)
    assert of(lambda story: any(isinstance(event, LiveAdd) and event.stop_after for event in story.events))


class EngineWithoutSteps:
    """A trial of an engine that runs nothing and is idle; it ends these requests."""

    inside = ""

    def __init__(self, *ended: str) -> None:
        self.ended = ended
        self.situations: set[str] = set()
        self.found: list[str] = []

    def reached(self, *situations: str) -> None:
        self.situations.update(situations)

    def finds(self, failure: Failure) -> None:
        self.found.append(failure.observed)

    def agrees(self, made: Call) -> Returned:
        empty: dict[str, Any] = {
            "scheduled": {},
            "outputs": {},
            "finished": self.ended,
            "aborted": (),
            "published": (),
        }
        return Returned(
            record("RadixStep", **empty, owners_after=(), idle=True) if "step" in made.function else None
        )


def test_a_scenario_says_which_situations_it_has_reached() -> None:
    events = (LiveAdd(1, 1), LiveAbort(), LiveReset(), LiveAdd(2, 4, stop_after=3), LiveTurns())
    trial = EngineWithoutSteps("r1")
    run = RadixRun(trial, RadixStory(OVERLAPPED, events))  # type: ignore[arg-type]
    run.marks.note(marks.HIT)
    run.run()
    assert run.stops == {"r1": 3}
    assert trial.situations == {marks.HIT}
    assert trial.found == []


def test_an_idle_engine_that_has_lost_a_request_makes_no_progress() -> None:
    trial = EngineWithoutSteps("r1")
    RadixRun(trial, RadixStory(OVERLAPPED, (LiveAdd(1, 1), LiveAdd(2, 1)))).run()  # type: ignore[arg-type]
    assert trial.found == ["after 1 steps without arrivals, requests r0 are not finished"]
