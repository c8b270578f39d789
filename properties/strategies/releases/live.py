"""Scenarios of vLLM's engine: its configuration, and events of its requests.

`live_stories` draws any scenario, or one that leads to a situation by name and goes on from there; `connected_stories` does so for an
engine with a connector, which saves states outside of the cache and loads them later, and `offloaded_stories` for one with a connector of the
release for host memory; `staged_stories` divides the layers among stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import chain
from typing import Any, Self, TypeVar

from hypothesis import strategies as st

from properties.strategies.bounds import MANY_DRAFTS, MOST_DRAFTS, around, counts, crowded, seldom
from properties.strategies.releases.pairs import apart, paired_stories, paired_worlds
from statecheck.case.values import Record, record
from statecheck.subject.profile import Profile

LONGEST = 32
"""Tokens of a request, at most: four blocks of eight, so that a request hits, passes and leaves several, and ends soon."""
LONGEST_OF_WIDE = 64
"""The same four blocks where blocks have 16 tokens or a step has many drafts, which leave a request less room."""
FEW_DRAFTS = 3
"""With three drafts some of those that are accepted, and some that are not, are neither the first nor the last."""
FEW_REQUESTS = 4
"""Requests of a step: enough for rows that move, prompts beside decodes, and a request that waits for the others."""
MANY_REQUESTS = (8, 16)
"""Requests of a step. A vector of eight ends at the first, and at the second 16 rows times nine tokens no longer fit the largest full
graph of the engine, which has 64 tokens."""
BLOCKS = (4, 2, 8)
"""Tokens of a block: a chunk of a scan, half of it, and two."""
WIDE_BLOCKS = (8, 16)
"""Tokens of a block that takes several steps; in the field 1,600 to 7,168 tokens, against steps of 2,048."""
STEPS = (16, 8, 4)
"""Tokens of a step, at most: several blocks, a block, and half of one."""
SHORT_STEPS = (4, 7)
"""Tokens of a step in an engine with wide blocks: two or four steps to a block, and a number that no block is a multiple of."""
WINDOWS = (6, 2, 3, 4, 5, 9, 10, 16)
"""Tokens of a sliding window. A hit needs all of them but one: they fill a block, are a token short of it, a token more, or several blocks."""
SPARE_BLOCKS = 16
"""Blocks that an engine mostly has beyond those of one request: states of up to five requests more, or none of them."""
_CHUNK = 4
"""Tokens of a chunk of a recurrent layer's scan."""

T = TypeVar("T")


@dataclass(frozen=True)
class LiveAdd:
    """A request with `own` tokens behind the first `shared` of what request number `like` has by then.

    The token number `stop_after` that it says is its stop token; none is with 0. Of a `remote` prompt another request computes all but the last
    token, as on a server for prefills; `stop_after` has no effect there.
    """

    own: int = 1
    max_tokens: int = 1
    shared: int = 0
    like: int = 0
    stop_after: int = 0
    remote: bool = False


@dataclass(frozen=True)
class LiveAbort:
    """A client goes away: that of the request of this number among those that live."""

    number: int = 0


@dataclass(frozen=True)
class LiveReset:
    """The prefix cache is emptied, and that of a connector where it is `external`."""

    preempt: bool = False
    external: bool = False


@dataclass(frozen=True)
class LiveWeights:
    """The model gets other weights, and with `sleep` the engine loses its memory meanwhile."""

    sleep: bool = False


@dataclass(frozen=True)
class LiveSleep:
    """The engine sleeps at this level, and wakes: with 0 it only pauses, with 1 and 2 its caches are lost; `aborts` ends all requests before.

    `anew`: caches that were lost are initialised again, at other addresses.
    """

    level: int = 1
    aborts: bool = False
    anew: bool = False


@dataclass(frozen=True)
class LiveTurns:
    """So many steps. Of the drafts that each proposes so many are right, for one request after the other."""

    accepted: tuple[int, ...] = ()
    times: int = 1


@dataclass(frozen=True)
class LivePause:
    """The engine pauses and goes on at once: with its requests as they are, or with all that run sent back to the queue."""

    retract: bool = False


LiveEvent = LiveAdd | LiveAbort | LiveReset | LivePause | LiveWeights | LiveSleep | LiveTurns
ITEM = 10_000_000
"""Above all other tokens."""


def with_items(prompt: tuple[int, ...], items: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The prompt with an item, such as an image, at each of these places (its offset and its tokens); it ends before an item that it has no room for.

    Placeholder tokens name the item. Requests with the same first token have the same items, so that equal tokens are equal prefixes.
    """
    for offset, length in items:
        if len(prompt) > offset:
            if len(prompt) < offset + length:
                return prompt[:offset]
            item = (ITEM * (1 + offset) + prompt[0],) * length
            prompt = (*prompt[:offset], *item, *prompt[offset + length :])
    return prompt


@dataclass(frozen=True)
class LiveWorld:
    """An engine's settings; see the fields of the same name in an adapter's `LiveSettings`."""

    kinds: tuple[str, ...] = ("mamba2",)
    layers: int = 1
    block_size: int = 4
    num_blocks: int = 24
    max_model_len: int = LONGEST
    max_num_batched_tokens: int = 16
    max_num_seqs: int = 2
    num_spec: int = 0
    method: str = "ngram"
    prefix_caching: bool = True
    mamba_cache_mode: str = "align"
    async_scheduling: bool = False
    attention_block_size: int = 0
    prefix_match_unit: int = 0
    retention_interval: int = -1
    checkpoints: bool = False
    shared_prefix_checkpoint: bool = False
    padding: int = 0
    runner: str = "V2"
    connector: str = ""
    load_steps: tuple[int, ...] = (0,)
    save_steps: tuple[int, ...] = (0,)
    failing_loads: tuple[int, ...] = ()
    saves_at_end: bool = False
    late_lookups: int = 0
    host_blocks: int = 0
    kernels: bool = False
    replayssm_buffer_len: int = 0
    stages: int = 1
    late_stages: tuple[int, ...] = ()
    items: tuple[tuple[int, int], ...] = ()
    layout: str = "SD"
    sliding_window: int = 0
    priorities: tuple[int, ...] = ()
    dummy_batches: bool = False

    def settings_with(self, inside: str) -> Record:
        """As a call's argument what is not as usual, with the module whose functions stand inside of the engine, "" for none."""
        plain = LiveWorld()
        always = ("kinds", "num_blocks", "max_model_len", "max_num_seqs", "runner")
        changed = [
            setting.name
            for setting in fields(self)
            if setting.name not in ("layout", *always)
            and getattr(self, setting.name) != getattr(plain, setting.name)
        ]
        settings: dict[str, Any] = {name: getattr(self, name) for name in (*always, *changed)}
        return record("LiveSettings", **settings, **({"inside": inside} if inside else {}))

    @property
    def environment(self) -> dict[str, str]:
        return {} if self.layout == "SD" else {"VLLM_SSM_CONV_STATE_LAYOUT": self.layout}

    @property
    def late_steps(self) -> int:
        """More steps than may be in flight. A connector takes its time for loads and saves, and nothing else may run by then."""
        steps = sum((*self.load_steps, *self.save_steps, self.late_lookups))
        return 8 + 2 * steps * bool(self.connector)

    @property
    def room(self) -> int:
        """Tokens of a prompt and of what a request says, at most: near the end of the model's room a step has no room for drafts."""
        return self.max_model_len

    @property
    def blocks_of_a_request(self) -> int:
        """Blocks that the longest request needs, with the null block."""
        columns = -(-self.max_model_len // (self.attention_block_size or self.block_size))
        keeps_all = self.prefix_caching and self.mamba_cache_mode == "all"
        states = columns if keeps_all else 2 + self.checkpoints
        # Of sliding windows fewer, where those of steps in flight and of the window are.
        return 1 + columns * (1 + bool(self.sliding_window)) + len(self.kinds) * (states + self.num_spec)


@dataclass(frozen=True)
class LiveStory:
    """A scenario: an engine, and what happens in it."""

    world: LiveWorld
    events: tuple[LiveEvent, ...]

    def of_release(self, profile: Profile) -> Self:
        """With the mode that the release has, and steps as long as it wants them."""
        world = self.world
        if not profile.keeps_all_blocks:
            world = replace(world, mamba_cache_mode="align")
        if not profile.dummy_batches:
            world = replace(world, dummy_batches=False)
        if not profile.blocks_wider_than_steps and world.prefix_caching:
            world = replace(world, max_num_batched_tokens=max(world.block_size, world.max_num_batched_tokens))
        return replace(self, world=world)


@st.composite
def live_worlds(draw: st.DrawFn, runner: str) -> LiveWorld:
    """Engines of every feature, such that the release takes the configuration and a request of every length fits."""
    num_spec = draw(_DRAFTS)
    overlapped = draw(st.booleans())
    # The builders of other kinds know no drafts.
    kinds = st.sampled_from(("mamba2", "gdn") if num_spec else ("mamba2", "gdn", "mamba1", "short_conv"))
    # The V1 model runner wants all recurrent groups to be alike.
    alike = st.builds(lambda kind, count: [kind] * count, kinds, st.integers(1, 2))
    # With steps that overlap a release takes no drafts but a model's.
    methods = st.just("eagle") if overlapped else st.sampled_from(("ngram", "eagle"))
    wide = draw(_WIDE)
    # A recurrent block has room for a step's drafts.
    blocks = tuple(size for size in (WIDE_BLOCKS if wide else (*BLOCKS, 16)) if size > num_spec)
    block_size = draw(st.sampled_from(blocks[:3]))
    world = LiveWorld(
        kinds=tuple(draw(alike if runner == "V1" else st.lists(kinds, min_size=1, max_size=2))),
        layers=draw(st.integers(1, 2)),
        block_size=block_size,
        max_model_len=LONGEST_OF_WIDE if block_size > max(BLOCKS) or num_spec > FEW_DRAFTS else LONGEST,
        num_spec=num_spec,
        method=draw(methods) if num_spec else "ngram",
        prefix_caching=wide or draw(st.booleans()),
        async_scheduling=overlapped,
        padding=draw(st.integers(0, 1)),
        layout=draw(st.sampled_from(("SD", "DS"))),
        runner=runner,
        max_num_seqs=draw(_REQUESTS),
        items=draw(_ITEMS) if draw(seldom(4)) else (),
        priorities=draw(_PRIORITIES),
        dummy_batches=draw(seldom(3)),
    )
    if world.prefix_caching and runner == "V2":
        half = block_size // 2
        # In the field there are dozens of units in a block.
        units = (0, half, block_size // 4) if block_size > 2 * _CHUNK else (0, half)
        # Only these kinds save states on the way, and a model does so with all of its layers or with none.
        saves = set(world.kinds) <= {"mamba2", "gdn"}
        world = replace(
            world,
            prefix_match_unit=draw(st.sampled_from(units)),
            attention_block_size=draw(st.sampled_from((0, 0, half))),
            checkpoints=draw(st.booleans()) if saves else False,
            shared_prefix_checkpoint=draw(st.booleans()),
            retention_interval=draw(st.sampled_from((-1, 0))),
        )
    # The V2 model runner has no mode "all", nor have other layers. A scan ends where a block does.
    all_states = runner == "V1" and set(world.kinds) <= {"mamba1", "mamba2"} and block_size >= _CHUNK
    if all_states and not wide:
        world = replace(world, mamba_cache_mode=draw(st.sampled_from(("align", "all"))))
    row = 1 + num_spec
    if wide:
        # Steps are shorter than a block, and so few requests run that all of their drafts fit.
        rows = max(1, min(world.max_num_seqs, (block_size - 1) // row))
        tokens = max(draw(st.sampled_from(SHORT_STEPS)), rows * row)
        world = replace(world, max_num_seqs=rows, max_num_batched_tokens=tokens)
    else:
        # Steps take in a recurrent block, and drafts of all requests.
        tokens = max(draw(st.sampled_from(STEPS)), block_size, world.max_num_seqs * row)
        world = replace(world, max_num_batched_tokens=tokens)
    of_all = world.max_num_seqs * (world.blocks_of_a_request - 1)
    # Where there are many rows, they are to run at once.
    many = st.sampled_from((of_all, of_all // 2))
    spare = draw(many if world.max_num_seqs > FEW_REQUESTS else _spare_blocks(of_all))
    return replace(world, num_blocks=world.blocks_of_a_request + spare)


# One or two, as long as a block or two, such that one of them ends inside of most steps.
_ITEMS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 12)), min_size=1, max_size=2).map(
    lambda parts: tuple((sum(map(sum, parts[:at])) + gap, length) for at, (gap, length) in enumerate(parts))
)
_DRAFTS = counts(FEW_DRAFTS, MANY_DRAFTS, one_in=6)
# The first requests come first, the last ones, or some of each.
_PRIORITIES = st.sampled_from(((), (), (2, 1, 0), (0, 1)))
_WIDE = seldom(6)
_REQUESTS = counts(FEW_REQUESTS, MANY_REQUESTS, min_value=2)


# Strategies are cached because Hypothesis looks through each one that it has not seen before.
@cache
def _spare_blocks(of_all: int) -> st.SearchStrategy[int]:
    """Blocks beyond those of one request: so few that blocks run out first, or about `of_all`, so that rows do."""
    return counts(SPARE_BLOCKS, (of_all,), one_in=6)


def _adds(own: int, max_tokens: int, shared: tuple[int, int]) -> st.SearchStrategy[LiveAdd]:
    return st.builds(
        LiveAdd,
        own=st.integers(1, own),
        max_tokens=st.integers(1, max_tokens),
        shared=st.integers(*shared),
        like=st.integers(0, 3),
    )


FIRST = st.builds(LiveAdd, own=st.integers(1, 12), max_tokens=st.integers(1, 12))
"""The first request of a scenario."""


@cache
def live_events(num_spec: int) -> st.SearchStrategy[LiveEvent]:
    """Events that may come next."""
    adds = _adds(12, 12, (0, 20))
    accepted = st.lists(st.integers(0, num_spec), max_size=4).map(tuple)
    turns = st.builds(LiveTurns, accepted, st.integers(1, 4))
    aborts, resets = st.builds(LiveAbort, st.integers(0, 3)), st.builds(LiveReset, st.booleans())
    return st.one_of(turns, adds, turns, adds, aborts, resets)


@cache
def _blocks_events(num_spec: int) -> st.SearchStrategy[LiveEvent]:
    """As `live_events`, of an engine with blocks."""
    events = live_events(num_spec)
    sleeps = st.builds(LiveSleep, st.integers(0, 2), st.booleans(), st.booleans())
    return st.one_of(events, events, events, st.builds(LiveWeights, st.booleans()), sleeps)


@cache
def _connected_events(num_spec: int) -> st.SearchStrategy[LiveEvent]:
    """As `_blocks_events`, such that prefixes are forgotten and come again."""
    resets = st.builds(LiveReset, st.booleans(), st.booleans())
    return st.one_of(_blocks_events(num_spec), _adds(4, 6, (4, 20)), resets)


def several(events: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    """Lists of lists are longer than lists, and become as short."""
    return st.lists(st.lists(events, max_size=8), max_size=8).map(
        lambda parts: tuple(chain.from_iterable(parts))
    )


def _next_events(num_spec: int, connected: bool) -> st.SearchStrategy[LiveEvent]:
    return (_connected_events if connected else _blocks_events)(num_spec)


@cache
def _several_events(num_spec: int, connected: bool) -> st.SearchStrategy[tuple[LiveEvent, ...]]:
    return several(_next_events(num_spec, connected))


@cache
def _crowd(num_spec: int, rows: int) -> st.SearchStrategy[tuple[LiveEvent, ...]]:
    """About as many requests as a step has rows, a few steps, and drafts of all of them."""
    requests = st.builds(
        crowded, st.lists(_adds(6, 6, (0, 9)), min_size=1, max_size=3), st.sampled_from(around((rows,)))
    )
    accepted = st.integers(0, num_spec).map(lambda right: (right,) * rows)
    return st.builds(
        lambda adds, right, times: (*adds, LiveTurns(times=2), LiveTurns(right, times)),
        requests,
        accepted,
        st.integers(1, 4),
    )


def _any_events(world: LiveWorld) -> st.SearchStrategy[LiveStory]:
    """Scenarios of this engine, which begin with a request, or with about as many as a step has rows."""
    more = _several_events(world.num_spec, world.connector != "")
    if world.max_num_seqs <= FEW_REQUESTS:
        return st.builds(lambda first, then: LiveStory(world, (first, *then)), FIRST, more)
    crowd = _crowd(world.num_spec, world.max_num_seqs)
    return st.builds(lambda first, then, last: LiveStory(world, (first, *then, *last)), FIRST, crowd, more)


def _continued(
    situations: Mapping[str, LiveStory], runner: str, events: Callable[[int], st.SearchStrategy[LiveEvent]]
) -> st.SearchStrategy[LiveStory]:
    """Scenarios that lead to one of these situations, and go on from there."""

    def of(story: LiveStory) -> st.SearchStrategy[LiveStory]:
        world = replace(story.world, runner=runner)
        more = st.lists(events(world.num_spec), max_size=6).map(tuple)
        return st.builds(lambda then: LiveStory(world, story.events + then), more)

    return st.sampled_from(tuple(situations.values())).flatmap(of)


_STEP = LiveTurns()
_DRAFTED = LiveWorld(num_spec=1, num_blocks=40)
_WITH_MODEL = replace(_DRAFTED, method="eagle")
_OVERLAPPED = replace(_WITH_MODEL, async_scheduling=True)
_EVERY = LiveWorld(num_blocks=60, mamba_cache_mode="all")
_MOST_DRAFTED = LiveWorld(
    block_size=16,
    num_blocks=60,
    max_model_len=LONGEST_OF_WIDE,
    max_num_batched_tokens=2 * (1 + MOST_DRAFTS),
    num_spec=MOST_DRAFTS,
)

_TAKES_OVER = (
    LiveAdd(7, max_tokens=12),
    _STEP,
    LiveAdd(5, max_tokens=12),
    LiveTurns(times=3),
    LiveAdd(1, max_tokens=12),
    LiveTurns(times=3),
)
"""The last request has the highest priority, and takes the blocks of the first one."""
SITUATIONS: Mapping[str, LiveStory] = {
    "a hit of which the draft's block is dropped": LiveStory(
        replace(_WITH_MODEL, max_num_seqs=1),
        (LiveAdd(8), _STEP, _STEP, LiveAdd(1, shared=4)),
    ),
    "a prompt that gets what a step has left": LiveStory(
        replace(_WITH_MODEL, max_num_batched_tokens=8), (LiveAdd(13), LiveAdd(5))
    ),
    "a prompt of one token beside decodes with drafts": LiveStory(
        _DRAFTED, (LiveAdd(1, max_tokens=2), _STEP, LiveAdd(1, max_tokens=2))
    ),
    "a preempted request with a short rest beside decodes with drafts": LiveStory(
        _DRAFTED,
        (LiveAdd(1, max_tokens=9), LiveAdd(4, max_tokens=5), _STEP, _STEP, LiveReset(preempt=True)),
    ),
    "a request that comes back and computes in several steps what it has said": LiveStory(
        LiveWorld(max_num_batched_tokens=8),
        (LiveAdd(3, max_tokens=12), LiveAdd(5, max_tokens=12), LiveTurns(times=8), LiveReset(preempt=True)),
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
        replace(_DRAFTED, kinds=("gdn",), max_model_len=28),
        (LiveAdd(12, max_tokens=16), LiveTurns((1,), times=12)),
    ),
    "a hit in the row of a request that ended with accepted drafts": LiveStory(
        replace(_DRAFTED, max_num_seqs=1),
        (LiveAdd(9, max_tokens=3), _STEP, LiveTurns((1,)), LiveAdd(1, shared=9)),
    ),
    "steps in which nearly all of many drafts are accepted, across the ends of blocks": LiveStory(
        _MOST_DRAFTED, (LiveAdd(9, max_tokens=40), _STEP, LiveTurns((MOST_DRAFTS - 1,), times=4))
    ),
    "more requests in a step than a vector of eight has room for": LiveStory(
        LiveWorld(num_blocks=80, max_num_seqs=MANY_REQUESTS[-1]),
        (*(LiveAdd(1 + number % 3, max_tokens=4) for number in range(10)), LiveTurns(times=4)),
    ),
    "other weights while a request runs, and the same prompt again": LiveStory(
        LiveWorld(), (LiveAdd(9, max_tokens=6), LiveTurns(times=3), LiveWeights(), LiveAdd(1, shared=9))
    ),
    "an item for which the encoder has no room in the step": LiveStory(
        LiveWorld(max_num_batched_tokens=8, items=((2, 7), (9, 7))),
        (LiveAdd(18), _STEP, LiveAdd(1, shared=17)),
    ),
    "a sleep while a request runs, and the same prompt again": LiveStory(
        LiveWorld(), (LiveAdd(9, max_tokens=6), LiveTurns(times=3), LiveSleep(), LiveAdd(1, shared=9))
    ),
    "caches that are initialised again while requests run, whose states were copied before": LiveStory(
        replace(_OVERLAPPED, block_size=2),
        (LiveAdd(4, max_tokens=9), LiveTurns((1,), times=4), LiveSleep(anew=True), LiveTurns((1,), times=5)),
    ),
    "dummy batches in a pause, while requests keep their states": LiveStory(
        LiveWorld(dummy_batches=True, padding=1),
        (
            LiveAdd(5, max_tokens=8),
            LiveAdd(3, max_tokens=8),
            LiveTurns(times=3),
            LiveSleep(level=0),
            LiveTurns(times=2),
        ),
    ),
    "a request of higher priority, for which a running request gives up its blocks": LiveStory(
        LiveWorld(num_blocks=14, max_num_seqs=3, priorities=(2, 1, 0)),
        (
            LiveAdd(5, max_tokens=12),
            LiveTurns(times=2),
            LiveAdd(9, max_tokens=12),
            LiveTurns(times=2),
            LiveAdd(9, max_tokens=12),
        ),
    ),
    "a request of higher priority, for which a running request gives up its blocks behind its row": LiveStory(
        LiveWorld(num_blocks=11, max_num_seqs=3, priorities=(2, 1, 0)),
        _TAKES_OVER,
    ),
    "a request of higher priority, for which a running request gives up its blocks behind its row with a draft": LiveStory(
        LiveWorld(num_blocks=14, max_num_seqs=3, num_spec=1, priorities=(2, 1, 0)),
        _TAKES_OVER,
    ),
    "a pause while a step with drafts is in flight, which are rejected": LiveStory(
        _OVERLAPPED, (LiveAdd(2, max_tokens=6), _STEP, _STEP, LiveSleep(level=0))
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
"""Of engines that keep the state at every boundary, which are the V1 model runner's alone."""
FINER: Mapping[str, LiveStory] = {
    "a hit inside of a block, and a prompt that goes on past its end": LiveStory(
        LiveWorld(num_blocks=40, prefix_match_unit=2), (LiveAdd(3), _STEP, _STEP, LiveAdd(7, shared=2))
    ),
}
"""Of engines with hits inside of blocks, which are the V2 model runner's alone."""


def live_stories(runner: str) -> st.SearchStrategy[LiveStory]:
    """Scenarios of the engine with this model runner."""
    situations = {**SITUATIONS, **(FINER if runner == "V2" else EVERY_BOUNDARY)}
    return st.one_of(live_worlds(runner).flatmap(_any_events), _continued(situations, runner, _blocks_events))


_STEPS = LiveTurns(times=3)
_FORGETS = LiveReset()
_SAVED = (LiveAdd(9), _STEPS, _FORGETS)
"""A prompt of two blocks that is in the store alone."""
_AGAIN = LiveAdd(1, shared=9)
_LATE = LiveWorld(connector="async", load_steps=(2,))
_PROMPTS = LiveWorld(connector="async", prefix_caching=False)

CONNECTED: Mapping[str, LiveStory] = {
    "a load in the step that wants it": LiveStory(LiveWorld(connector="sync"), (*_SAVED, _AGAIN)),
    "a load in the step that wants it where few blocks are free": LiveStory(
        LiveWorld(connector="sync", num_blocks=12),
        (*_SAVED, LiveAdd(12, max_tokens=12), LiveTurns(times=6), _AGAIN),
    ),
    "a step without rows after drafts were accepted": LiveStory(
        replace(_PROMPTS, num_blocks=14, num_spec=2, method="eagle", async_scheduling=True),
        (
            LiveAdd(3, max_tokens=6),
            LiveAdd(1, max_tokens=4, shared=3),
            LiveTurns(times=2),
            LiveTurns((1,)),
            LiveTurns(times=3),
        ),
    ),
    "drafts that end a request while its next step is in flight": LiveStory(
        LiveWorld(connector="async", num_spec=2, method="eagle", async_scheduling=True),
        (LiveAdd(20, max_tokens=3), LiveTurns((2,), times=4)),
    ),
    "a load that takes steps": LiveStory(_LATE, (*_SAVED, _AGAIN)),
    "loads that are done in another order": LiveStory(
        replace(_LATE, load_steps=(3, 0)), (*_SAVED, _AGAIN, LiveTurns(), LiveAdd(2, shared=9))
    ),
    "a request that goes away while it is loaded": LiveStory(
        _LATE, (*_SAVED, _AGAIN, LiveTurns(), LiveAbort(), LiveAdd(12), LiveAdd(12))
    ),
    "a load that fails": LiveStory(replace(_LATE, failing_loads=(0,)), (*_SAVED, _AGAIN)),
    "a load that fails, while another request loads its first block": LiveStory(
        replace(_LATE, failing_loads=(0,)), (*_SAVED, _AGAIN, LiveAdd(1, shared=7, like=1))
    ),
    "a load that fails where few blocks are free": LiveStory(
        replace(_PROMPTS, num_blocks=12, failing_loads=(0,)),
        (LiveAdd(20), LiveTurns(times=4), LiveAdd(2, shared=20)),
    ),
    "a request that goes away while its step is in flight, and a load that wants its blocks": LiveStory(
        replace(_PROMPTS, num_blocks=12, async_scheduling=True),
        (LiveAdd(9), _STEPS, LiveAdd(26, max_tokens=4), _STEPS, LiveAbort(), _AGAIN),
    ),
    "a request that is gone before its blocks are saved": LiveStory(
        LiveWorld(connector="async", saves_at_end=True, save_steps=(3,)),
        (LiveAdd(9), LiveTurns(times=2), LiveAdd(12), LiveAdd(12, max_tokens=4), _STEPS, _FORGETS, _AGAIN),
    ),
    "a prompt that another instance computes": LiveStory(_PROMPTS, (LiveAdd(9), _STEPS, _AGAIN)),
}

FINER_CONNECTED: Mapping[str, LiveStory] = {
    "a state that a prefill saves on its way, and a chunk before the last": LiveStory(
        LiveWorld(
            connector="async",
            num_blocks=40,
            max_num_batched_tokens=8,
            num_spec=1,
            retention_interval=0,
            checkpoints=True,
        ),
        (LiveAdd(17), LiveTurns(times=2)),
    ),
    "a state that a prefill saves on its way, and another request hits": LiveStory(
        LiveWorld(connector="async", num_spec=1, method="eagle", async_scheduling=True, checkpoints=True),
        (LiveAdd(9, max_tokens=2), LiveAdd(1, max_tokens=1, shared=8)),
    ),
    # Blocks that are freed behind a step in flight are given up from the last group on.
    "a hit of one recurrent group that another one, which lost its state first, shortens": LiveStory(
        LiveWorld(
            kinds=("mamba2", "gdn"),
            num_blocks=16,
            max_num_batched_tokens=4,
            connector="async",
            async_scheduling=True,
        ),
        (
            LiveAdd(8, max_tokens=8),
            _STEPS,
            LiveAbort(),
            LiveTurns(times=2),
            LiveAdd(13),
            LiveTurns(times=5),
            LiveAdd(2, shared=8),
        ),
    ),
}
"""Of engines that are the V2 model runner's alone."""


def connected_stories(runner: str) -> st.SearchStrategy[LiveStory]:
    """Scenarios of the engine with this model runner and a connector."""

    def connected(world: LiveWorld, connector: str, loads: tuple[int, ...], saves: tuple[int, ...],
        failing: tuple[int, ...], at_end: bool, late: int) -> LiveWorld:  # fmt: skip
        loads, failing = (loads, failing) if connector == "async" else ((0,), ())
        return replace(
            world,
            connector=connector,
            load_steps=loads,
            save_steps=saves,
            failing_loads=failing,
            saves_at_end=at_end,
            late_lookups=late,
        )

    def of(world: LiveWorld) -> st.SearchStrategy[LiveStory]:
        more = st.lists(_connected_events(world.num_spec), max_size=20)
        return st.builds(lambda first, then: LiveStory(world, (first, *then)), FIRST, more)

    steps = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
    worlds = st.builds(
        connected,
        live_worlds(runner),
        st.sampled_from(("async", "async", "sync")),
        steps,
        steps,
        st.sets(st.integers(0, 2), max_size=1).map(tuple),
        st.booleans(),
        st.integers(0, 1),
    )
    situations = {**CONNECTED, **FINER_CONNECTED} if runner == "V2" else CONNECTED
    return st.one_of(worlds.flatmap(of), _continued(situations, runner, _connected_events))


_HOST = LiveWorld(connector="offloading", host_blocks=24)
_SAME = LiveAdd(0, shared=8)

OFFLOADED: Mapping[str, LiveStory] = {
    "a prompt of two blocks with a state at each, and the same prompt again": LiveStory(
        replace(_HOST, max_num_batched_tokens=4), (LiveAdd(8), _STEPS, _FORGETS, _SAME)
    ),
    "a table of a state and two drafts": LiveStory(
        replace(_HOST, num_spec=2), (LiveAdd(4, max_tokens=4), _STEPS, _FORGETS, LiveAdd(1, shared=4, max_tokens=4))
    ),
    "a table that is rewritten while drafts are accepted": LiveStory(
        replace(_HOST, num_spec=2),
        (LiveAdd(3, max_tokens=12), LiveTurns((2,), times=8), _FORGETS, LiveAdd(1, shared=14, max_tokens=4)),
    ),
    "a block that is given away in the step behind the end of its request": LiveStory(
        replace(_HOST, num_blocks=10, max_model_len=28), (LiveAdd(4), LiveAdd(13, max_tokens=8), LiveAdd(12), LiveTurns(times=6))
    ),
    "a hit behind which one token is left, beside drafts that fill up its block": LiveStory(
        replace(_HOST, num_spec=3, save_steps=(2,)),
        (LiveAdd(5), LiveTurns(times=6), LiveAdd(0, shared=5, max_tokens=8), LiveTurns((1,), times=4)),
    ),
    "a load that takes steps": LiveStory(
        replace(_HOST, load_steps=(2,)), (*_SAVED, _AGAIN, LiveTurns(), LiveAdd(2, max_tokens=4))
    ),
    "a request that goes away while it is loaded": LiveStory(
        replace(_HOST, load_steps=(2,)), (*_SAVED, _AGAIN, LiveTurns(), LiveAbort(), LiveAdd(12), LiveAdd(12))
    ),
    "a request that is gone before its blocks are saved": LiveStory(
        replace(_HOST, save_steps=(3,)),
        (LiveAdd(9), LiveTurns(times=2), LiveAdd(12), LiveAdd(12, max_tokens=4), _STEPS, _FORGETS, _AGAIN),
    ),
    "other weights, and a prompt that host memory has": LiveStory(_HOST, (*_SAVED, LiveWeights(), _AGAIN)),
    "more prompts than host memory has room for": LiveStory(
        replace(_HOST, host_blocks=4), (*_SAVED, LiveAdd(9), _STEPS, _FORGETS, LiveAdd(1, shared=9), _STEPS, _AGAIN)
    ),
}  # fmt: skip
"""Of engines that save blocks in host memory."""


def offloaded_stories(runner: str, *connectors: str) -> st.SearchStrategy[LiveStory]:
    """Scenarios of the engine with this model runner and one of these connectors of the release."""

    def offloaded(
        story: LiveStory, connector: str, host: int, loads: tuple[int, ...], saves: tuple[int, ...]
    ) -> LiveStory:
        world = replace(
            story.world,
            prefix_caching=True,
            host_blocks=story.world.host_blocks or host,
            load_steps=loads,
            save_steps=saves,
        )
        return with_connector(replace(story, world=world), connector)

    def of(world: LiveWorld) -> st.SearchStrategy[LiveStory]:
        more = st.lists(_connected_events(world.num_spec), max_size=20)
        return st.builds(lambda first, then: LiveStory(world, (first, *then)), FIRST, more)

    # Room for a few blocks, so that blocks are given up, or for all of a scenario.
    hosts = st.sampled_from((24, 4, 64))
    steps = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
    stories = live_worlds(runner).flatmap(of)
    named = st.sampled_from(connectors)
    drawn = st.builds(offloaded, stories, named, hosts, steps, steps)
    situations = _continued(OFFLOADED, runner, _connected_events)
    return st.one_of(drawn, st.builds(with_connector, situations, named))


_SERVED = LiveWorld(kinds=("gdn",), connector="nixl", prefix_caching=False, layout="DS", num_blocks=60)
_REMOTE = LiveAdd(9, max_tokens=4, remote=True)
SERVED: Mapping[str, LiveStory] = {
    "a prompt that another request computes": LiveStory(_SERVED, (_REMOTE,)),
    "a prompt whose blocks are hit, and whose state is not": LiveStory(
        replace(_SERVED, prefix_caching=True), (_REMOTE, LiveTurns(times=6), LiveAdd(2, max_tokens=4, shared=9, remote=True))
    ),
    "a prompt that ends with a block, beside drafts": LiveStory(
        replace(_SERVED, prefix_caching=True, num_spec=2), (LiveAdd(8, max_tokens=6, remote=True), LiveTurns((0, 1), times=6))
    ),
    "a prompt of one token more than a block, in pieces": LiveStory(
        replace(_SERVED, prefix_caching=True, max_num_batched_tokens=4, load_steps=(2,)), (LiveAdd(9, remote=True), LiveAdd(5))
    ),
    "a request that goes away before it has loaded its prompt": LiveStory(
        replace(_SERVED, load_steps=(3,)), (_REMOTE, LiveTurns(times=3), LiveAbort(), LiveAdd(12), LiveAdd(12))
    ),
}  # fmt: skip
"""Of engines whose requests load the prompts that other requests have computed."""
_MOST_REMOTE = 4
"""Prompts of a scenario that other requests compute. Their blocks are kept until they are loaded, beside those of the engine."""
_REMOTES = st.lists(st.booleans(), min_size=2, max_size=2 * _MOST_REMOTE)
"""Of one request after the other, whether its prompt is remote."""


def served_stories(runner: str) -> st.SearchStrategy[LiveStory]:
    """Scenarios of the engine with this model runner, in which requests load the prompts that other requests have computed."""

    def served(story: LiveStory, remote: list[bool], loads: tuple[int, ...]) -> LiveStory:
        # The release refuses layers without a temporal state.
        kinds = tuple("mamba2" if kind == "short_conv" else kind for kind in story.world.kinds)
        world = replace(story.world, kinds=kinds, layout="DS", load_steps=loads)
        return with_remote_prompts(with_connector(replace(story, world=world), "nixl"), remote)

    def of(world: LiveWorld) -> st.SearchStrategy[LiveStory]:
        more = st.lists(_connected_events(world.num_spec), max_size=20)
        return st.builds(lambda first, then: LiveStory(world, (first, *then)), FIRST, more)

    stories = st.one_of(live_worlds(runner).flatmap(of), _continued(SERVED, runner, _connected_events))
    steps = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
    return st.builds(served, stories, _REMOTES, steps)


def with_remote_prompts(story: LiveStory, remote: Sequence[bool]) -> LiveStory:
    """The scenario where one request after the other is `remote`, as long as there are at most some."""
    chosen, events, left = iter(remote), list[LiveEvent](), _MOST_REMOTE
    for event in story.events:
        if isinstance(event, LiveAdd):
            wanted = event.remote or next(chosen, False)
            left -= wanted
            events.append(replace(event, remote=wanted and left >= 0))
        else:
            events.append(event)
    kept = (_MOST_REMOTE - max(0, left)) * (story.world.blocks_of_a_request - 1)
    return LiveStory(replace(story.world, num_blocks=story.world.num_blocks + kept), tuple(events))


def with_connector(story: LiveStory, connector: str) -> LiveStory:
    """The scenario with this connector of the release. Prompts are remote beside NIXL alone.

    Beside Mooncake's store a release does not sleep: the engine only pauses instead, and gets other weights while it is awake. Beside NIXL it does neither: a pause waits until
    kept blocks are loaded, by a request that another engine would run meanwhile.
    """
    events = story.events
    if connector == "nixl":
        events = tuple(event for event in events if not isinstance(event, LiveSleep | LiveWeights))
    if connector == "mooncake":
        awake: dict[type, dict[str, Any]] = {LiveSleep: {"level": 0}, LiveWeights: {"sleep": False}}
        events = tuple(replace(event, **awake.get(type(event), {})) for event in events)
    if connector != "nixl":
        events = tuple(
            replace(event, remote=False) if isinstance(event, LiveAdd) else event for event in events
        )
    return LiveStory(replace(story.world, connector=connector), events)


_BESIDE = (LiveAdd(5, max_tokens=8), LiveTurns(times=2), LiveAdd(11, max_tokens=4))
KERNELS: Mapping[str, LiveStory] = {
    "a prompt of two programs of a convolution beside a decode": LiveStory(LiveWorld(num_blocks=40), _BESIDE),
    "the same with drafts, some of which are accepted": LiveStory(
        replace(_DRAFTED, num_spec=2, max_num_batched_tokens=20), (*_BESIDE, LiveTurns((1, 2), times=4))
    ),
    "two prompts in pieces, and blocks that another request has left": LiveStory(
        LiveWorld(num_blocks=20, max_num_batched_tokens=8, prefix_caching=False),
        (LiveAdd(9), LiveTurns(times=4), LiveAdd(13), LiveAdd(9), LiveTurns(times=8), LiveAdd(3), LiveAdd(3)),
    ),
}
"""Batches for kernels, in as few steps as possible: each launch takes long."""


def kernel_stories() -> st.SearchStrategy[LiveStory]:
    """Scenarios of an engine of either model runner with one recurrent layer, which the release's own kernels compute."""

    def of_kernels(story: LiveStory) -> st.SearchStrategy[LiveStory]:
        # Mamba-1 knows no drafts.
        others = (*(() if story.world.num_spec else ("mamba1",)), "short_conv", "kda", "mamba2")
        # The first is the simplest, which is drawn in a third of all examples.
        kinds = ("gdn", *others, *others)
        world = replace(
            story.world,
            kernels=True,
            layers=1,
            mamba_cache_mode="align",
            checkpoints=False,
            dummy_batches=False,
        )
        return st.builds(
            lambda kind: replace(story, world=replace(world, kinds=(kind,))), st.sampled_from(kinds)
        )

    stories = (
        strategy
        for runner in ("V2", "V1")
        for strategy in (_continued(KERNELS, runner, live_events), live_stories(runner))
    )
    return st.one_of(*stories).flatmap(of_kernels)


_REPLAYED = LiveWorld(num_blocks=40, block_size=8, replayssm_buffer_len=3)
REPLAYED: Mapping[str, LiveStory] = {
    "decodes that pass the end of a ring, and that of a block": LiveStory(
        _REPLAYED, (LiveAdd(5, max_tokens=14),)
    ),
    "a hit of a state that decodes have left": LiveStory(
        _REPLAYED, (LiveAdd(5, max_tokens=8), LiveTurns(times=9), LiveAdd(1, shared=11, max_tokens=6))
    ),
    "a request that begins again in the middle of a ring": LiveStory(
        _REPLAYED, (LiveAdd(5, max_tokens=12), LiveTurns(times=3), LiveReset(preempt=True))
    ),
    "a decode that a step has no room for": LiveStory(
        replace(_REPLAYED, block_size=4, max_num_batched_tokens=8, max_num_seqs=3),
        (LiveAdd(4, max_tokens=3), LiveAdd(24), LiveAdd(1, max_tokens=6)),
    ),
}
"""What rings of decodes' inputs are for."""


def replayed_stories() -> st.SearchStrategy[LiveStory]:
    """As `kernel_stories`, of Mamba-2 with a ring of the inputs of decodes (ReplaySSM), which the V1 model runner has without drafts."""

    def of_ring(story: LiveStory, ring: int) -> LiveStory:
        world = replace(
            story.world,
            kernels=True,
            kinds=("mamba2",),
            layers=1,
            mamba_cache_mode="align",
            dummy_batches=False,
            num_spec=0,
            method="ngram",
            replayssm_buffer_len=ring,
        )
        return replace(story, world=world)

    stories = st.one_of(_continued(REPLAYED, "V1", live_events), live_stories("V1"))
    # A ring that each decode fills, some that end inside of a block, and the release's own, which no request here fills in a block.
    return st.builds(of_ring, stories, st.sampled_from((3, 1, 2, 5, 16)))


def staged_stories() -> st.SearchStrategy[LiveStory]:
    """Scenarios of the V2 model runner in pipeline stages, each of which comes to its batches some batches late."""

    def staged(story: LiveStory, stages: int, late: tuple[int, ...]) -> LiveStory:
        world = replace(story.world, stages=stages, late_stages=late[:stages], dummy_batches=False)
        if world.num_spec:
            # With stages the scheduler hands out no drafts that it knows.
            world = replace(world, async_scheduling=True, method="eagle")
        return replace(story, world=world)

    late = st.lists(st.integers(0, 3), max_size=3).map(tuple)
    return st.builds(staged, live_stories("V2"), st.integers(2, 3), late)


_KEEPS_FEW = LiveWorld(num_blocks=60, sliding_window=6, retention_interval=0)
SLIDING: Mapping[str, LiveStory] = {
    "a hit whose window begins with the last token of a block": LiveStory(
        _KEEPS_FEW, (LiveAdd(9), _STEPS, _AGAIN)
    ),
    "a hit of the boundary before the end of a prompt in chunks": LiveStory(
        replace(_KEEPS_FEW, max_num_batched_tokens=4), (LiveAdd(16), LiveTurns(times=5), LiveAdd(1, shared=16))
    ),
    "a hit behind which the first blocks of a window were given up": LiveStory(
        replace(_KEEPS_FEW, retention_interval=-1, num_blocks=30),
        (LiveAdd(9, max_tokens=12), LiveTurns(times=12), LiveAdd(12), _STEPS, LiveAdd(1, shared=13)),
    ),
}  # fmt: skip
"""Of engines with layers of sliding-window attention. With a retention interval of 0 a prompt leaves the blocks of one window alone."""


def sliding_stories(runner: str) -> st.SearchStrategy[LiveStory]:
    """Scenarios of the engine with this model runner and a group of sliding-window attention beside the recurrent ones."""

    def sliding(story: LiveStory, window: int, interval: int) -> LiveStory:
        world = replace(story.world, sliding_window=window)
        if world.prefix_caching and world.mamba_cache_mode == "align":
            world = replace(world, retention_interval=interval)
        more = world.blocks_of_a_request - story.world.blocks_of_a_request
        return replace(story, world=replace(world, num_blocks=world.num_blocks + more))

    drawn = st.builds(sliding, live_stories(runner), st.sampled_from(WINDOWS), st.sampled_from((-1, 0)))
    return st.one_of(drawn, _continued(SLIDING, runner, _blocks_events))


_SOME_DRAFTS = (
    ("eagle", 1),
    ("ngram", FEW_DRAFTS),
    ("eagle", FEW_DRAFTS),
    ("ngram", MANY_DRAFTS[0]),
    ("eagle", MOST_DRAFTS),
)
_STORES = ("offloading", "simple", "simple-lazy", "mooncake")
_RELEASED = ("offloading", "nixl", *_STORES[1:])
_PART = "part of a block"
# By field of the engine, or as `_combined` reads it, the values that are combined by pairs.
_FEATURES: dict[str, tuple[Any, ...]] = {
    "kinds": (("mamba2",), ("gdn",), ("mamba2", "gdn"), ("gdn", "gdn"), ("mamba1",), ("short_conv",)),
    "drafts": (("ngram", 0), *_SOME_DRAFTS),
    "async_scheduling": (False, True),
    "prefix_caching": (True, False),
    "connector": ("", "async", "sync", *_RELEASED),
    "late_stages": ((), (0, 2), (2, 0, 1)),
    # A block has so many units of hits.
    "units": (1, 2, 4),
    # A recurrent block has so many of attention.
    "pages": (1, 2),
    "checkpoints": (False, True),
    "shared_prefix_checkpoint": (False, True),
    # In blocks.
    "retention_interval": (-1, 0, 2),
    "sliding_window": (0, WINDOWS[0]),
    "block_size": (4, 2, 8, 16),
    "steps": ("several blocks", "a block", _PART),
    "max_num_seqs": (2, 4, *MANY_REQUESTS),
    "spare": ("some", "none", "many"),
    "items": ((), ((2, 7), (10, 7))),
    "priorities": ((), (2, 1, 0)),
    "dummy_batches": (False, True),
    "layers": (1, 2),
    "padding": (0, 1),
    "layout": ("SD", "DS"),
    "load_steps": ((0,), (2,), (3, 0)),
    "save_steps": ((0,), (3,)),
    "failing_loads": ((), (0,)),
    "saves_at_end": (False, True),
    "late_lookups": (0, 1),
    "host_blocks": (0, 24, 4),
}
_EXCLUDED = (
    # The builders of other kinds know no drafts, and their layers save no state on the way.
    *apart("kinds", ("mamba1",), ("short_conv",), drafts=_SOME_DRAFTS, checkpoints=(True,)),
    # With steps that overlap a release takes no drafts but a model's.
    *apart("async_scheduling", True, drafts=[drafts for drafts in _SOME_DRAFTS if drafts[0] == "ngram"]),
    # In stages the scheduler hands out no drafts that it knows, and the adapter has no connector.
    *apart("late_stages", (0, 2), (2, 0, 1), async_scheduling=(False,), connector=("async", "sync", *_RELEASED)),
    *apart("late_stages", (0, 2), (2, 0, 1), dummy_batches=(True,)),
    # The adapter has sliding windows in one stage, without a connector.
    *apart("sliding_window", WINDOWS[0], late_stages=((0, 2), (2, 0, 1)), connector=("async", "sync", *_RELEASED)),
    # Of prefix caching. The release's connectors are not tried without it.
    *apart("prefix_caching", False, units=(2, 4), checkpoints=(True,), shared_prefix_checkpoint=(True,)),
    *apart("prefix_caching", False, retention_interval=(0, 2), connector=_STORES, steps=(_PART,)),
    # A recurrent block has room for a step's drafts, and its smallest unit has two tokens where there are four of them.
    *apart("block_size", 2, 4, 8, drafts=(("eagle", MOST_DRAFTS),)),
    *apart("block_size", 2, 4, drafts=(("ngram", MANY_DRAFTS[0]),), units=(4,), steps=(_PART,)),
    *apart("block_size", 2, drafts=(("ngram", FEW_DRAFTS), ("eagle", FEW_DRAFTS))),
    # All drafts of few requests fit into a part of a block.
    *apart("steps", _PART, max_num_seqs=MANY_REQUESTS),
    # Without a connector nothing is loaded and saved. Only an asynchronous load is late, or fails.
    *apart("connector", "", load_steps=((2,), (3, 0)), save_steps=((3,),), failing_loads=((0,),)),
    *apart("connector", "", *_RELEASED, saves_at_end=(True,), late_lookups=(1,)),
    *apart("connector", "sync", load_steps=((2,), (3, 0))),
    *apart("connector", "sync", *_RELEASED, failing_loads=((0,),)),
    *apart("connector", "", "async", "sync", "nixl", host_blocks=(24, 4)),
    *apart("connector", *_STORES, host_blocks=(0,)),
    # NIXL saves nothing. It refuses convolutions in layout SD, and layers without temporal states.
    *apart("connector", "nixl", save_steps=((3,),), layout=("SD",), kinds=(("short_conv",),)),
)  # fmt: skip


def _combined(row: Mapping[str, Any]) -> LiveWorld:
    """The engine with these features, and with room for the longest request."""
    (method, num_spec), size = row["drafts"], row["block_size"]
    plain = [name for name in row if name not in ("drafts", "units", "pages", "steps", "spare")]
    world = replace(
        LiveWorld(**{name: row[name] for name in plain}),
        num_spec=num_spec,
        method=method,
        stages=max(1, len(row["late_stages"])),
        prefix_match_unit=size // row["units"] if row["units"] > 1 else 0,
        attention_block_size=size // row["pages"] if row["pages"] > 1 else 0,
        retention_interval=size * row["retention_interval"]
        if row["retention_interval"] > 0
        else row["retention_interval"],
        max_model_len=LONGEST_OF_WIDE if size > max(BLOCKS) or num_spec > FEW_DRAFTS else LONGEST,
    )
    of_a_row = 1 + num_spec
    if row["steps"] == _PART:
        rows = max(1, min(world.max_num_seqs, (size - 1) // of_a_row))
        world = replace(world, max_num_seqs=rows, max_num_batched_tokens=max(SHORT_STEPS[0], rows * of_a_row))
    else:
        least = STEPS[0] if row["steps"] == "several blocks" else size
        world = replace(world, max_num_batched_tokens=max(least, size, world.max_num_seqs * of_a_row))
    of_all = world.max_num_seqs * (world.blocks_of_a_request - 1)
    spare = {"none": 0, "some": SPARE_BLOCKS // 2, "many": of_all}[row["spare"]]
    # Full graphs want a block of states for each row.
    return replace(world, num_blocks=max(world.blocks_of_a_request + spare, 1 + world.max_num_seqs))


def _of_runner(runner: str) -> dict[str, tuple[Any, ...]]:
    """The features of engines with this model runner. The V1 model runner wants all recurrent groups to be alike, and the adapter has no stages of it."""
    if runner == "V2":
        return _FEATURES
    alike = tuple(kinds for kinds in _FEATURES["kinds"] if len(set(kinds)) == 1)
    return _FEATURES | {"kinds": alike, "late_stages": ((),)}


PAIRED = {
    runner: tuple(
        replace(world, runner=runner) for world in paired_worlds(_of_runner(runner), _EXCLUDED, _combined)
    )
    for runner in ("V1", "V2")
}
"""By model runner, engines in which any two values of two features stand together, as far as the release and the adapter take both."""


def paired_live_stories(runner: str) -> st.SearchStrategy[LiveStory]:
    """Scenarios of one of the engines that combine features by pairs, drawn event by event or led to a situation."""
    situations = (SITUATIONS, FINER, CONNECTED, FINER_CONNECTED, OFFLOADED, SERVED)
    named = chain.from_iterable(found.values() for found in situations)
    begun = st.sampled_from(tuple(dict.fromkeys(story.events for story in named)))

    def of(world: LiveWorld) -> st.SearchStrategy[LiveStory]:
        more = st.lists(_next_events(world.num_spec, world.connector != ""), max_size=6).map(tuple)
        continued = st.builds(lambda events, then: LiveStory(world, events + then), begun, more)
        stories = st.one_of(_any_events(world), continued)
        connected = stories.map(lambda story: with_connector(story, world.connector))
        return st.builds(
            with_remote_prompts, connected, _REMOTES if world.connector == "nixl" else st.just(())
        )

    return paired_stories(PAIRED[runner], of)
