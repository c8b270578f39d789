"""Scenarios of an engine that keeps prefixes in a radix tree: what it is like, and what happens to its requests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from typing import ClassVar

from hypothesis import strategies as st

from properties.strategies.releases.live import (
    LiveAbort,
    LiveAdd,
    LiveEvent,
    LivePause,
    LiveTurns,
    live_events,
)
from statecheck.case.values import Record, record


@dataclass(frozen=True)
class RadixWorld:
    """What such an engine is like; see the fields of the same name in an adapter's `RadixSettings`."""

    page_size: int = 1
    max_total_tokens: int = 64
    max_mamba_cache_size: int = 9
    max_running_requests: int = 3
    chunked_prefill_size: int = 8
    strategy: str = "no_buffer"
    overlap: bool = False
    core: str = "python"
    mamba_track_interval: int = 4
    num_draft_tokens: int = 0
    draft_breadth: int = 1
    draft_method: str = "ngram"
    host_policy: str = ""
    sessions: bool = False
    mixed: bool = False
    states_per_path: int = -1
    radix_cache: bool = True
    kind: str = "gdn"
    mamba_chunk_size: int = 4
    late_steps: ClassVar[int] = 8
    """A request that was aborted and sent back computes its prompt once more before it ends."""

    @property
    def num_spec(self) -> int:
        """Drafts of a step: what it verifies without the last token that is known."""
        return max(0, self.num_draft_tokens - 1)

    @property
    def environment(self) -> dict[str, str]:
        return {}

    def settings_with(self, inside: str) -> Record:  # noqa: ARG002 - no port stands inside of it
        """The settings as a call's argument."""
        return record("RadixSettings", **asdict(self))


@dataclass(frozen=True)
class LateCopies:
    """From now on, copies to host memory and from it are done so many steps late, unless the engine waits for them."""

    to_host: int = 0
    from_host: int = 0


RadixEvent = LiveEvent | LateCopies


@dataclass(frozen=True)
class RadixStory:
    """A scenario: an engine, and what happens in it."""

    world: RadixWorld
    events: tuple[RadixEvent, ...]


def radix_events(world: RadixWorld) -> st.SearchStrategy[RadixEvent]:
    """What may happen next. Mostly nothing special happens."""
    usual = [live_events(world.num_spec)] * 7
    pauses = st.builds(LivePause, retract=st.booleans())
    if not world.host_policy:
        return st.one_of(*usual, pauses)
    return st.one_of(*usual, pauses, late_copies())


def late_copies() -> st.SearchStrategy[LateCopies]:
    """How late copies are done."""
    return st.builds(LateCopies, st.integers(0, 6), st.integers(0, 6))


def radix_stories(world: RadixWorld) -> st.SearchStrategy[RadixStory]:
    """Scenarios of an engine like this. Prompts begin like those of other requests, with what these have said."""
    several = st.lists(radix_events(world), max_size=8)
    events = st.lists(several, max_size=8).map(lambda parts: tuple(chain.from_iterable(parts)))
    first = st.builds(LiveAdd, own=st.integers(1, 12), max_tokens=st.integers(1, 12))
    # Some scenarios have late copies from their beginning.
    late = st.lists(late_copies(), max_size=1).map(tuple) if world.host_policy else st.just(())
    any_events = st.builds(lambda one, early, more: (one, *early, *more), first, late, events)
    named = [aborts_at_boundaries(), *[returning_prefixes()] * bool(world.host_policy)]
    named += [full_pools(world)] * world.strategy.endswith("lazy")
    continued = st.builds(
        lambda begun, more: (*begun, *more),
        st.one_of(named),
        st.lists(radix_events(world), max_size=6).map(tuple),
    )
    # Most scenarios are drawn event by event, as far as these go.
    chosen = st.one_of(any_events, any_events, any_events, continued)
    return chosen.map(lambda all_events: RadixStory(world, all_events))


def aborts_at_boundaries() -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """A request is aborted after some steps of decodes, while the one that passes a boundary may be in flight."""
    return st.builds(
        lambda own, steps: (LiveAdd(own, max_tokens=12), LiveTurns(times=steps), LiveAbort(), LiveTurns()),
        st.integers(1, 4),
        st.integers(3, 12),
    )


def full_pools(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """A request passes boundaries, and ends near one, while each other slot of states holds a prefix."""

    def of(own: int, max_tokens: int) -> tuple[RadixEvent, ...]:
        prefix = (LiveAdd(world.mamba_track_interval, max_tokens=1), LiveTurns(times=4))
        return (*prefix * world.max_mamba_cache_size, LiveAdd(own, max_tokens), LiveTurns(times=4))

    return st.builds(of, st.integers(1, 2 * world.mamba_track_interval), st.integers(1, 12))


def returning_prefixes() -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """Prefixes that evict each other come back from host memory, late, or are evicted while they are copied there."""

    def of(late: LateCopies, steps: int) -> tuple[RadixEvent, ...]:
        adds = [LiveAdd(13, max_tokens=3)] * 4 + [LiveAdd(1, 3, shared=12, like=like) for like in (0, 1)]
        return (late, *(event for one in adds for event in (one, LiveTurns(times=steps))))

    return st.builds(of, late_copies(), st.integers(4, 8))
