"""Scenarios of an engine with sessions: requests that continue what the engine keeps of earlier ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

from hypothesis import strategies as st

from properties.strategies.releases.live import LiveAbort, LiveReset, LiveTurns
from properties.strategies.releases.radix import (
    BETWEEN_VARIANTS,
    RadixEvent,
    RadixWorld,
    other_sizes,
    radix_events,
    stops,
)

MOST_SESSIONS = 2
"""Sessions at a time: each keeps a request's slots."""
KEYS_OF_SESSIONS = 160
"""Slots of keys of two sessions, of three requests of the longest kind, and of pages that are not full."""


@dataclass(frozen=True)
class OpenSession:
    """A session begins. Each turn of a streaming one continues the last that finished; the others branch."""

    streaming: bool = False


@dataclass(frozen=True)
class SessionTurn:
    """A request with `own` tokens behind those that a session has.

    `session` is its number. The first turn of a session begins with the first `shared` tokens of request number `like`. In a session with branches the turn continues number `after` of those that finished, or begins the session
    again. It keeps the first `offset` tokens of these, all with -1, or only the prompt with `drops_output`. With `replaces` it takes the
    place of all that came after. An `eager` one does not wait until the request that it continues has ended, and should be refused.
    The token number `stop_after` that it says is its stop token; none is with 0.
    """

    session: int = 0
    own: int = 1
    max_tokens: int = 1
    after: int = 0
    offset: int = -1
    drops_output: bool = False
    replaces: bool = False
    eager: bool = False
    shared: int = 0
    like: int = 0
    stop_after: int = 0


@dataclass(frozen=True)
class CloseSession:
    """A session ends, whatever its requests do."""

    number: int = 0


@dataclass(frozen=True)
class SecondPasses:
    """The engine's clock goes on, so that it looks for closed sessions."""


SessionEvent = RadixEvent | OpenSession | SessionTurn | CloseSession | SecondPasses


@dataclass(frozen=True)
class SessionStory:
    """A scenario: an engine, and what happens in it and its sessions."""

    world: RadixWorld
    events: tuple[SessionEvent, ...]


def session_stories(world: RadixWorld) -> st.SearchStrategy[SessionStory]:
    """Scenarios of an engine like this, and now and then of one with other sizes, with at most two sessions at a time."""
    own, others = (
        session_stories_of(world),
        other_sizes(world).map(with_room_for_sessions).flatmap(session_stories_of),
    )
    return st.integers(0, BETWEEN_VARIANTS).flatmap(lambda at: others if at == BETWEEN_VARIANTS else own)


def with_room_for_sessions(world: RadixWorld) -> RadixWorld:
    """The engine with the slots that two sessions keep, besides those of a request that runs: without them the request waits for ever."""
    slots = (MOST_SESSIONS + 1) * world.states_of_a_request
    keys = KEYS_OF_SESSIONS // world.page_size * world.page_size
    return replace(
        world,
        max_mamba_cache_size=max(world.max_mamba_cache_size, slots),
        max_total_tokens=max(world.max_total_tokens, keys),
    )


def session_stories_of(world: RadixWorld) -> st.SearchStrategy[SessionStory]:
    """Scenarios of this engine."""
    turns = st.builds(
        SessionTurn,
        session=st.integers(0, 1),
        # Few turns are longer than a chunk.
        own=st.one_of(*[st.integers(1, 6)] * 3, st.integers(1, world.chunked_prefill_size + 4)),
        shared=st.sampled_from((0, 0, 4, 8, 12)),
        like=st.integers(0, 2),
        max_tokens=st.integers(1, 10),
        after=st.integers(0, 3),
        offset=st.one_of(st.just(-1), st.just(-1), st.integers(1, 12)),
        drops_output=st.sampled_from((False, False, False, True)),
        replaces=st.sampled_from((False, False, True)),
        eager=st.booleans(),
        stop_after=stops,
    )
    steps = st.builds(
        LiveTurns, st.lists(st.integers(0, world.num_spec), max_size=4).map(tuple), st.integers(1, 4)
    )
    opens = st.builds(OpenSession, st.booleans())
    rare: list[st.SearchStrategy[SessionEvent]] = [
        st.builds(CloseSession, st.integers(0, 1)),
        st.builds(SecondPasses),
        st.builds(LiveAbort, st.integers(0, 3)),
        st.builds(LiveReset, st.booleans()),
        radix_events(world),
    ]
    happening = st.one_of(turns, steps, turns, steps, opens, *rare)
    several = st.lists(happening, max_size=8)
    events = st.lists(several, max_size=8).map(lambda parts: tuple(chain.from_iterable(parts)))
    begun = st.one_of(
        opens.map(lambda one: (one,)),
        *[aborted_turns(turns), branches(turns)],
        *[drafted_turns(world)] * bool(world.num_spec),
    )
    return st.builds(lambda first, more: SessionStory(world, (*first, *more)), begun, events)


def aborted_turns(turns: st.SearchStrategy[SessionTurn]) -> st.SearchStrategy[tuple[SessionEvent, ...]]:
    """A turn of a streaming session is aborted while it runs, with or without one before it that ended, and the session has another turn."""

    def of(ended: int, late: SessionTurn, steps: int, more: SessionTurn) -> tuple[SessionEvent, ...]:
        before = (SessionTurn(own=3, max_tokens=2), LiveTurns(times=6))
        aborted = (replace(late, session=0, max_tokens=10), LiveTurns(times=steps), LiveAbort())
        last = replace(more, session=0, eager=False)
        return (OpenSession(streaming=True), *before * ended, *aborted, LiveTurns(times=4), last, LiveTurns())

    return st.builds(of, st.integers(0, 1), turns, st.integers(1, 4), turns)


def drafted_turns(world: RadixWorld) -> st.SearchStrategy[tuple[SessionEvent, ...]]:
    """The first turn of a session says several tokens with drafts, of which each step accepts as many as are drawn."""
    return st.builds(
        lambda streaming, own, accepted: (
            OpenSession(streaming),
            SessionTurn(own=own, max_tokens=10),
            LiveTurns((accepted,), times=6),
        ),
        st.booleans(),
        st.integers(1, 6),
        st.integers(0, world.num_spec),
    )


def branches(turns: st.SearchStrategy[SessionTurn]) -> st.SearchStrategy[tuple[SessionEvent, ...]]:
    """Two turns continue the first one of a session, each in its own way."""

    def of(first: SessionTurn, *more: SessionTurn) -> tuple[SessionEvent, ...]:
        begun = (replace(first, session=0, max_tokens=3, replaces=False), LiveTurns(times=8))
        continued = [replace(one, session=0, after=1, eager=False) for one in more]
        return (OpenSession(), *begun, *(event for one in continued for event in (one, LiveTurns(times=4))))

    return st.builds(of, turns, turns, turns)
