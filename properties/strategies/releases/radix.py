"""Scenarios of SGLang's engine, which keeps prefixes in a radix tree: its configuration, and events of its requests and sessions.

`radix_stories(world)` draws scenarios of one configuration, and now and then of one with another size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, ClassVar

from hypothesis import strategies as st

from properties.strategies.releases.live import (
    FIRST,
    LONGEST,
    LiveAbort,
    LiveAdd,
    LiveEvent,
    LivePause,
    LiveReset,
    LiveSleep,
    LiveTurns,
    LiveWeights,
    live_events,
    several,
)
from properties.strategies.releases.pairs import apart, paired_stories, paired_worlds
from statecheck.case.values import Record, record

STATES_OF_A_REQUEST = {"no_buffer": 3, "extra_buffer": 5, "extra_buffer_lazy": 4}
"""Slots of states that the release counts for a request that runs, by strategy, so that no engine has fewer: its own, that of the prefix that it has
locked, one for a copy, and those for boundaries. Without steps that overlap "extra_buffer" takes one less.
"""
SCARCE_STATES = 15
"""Three requests' slots: prefixes of twelve requests hold them all, and those that run evict each other's."""
MANY_STATES = 40
"""More than a scenario of sixty-four events fills."""
KEYS_THAT_REMAIN = 200
"""Slots of keys that are not used up when all slots of states are."""
FEWEST_KEYS = 36
"""A request of the longest kind has room, and no two have."""
LONGEST_STEP = 24
"""Tokens of a step that takes in most prompts whole, and passes several boundaries, pages and chunks of a scan."""
MOST_DRAFTS = 8
"""The field runs 5 to 8; a step then passes boundaries by more tokens than a chunk of a scan has."""
DRAFTS = (1, 2, 4, 5, 7, MOST_DRAFTS)
"""The bounds of what was tried in the field, and their neighbours."""
PAGES = (1, 2, 4, 8, 16)
"""From a slot for each token to several chunks of a scan; the field runs 1, 64 and 256, beside chunks of 64 and 256."""
CHUNKS = (4, 8, 16)
"""No chunk of a scan is shorter than the rows that a convolution keeps: a model's is 64 tokens at least, and these are three."""
MOST_RUNNING = 9
"""More than eight requests in a batch."""
MOST_LATE = 6
"""Steps by which copies are late at most."""
HITS_FIRST = "write_through_selective"
"""The policy that copies a prefix to host memory at its second hit."""
MOST_SESSIONS = 2
"""Sessions at a time: each keeps a request's slots."""
KEYS_OF_SESSIONS = 160
"""Slots of keys of two sessions, of three requests of the longest kind, and of pages that are not full."""
BETWEEN_VARIANTS = 40
"""Examples of an engine's own sizes between two of other ones: an engine with other sizes takes the time of three examples more."""


@dataclass(frozen=True)
class RadixWorld:
    """An engine's settings; see the fields of the same name in an adapter's `RadixSettings`."""

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
    storage_policy: str = ""
    sessions: bool = False
    mixed: bool = False
    states_per_path: int = -1
    radix_cache: bool = True
    kind: str = "gdn"
    mamba_chunk_size: int = 4
    side_states: bool = False
    priorities: tuple[int, ...] = ()
    checkpoints: int = 0
    max_model_len: ClassVar[int] = LONGEST
    items: ClassVar[tuple[tuple[int, int], ...]] = ()

    @property
    def late_steps(self) -> int:
        """Steps in which nothing may be scheduled: a request that was aborted and sent back computes its prompt once more before it ends, and one that is
        loaded from a storage waits for three threads.
        """
        return 8 + 3 * (1 + MOST_LATE) * bool(self.storage_policy)

    @property
    def num_spec(self) -> int:
        """Drafts of a step: what it verifies without the last token that is known."""
        return max(0, self.num_draft_tokens - 1)

    @property
    def states_of_a_request(self) -> int:
        """The fewest slots of states of such an engine."""
        return STATES_OF_A_REQUEST[self.strategy]

    @property
    def room(self) -> int:
        """Tokens of a prompt and of what a request says, at most: steps with many drafts need longer requests."""
        return LONGEST + 2 * max(0, self.num_spec - 3) - 2 * min(self.num_spec, 3) - 2

    @property
    def environment(self) -> dict[str, str]:
        return {}

    def settings_with(self, inside: str) -> Record:  # noqa: ARG002 - no port stands inside of it
        """The settings as a call's argument."""
        return record("RadixSettings", **asdict(self))


@dataclass(frozen=True)
class LateCopies:
    """From now on, copies to host memory and from it are done so many steps late, unless the engine waits for them; `storage` is of a storage's threads."""

    to_host: int = 0
    from_host: int = 0
    storage: int = 0


@dataclass(frozen=True)
class StorageFails:
    """How many reads of a page, reads of a state and saves of the storage succeed before one fails; with -1 none fails.

    A failed read raises an error with `raises`; otherwise it finds nothing.
    """

    pages: int = -1
    states: int = -1
    saves: int = -1
    raises: bool = False


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


RadixEvent = LiveEvent | LateCopies | StorageFails | OpenSession | SessionTurn | CloseSession | SecondPasses


@dataclass(frozen=True)
class RadixStory:
    """A scenario: an engine, and what happens in it and its sessions."""

    world: RadixWorld
    events: tuple[RadixEvent, ...]


def radix_stories(world: RadixWorld) -> st.SearchStrategy[RadixStory]:
    """Scenarios of an engine like this, and now and then of one with other sizes. Prompts begin like those of other requests, with what these have said."""
    own, others = _any_stories_of(world), other_sizes(world).flatmap(_any_stories_of)
    return st.integers(0, BETWEEN_VARIANTS).flatmap(lambda at: others if at == BETWEEN_VARIANTS else own)


def other_sizes(world: RadixWorld) -> st.SearchStrategy[RadixWorld]:
    """The engine with one of its sizes at a bound or beside it, or with pools of which that of states is full first, such that the release takes it."""
    pools = _pools(world)
    changes = [
        pools,
        pools.flatmap(_steps),
        _steps(world),
        st.sampled_from((1, 2, MOST_RUNNING)).map(lambda count: _with_rows(world, count)),
    ]
    # A page of keys has one token where only the last state is cached, and where drafts are trees.
    if world.strategy != "no_buffer" and world.draft_breadth == 1:
        sizes = st.tuples(st.sampled_from(PAGES), st.sampled_from(CHUNKS))
        changes.append(sizes.map(lambda of_both: _with_sizes(world, *of_both)))
    if world.num_spec:
        # In a tree, a wrong draft stands beside a right one.
        drafts = [count for count in DRAFTS if count >= world.draft_breadth]
        changes.append(st.sampled_from(drafts).map(lambda count: _with_drafts(world, count)))
    drawn = st.one_of(changes)
    return drawn.map(_with_room_for_sessions) if world.sessions else drawn


def _pools(world: RadixWorld) -> st.SearchStrategy[RadixWorld]:
    """The engine with other pools."""
    least = world.states_of_a_request
    states = st.sampled_from((least, least + 1, 2 * least, SCARCE_STATES, MANY_STATES))
    # Whole pages, and one more than the longest request fills.
    fewest = (-(-FEWEST_KEYS // world.page_size) + (world.page_size > 1)) * world.page_size
    keys = st.sampled_from((fewest, fewest + world.page_size, KEYS_THAT_REMAIN))
    return st.builds(
        lambda count, tokens: replace(world, max_mamba_cache_size=count, max_total_tokens=tokens),
        states,
        keys,
    )


def _with_rows(world: RadixWorld, count: int) -> RadixWorld:
    """The engine with so many requests at a time, and the slots for them."""
    slots = count * world.states_of_a_request
    return replace(
        world, max_running_requests=count, max_mamba_cache_size=slots, max_total_tokens=KEYS_THAT_REMAIN
    )


def _steps(world: RadixWorld) -> st.SearchStrategy[RadixWorld]:
    """The engine with steps of a page, of two, of a token more than a chunk of a scan where pages are that small, and of many."""
    page, chunk = world.page_size, world.mamba_chunk_size
    lengths = {
        -(-count // page) * page for count in (page, 2 * page, chunk - 1, chunk, chunk + 1, LONGEST_STEP)
    }
    return st.sampled_from(sorted(lengths)).map(lambda count: replace(world, chunked_prefill_size=count))


def _with_sizes(world: RadixWorld, page: int, chunk: int) -> RadixWorld:
    """The engine with such pages and chunks of a scan: states are kept at multiples of both."""
    unit = max(page, chunk)
    interval = unit * -(-world.mamba_track_interval // unit)
    return replace(
        world,
        page_size=page,
        mamba_chunk_size=chunk,
        mamba_track_interval=interval,
        chunked_prefill_size=max(page, world.chunked_prefill_size // page * page),
        max_total_tokens=max(world.max_total_tokens, FEWEST_KEYS + 2 * page) // page * page + page,
    )


def _with_drafts(world: RadixWorld, drafts: int) -> RadixWorld:
    """The engine with so many drafts, and pools and boundaries that have room for them: a request passes no two boundaries in two steps."""
    unit = max(world.page_size, world.mamba_chunk_size)
    interval = unit * -(-max(world.mamba_track_interval, 2 * (1 + drafts)) // unit)
    return replace(
        world,
        num_draft_tokens=1 + drafts,
        mamba_track_interval=interval,
        max_total_tokens=max(world.max_total_tokens, KEYS_THAT_REMAIN),
    )


def _with_room_for_sessions(world: RadixWorld) -> RadixWorld:
    """The engine with the slots that two sessions keep, besides those of a request that runs: without them the request waits for ever."""
    slots = (MOST_SESSIONS + 1) * world.states_of_a_request
    keys = KEYS_OF_SESSIONS // world.page_size * world.page_size
    return replace(
        world,
        max_mamba_cache_size=max(world.max_mamba_cache_size, slots),
        max_total_tokens=max(world.max_total_tokens, keys),
    )


_CHAIN, _TREE, _EAGLE = "drafts", "trees", "eagle"
_SOME_DRAFTS = ((_CHAIN, 1), (_CHAIN, 2), (_CHAIN, MOST_DRAFTS), (_TREE, 3), (_EAGLE, 2))
# By field of the engine, or as `_combined` reads it, the values that are combined by pairs.
_FEATURES: dict[str, tuple[Any, ...]] = {
    "strategy": ("extra_buffer", "no_buffer", "extra_buffer_lazy"),
    "overlap": (True, False),
    "drafts": (("", 0), *_SOME_DRAFTS),
    "kind": ("gdn", "mamba2"),
    "core": ("python", "rust"),
    "host_policy": ("", "write_through", "write_back", HITS_FIRST),
    "sessions": (False, True),
    "mixed": (False, True),
    "states_per_path": (-1, 2),
    "page_size": (1, 4, 16),
    "mamba_chunk_size": (4, 8),
    "max_running_requests": (3, 1, MOST_RUNNING, 16),
    # Each pool is the first to be full where the other one has room.
    "states": ("few", "some", "many"),
    "keys": ("few", "many"),
    "steps": (2, 1, 5),
}
_EXCLUDED = (
    # The release refuses these.
    *apart("strategy", "no_buffer", overlap=(True,), page_size=(4, 16), drafts=_SOME_DRAFTS),
    *apart("strategy", "extra_buffer_lazy", overlap=(False,)),
    *apart("mixed", True, drafts=_SOME_DRAFTS),
    *apart("drafts", (_TREE, 3), page_size=(4, 16)),
    # Steps with drafts overlap.
    *apart("overlap", False, drafts=_SOME_DRAFTS),
)


def _combined(row: Mapping[str, Any]) -> RadixWorld:
    """The engine with these features, and with room for the longest request and for what sessions keep."""
    (kind, drafts), page, chunk = row["drafts"], row["page_size"], row["mamba_chunk_size"]
    world = RadixWorld(
        **{name: value for name, value in row.items() if name not in ("drafts", "states", "keys", "steps")},
        num_draft_tokens=1 + drafts if drafts else 0,
        draft_breadth=2 if kind == _TREE else 1,
        draft_method=_EAGLE if kind == _EAGLE else "ngram",
    )
    unit, least = max(page, chunk), world.states_of_a_request
    # A request passes no two boundaries in two steps.
    interval = unit * -(-max(4, 2 * (1 + drafts) * bool(drafts)) // unit)
    fewest = page * (-(-(FEWEST_KEYS + world.room - RadixWorld().room + 4 * drafts) // page) + (page > 1))
    many = max(MANY_STATES, world.max_running_requests * least)
    world = replace(
        world,
        mamba_track_interval=interval,
        chunked_prefill_size=unit * row["steps"],
        max_mamba_cache_size={"few": least + 1, "some": SCARCE_STATES, "many": many}[row["states"]],
        max_total_tokens=fewest if row["keys"] == "few" else KEYS_THAT_REMAIN // page * page,
    )
    return _with_room_for_sessions(world) if world.sessions else world


PAIRED = paired_worlds(_FEATURES, _EXCLUDED, _combined)
"""Engines in which any two values of two features stand together, as far as the release takes both."""


def paired_radix_stories() -> st.SearchStrategy[RadixStory]:
    """Scenarios of one of the engines that combine features by pairs."""
    return paired_stories(PAIRED, _any_stories_of)


def sleeping_radix_stories(world: RadixWorld) -> st.SearchStrategy[RadixStory]:
    """Scenarios in which the engine sleeps, or the model gets other weights, wherever in them; prefixes from before come again."""
    rests = st.one_of(st.builds(LiveSleep), st.builds(LiveWeights, st.booleans()))
    begun = st.builds(
        lambda own, steps, rest, shared: (
            LiveAdd(own, max_tokens=12),
            LiveTurns(times=steps),
            rest,
            LiveTurns(times=2),
            LiveAdd(1, shared=shared),
        ),
        st.integers(1, 12),
        st.integers(1, 12),
        rests,
        st.sampled_from((8, 4, 12)),
    )
    stories = st.builds(
        lambda story, at, rest: replace(story, events=(*story.events[:at], rest, *story.events[at:])),
        radix_stories(world),
        st.integers(1, 12),
        rests,
    )
    return st.one_of(stories, begun.map(lambda events: RadixStory(world, events)))


def _any_stories_of(world: RadixWorld) -> st.SearchStrategy[RadixStory]:
    return _session_stories_of(world) if world.sessions else _stories_of(world)


_STOPS = st.sampled_from((0, 0, 0, 1, 2, 3, 5, 8))
"""Numbers of the token that a request says that is its stop token; most requests have none."""


def _late_copies(world: RadixWorld) -> st.SearchStrategy[LateCopies]:
    late = st.integers(0, MOST_LATE)
    return st.builds(LateCopies, late, late, late if world.storage_policy else st.just(0))


def _storage_fails() -> st.SearchStrategy[StorageFails]:
    """One of the next reads or saves fails."""
    next_call = st.integers(0, 6)
    return st.one_of(
        st.builds(StorageFails, states=st.integers(0, 1), raises=st.booleans()),
        st.builds(StorageFails, pages=next_call, raises=st.booleans()),
        st.builds(StorageFails, saves=next_call),
    )


def _stopped(event: LiveEvent, stop_after: int) -> LiveEvent:
    """The event; a request that comes in has a stop token."""
    return replace(event, stop_after=stop_after) if isinstance(event, LiveAdd) and stop_after else event


def _events(world: RadixWorld) -> st.SearchStrategy[RadixEvent]:
    """Events that may come next, most of them plain."""
    usual = [st.builds(_stopped, live_events(world.num_spec), _STOPS)] * 7
    late: list[st.SearchStrategy[RadixEvent]] = [_late_copies(world)] * bool(world.host_policy)
    if world.storage_policy:
        late += [st.builds(LiveReset, st.just(False)), _storage_fails()]
    return st.one_of(*usual, st.builds(LivePause, retract=st.booleans()), *late)


def _stories_of(world: RadixWorld) -> st.SearchStrategy[RadixStory]:
    """Scenarios of this engine without sessions."""
    # Some scenarios have late copies from their beginning.
    late = st.lists(_late_copies(world), max_size=1).map(tuple) if world.host_policy else st.just(())
    any_events = st.builds(
        lambda first, early, more: (first, *early, *more),
        st.builds(_stopped, FIRST, _STOPS),
        late,
        several(_events(world)),
    )
    named = [_aborts_at_boundaries(), *[_returning_prefixes(world)] * bool(world.host_policy)]
    # Few of these end where a step in flight writes the only slot.
    named += [_full_pools(world)] * (1 + 2 * (world.num_spec > 0)) * world.strategy.endswith("lazy")
    named += [_ends_at_boundaries(world)] * (world.num_spec > 0)
    named += [_prompts_at_once(world)] * (world.kind == "mamba2")
    # Prefixes fill the slots of states before they fill those of keys.
    scarce = bool(world.host_policy) and world.max_mamba_cache_size <= SCARCE_STATES
    named += [_many_prefixes(world)] * 4 * (scarce and world.max_total_tokens >= KEYS_THAT_REMAIN)
    # Where a request has one slot of states, one is enough for it, but not for a load.
    named += [_loads_beside_copies(world)] * 4 * (scarce and world.strategy == "no_buffer")
    named += [_long_prompts(world)] * (world.page_size > 1)
    if world.storage_policy:
        named = [_prefixes_in_storage(world)]
    continued = st.builds(
        lambda begun, more: (*begun, *more),
        st.one_of(named),
        st.lists(_events(world), max_size=6).map(tuple),
    )
    # Most scenarios are drawn event by event, as far as these go. Few of these load from a storage.
    chosen = st.one_of(*[any_events] * (1 if world.storage_policy else 3), continued)
    return chosen.map(lambda events: RadixStory(world, events))


def _many_prefixes(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """Short requests fill the slots of states with prefixes; then several run at once, while copies to host memory keep prefixes locked."""
    chunk = world.mamba_chunk_size
    short = st.builds(
        lambda own: (LiveAdd(own, max_tokens=1), LiveTurns(times=2)), st.integers(chunk, chunk + 6)
    )
    filled = st.lists(short, min_size=world.max_mamba_cache_size - 3, max_size=world.max_mamba_cache_size)
    # Several chunks of a scan each, so that each leaves several states.
    long = st.builds(
        LiveAdd, own=st.integers(min(2 * chunk, LONGEST_STEP), LONGEST_STEP), max_tokens=st.integers(2, 12)
    )
    running = st.lists(long, min_size=1, max_size=world.max_running_requests)
    late = st.builds(LateCopies, st.sampled_from((6, 4, 2)), st.just(0))
    return st.builds(
        lambda first, prefixes, last: (first, *chain.from_iterable(prefixes), *last, LiveTurns(times=8)),
        late,
        filled,
        running,
    )


def _loads_beside_copies(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """A prefix that host memory alone has comes back while late copies lock most slots of states, so that its load finds few, one or none."""
    late, wait = LateCopies(to_host=MOST_LATE), LiveTurns(times=4)

    def of(own: int, running: int, locked: int, steps: int) -> tuple[RadixEvent, ...]:
        short = LiveAdd(own, max_tokens=1)
        events: list[RadixEvent] = [
            LiveAdd(12, max_tokens=1),
            wait,
            *(short, wait) * world.max_mamba_cache_size,
        ]
        events += [late, *[LiveAdd(4, max_tokens=12)] * running]
        events += [short, *[LiveTurns(times=steps)] * (steps > 0)] * locked
        return (*events, LiveAdd(1, shared=12), wait)

    locked = world.max_mamba_cache_size // 2
    return st.builds(
        of, st.integers(3, 6), st.integers(1, 2), st.integers(locked, locked + 2), st.integers(0, 1)
    )


def _long_prompts(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """A prompt of more than a page, and another one behind it that begins alike, up to the end of a page or of some tokens beside it."""
    page = world.page_size
    return st.builds(
        lambda own, more, shared, most: (
            LiveAdd(own, most),
            LiveTurns(times=6),
            LiveAdd(more, most, shared=shared),
            LiveTurns(times=6),
        ),
        st.integers(page + 1, 2 * page + 4),
        st.integers(1, page + 2),
        st.integers(page - 1, 2 * page + 1),
        st.integers(1, 12),
    )


def _aborts_at_boundaries() -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """A request is aborted after some steps of decodes, while the one that passes a boundary may be in flight."""
    return st.builds(
        lambda own, steps: (LiveAdd(own, max_tokens=12), LiveTurns(times=steps), LiveAbort(), LiveTurns()),
        st.integers(1, 4),
        st.integers(3, 12),
    )


def _ends_at_boundaries(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
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


def _prompts_at_once(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """Three prompts come in together, of which the third begins at a chunk of the batch, and the second inside of one."""
    chunk = world.mamba_chunk_size

    def of(first: int, chunks: int, last: int) -> tuple[RadixEvent, ...]:
        lengths = (first, chunks * chunk - first, last)
        return (*(LiveAdd(own, max_tokens=4) for own in lengths), LiveTurns(times=6))

    return st.builds(of, st.integers(1, chunk - 1), st.integers(1, 2), st.integers(1, 2 * chunk))


def _full_pools(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """A request passes boundaries, and ends near one, while each other slot of states holds a prefix."""
    interval = world.mamba_track_interval
    prefix = (LiveAdd(interval, max_tokens=1), LiveTurns(times=4))
    short = st.builds(
        lambda own, max_tokens: (LiveAdd(own, max_tokens), LiveTurns(times=4)),
        st.integers(1, 2 * interval),
        st.integers(1, 12),
    )
    last = _ends_at_boundaries(world) if world.num_spec else short
    return last.map(lambda events: (*prefix * world.max_mamba_cache_size, *events))


def _returning_prefixes(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """Prefixes that evict each other come back from host memory, late and for several requests at once, or are evicted while they are copied there.

    If the engine copies a prefix at its second hit, the first one is hit twice before it is evicted.
    """
    hits = [(LiveAdd(1, max_tokens=1, shared=12), 6)] * (2 if world.host_policy == HITS_FIRST else 0)

    def of(
        late: LateCopies, own: int, max_tokens: int, steps: int, back: list[tuple[int, int]]
    ) -> tuple[RadixEvent, ...]:
        fresh = [(LiveAdd(own, max_tokens), steps)] * 4
        fresh[1:1] = hits
        returning = [(LiveAdd(1, max_tokens, shared=12, like=like), apart) for like, apart in back]
        events: list[RadixEvent] = [late]
        for add, times in fresh + returning:
            # Those that come back at once are added before the same step.
            events += [add, *[LiveTurns(times=times)] * (times > 0)]
        return tuple(events)

    back = st.lists(st.tuples(st.integers(0, 1), st.sampled_from((0, 1, 4, 8))), min_size=1, max_size=3)
    return st.builds(
        of, _late_copies(world), st.sampled_from((13, 17)), st.sampled_from((1, 3)), st.integers(3, 8), back
    )


def _prefixes_in_storage(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """Prefixes are saved in the storage; the cache is emptied, and they come back, whole and in part, while others are saved."""

    def of(
        late: LateCopies,
        owns: list[int],
        most: int,
        back: list[tuple[int, int, int]],
        failure: list[StorageFails],
    ) -> tuple[RadixEvent, ...]:
        events: list[RadixEvent] = [late]
        failing_save = [event for event in failure if event.saves >= 0]
        events += failing_save
        for own in owns:
            events += [LiveAdd(own, max_tokens=most), LiveTurns(times=8)]
        events += [LiveTurns(times=world.late_steps), LiveReset(preempt=False), LiveTurns()]
        events += [event for event in failure if event not in failing_save]
        for shared, like, steps in back:
            events += [
                LiveAdd(1, max_tokens=most, shared=shared, like=like),
                *[LiveTurns(times=steps)] * (steps > 0),
            ]
        return tuple(events)

    back = st.tuples(st.sampled_from((8, 12, 24)), st.integers(0, 1), st.sampled_from((8, 0, 1, 3)))
    return st.builds(
        of,
        _late_copies(world),
        st.lists(st.sampled_from((13, 17, 9)), min_size=1, max_size=2),
        st.sampled_from((1, 3, 9)),
        st.lists(back, min_size=1, max_size=3),
        st.lists(_storage_fails(), max_size=1),
    )


def _session_stories_of(world: RadixWorld) -> st.SearchStrategy[RadixStory]:
    """Scenarios of this engine with at most two sessions at a time."""
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
        stop_after=_STOPS,
    )
    steps = st.builds(
        LiveTurns, st.lists(st.integers(0, world.num_spec), max_size=4).map(tuple), st.integers(1, 4)
    )
    opens = st.builds(OpenSession, st.booleans())
    rare: list[st.SearchStrategy[RadixEvent]] = [
        st.builds(CloseSession, st.integers(0, 1)),
        st.builds(SecondPasses),
        st.builds(LiveAbort, st.integers(0, 3)),
        st.builds(LiveReset, st.booleans()),
        _events(world),
    ]
    events = several(st.one_of(turns, steps, turns, steps, opens, *rare))
    begun = st.one_of(
        opens.map(lambda event: (event,)),
        *[_aborted_turns(turns), _branches(turns)],
        *[_drafted_turns(world)] * bool(world.num_spec),
    )
    return st.builds(lambda first, more: RadixStory(world, (*first, *more)), begun, events)


def _aborted_turns(turns: st.SearchStrategy[SessionTurn]) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """A turn of a streaming session is aborted while it runs, with or without one before it that ended, and the session has another turn."""

    def of(ended: int, late: SessionTurn, steps: int, more: SessionTurn) -> tuple[RadixEvent, ...]:
        before = (SessionTurn(own=3, max_tokens=2), LiveTurns(times=6))
        aborted = (replace(late, session=0, max_tokens=10), LiveTurns(times=steps), LiveAbort())
        last = replace(more, session=0, eager=False)
        return (OpenSession(streaming=True), *before * ended, *aborted, LiveTurns(times=4), last, LiveTurns())

    return st.builds(of, st.integers(0, 1), turns, st.integers(1, 4), turns)


def _drafted_turns(world: RadixWorld) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
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


def _branches(turns: st.SearchStrategy[SessionTurn]) -> st.SearchStrategy[tuple[RadixEvent, ...]]:
    """Two turns continue the first one of a session, each in its own way."""

    def of(first: SessionTurn, *more: SessionTurn) -> tuple[RadixEvent, ...]:
        begun = (replace(first, session=0, max_tokens=3, replaces=False), LiveTurns(times=8))
        continued = [replace(turn, session=0, after=1, eager=False) for turn in more]
        return (OpenSession(), *begun, *(event for turn in continued for event in (turn, LiveTurns(times=4))))

    return st.builds(of, turns, turns, turns)
