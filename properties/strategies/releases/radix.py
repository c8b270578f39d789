"""Scenarios of an engine that keeps prefixes in a radix tree: what it is like, and what happens to its requests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from typing import ClassVar

from hypothesis import strategies as st

from properties.strategies.releases.live import (
    LONGEST,
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
    max_model_len: ClassVar[int] = LONGEST
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
    # Few of these end where a step in flight writes the only slot.
    named += [full_pools(world)] * (1 + 2 * (world.num_spec > 0)) * world.strategy.endswith("lazy")
    named += [ends_at_boundaries(world)] * (world.num_spec > 0)
    named += [prompts_at_once(world)] * (world.kind == "mamba2")
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


def ends_at_boundaries(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """A request ends right before or right behind the second boundary that it passes with drafts, of which most are right."""
    interval = world.mamba_track_interval

    def of(own: int, before: int, accepted: tuple[int, ...]) -> tuple[RadixEvent, ...]:
        return (LiveAdd(own, 2 * interval - own - before), LiveTurns(accepted, times=2 * interval))

    accepted = st.lists(st.integers(0, world.num_spec), max_size=4).map(tuple)
    return st.builds(
        of,
        st.integers(1, interval - 1),
        st.one_of(st.integers(1, 1 + world.num_spec), st.integers(-1, 1 + world.num_spec)),
        st.one_of(st.just((world.num_spec,)), accepted),
    )


def prompts_at_once(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """Three prompts come in together, of which the third begins at a chunk of the batch, and the second inside of one."""
    chunk = world.mamba_chunk_size

    def of(first: int, chunks: int, last: int) -> tuple[RadixEvent, ...]:
        lengths = (first, chunks * chunk - first, last)
        return (*(LiveAdd(own, max_tokens=4) for own in lengths), LiveTurns(times=6))

    return st.builds(of, st.integers(1, chunk - 1), st.integers(1, 2), st.integers(1, 2 * chunk))


def full_pools(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """A request passes boundaries, and ends near one, while each other slot of states holds a prefix."""
    interval = world.mamba_track_interval
    prefix = (LiveAdd(interval, max_tokens=1), LiveTurns(times=4))
    short = st.builds(
        lambda own, max_tokens: (LiveAdd(own, max_tokens), LiveTurns(times=4)),
        st.integers(1, 2 * interval),
        st.integers(1, 12),
    )
    last = ends_at_boundaries(world) if world.num_spec else short
    return last.map(lambda events: (*prefix * world.max_mamba_cache_size, *events))


def returning_prefixes() -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """Prefixes that evict each other come back from host memory, late and for several requests at once, or are evicted while they are copied there."""

    def of(
        late: LateCopies, own: int, max_tokens: int, steps: int, back: list[tuple[int, int]]
    ) -> tuple[RadixEvent, ...]:
        fresh = [(LiveAdd(own, max_tokens), steps)] * 4
        returning = [(LiveAdd(1, max_tokens, shared=12, like=like), apart) for like, apart in back]
        events: list[RadixEvent] = [late]
        for one, times in fresh + returning:
            # Those that come back at once are added before the same step.
            events += [one, *[LiveTurns(times=times)] * (times > 0)]
        return tuple(events)

    back = st.lists(st.tuples(st.integers(0, 1), st.sampled_from((0, 1, 4, 8))), min_size=1, max_size=3)
    return st.builds(
        of, late_copies(), st.sampled_from((13, 17)), st.sampled_from((1, 3)), st.integers(3, 8), back
    )
