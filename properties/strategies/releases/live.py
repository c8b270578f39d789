"""Scenarios of a whole engine: what it is like, and what happens to its requests, one thing after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import chain
from typing import Any, Protocol, Self

from hypothesis import strategies as st

from oracle.profile import Profile
from properties.strategies.bounds import MANY_DRAFTS, around, counts, crowded, seldom
from statecheck.case.values import Record, record

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
SPARE_BLOCKS = 16
"""Blocks that an engine mostly has beyond those of one request: states of up to five requests more, or none of them."""
_CHUNK = 4
"""Tokens of a chunk of a recurrent layer's scan."""


@dataclass(frozen=True)
class LiveAdd:
    """A request with `own` tokens behind the first `shared` of what request number `like` has by then."""

    own: int = 1
    max_tokens: int = 1
    shared: int = 0
    like: int = 0


@dataclass(frozen=True)
class LiveAbort:
    """A client goes away: that of the request of this number among those that live."""

    number: int = 0


@dataclass(frozen=True)
class LiveReset:
    """The prefix cache is emptied."""

    preempt: bool = False


@dataclass(frozen=True)
class LiveTurns:
    """So many steps. Of the drafts that each proposes so many are right, for one request after the other."""

    accepted: tuple[int, ...] = ()
    times: int = 1


@dataclass(frozen=True)
class LivePause:
    """The engine pauses and goes on at once: with its requests as they are, or with all that run sent back to the queue."""

    retract: bool = False


LiveEvent = LiveAdd | LiveAbort | LiveReset | LivePause | LiveTurns


class EngineWorld(Protocol):
    """What an engine is like, as far as a scenario depends on it."""

    @property
    def num_spec(self) -> int:
        """Drafts of a step, at most."""

    @property
    def late_steps(self) -> int:
        """Steps in which nothing may run, for each request, while something is carried."""

    @property
    def max_model_len(self) -> int:
        """Tokens of a request, at most."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables that it is made with."""

    def settings_with(self, inside: str) -> Record:
        """Its settings, with this module's functions inside, "" for none."""


class EngineStory(Protocol):
    """A scenario of an engine."""

    @property
    def world(self) -> EngineWorld:
        """The engine."""

    @property
    def events(self) -> Sequence[object]:
        """What happens in it; a kind of scenario may have events of its own."""


@dataclass(frozen=True)
class LiveWorld:
    """What an engine is like; see the fields of the same name in an adapter's `LiveSettings`."""

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
    stages: int = 1
    late_stages: tuple[int, ...] = ()
    layout: str = "SD"

    @property
    def settings(self) -> Record:
        """As a call's argument: what is not as usual."""
        plain = LiveWorld()
        changed: dict[str, Any] = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name != "layout" and getattr(self, one.name) != getattr(plain, one.name)
        }
        kept = {
            name: getattr(self, name)
            for name in ("kinds", "num_blocks", "max_model_len", "max_num_seqs", "runner")
        }
        return record("LiveSettings", **(kept | changed))

    def settings_with(self, inside: str) -> Record:
        """The settings of the engine with this module's functions inside, "" for none."""
        settings = self.settings
        return replace(settings, fields=(*settings.fields, ("inside", inside))) if inside else settings

    @property
    def environment(self) -> dict[str, str]:
        return {} if self.layout == "SD" else {"VLLM_SSM_CONV_STATE_LAYOUT": self.layout}

    @property
    def late_steps(self) -> int:
        """More steps than may be in flight. A connector takes its time for loads and saves, and nothing else may run by then."""
        steps = sum((*self.load_steps, *self.save_steps, self.late_lookups))
        return 8 + 2 * steps * bool(self.connector)

    @property
    def blocks_of_one(self) -> int:
        """That the longest request needs, with the null block."""
        columns = -(-self.max_model_len // (self.attention_block_size or self.block_size))
        states = columns if self.caches_all_states else 2 + self.checkpoints
        return 1 + columns + len(self.kinds) * (states + self.num_spec)

    @property
    def caches_all_states(self) -> bool:
        return self.prefix_caching and self.mamba_cache_mode == "all"


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
        if not profile.blocks_wider_than_steps and world.prefix_caching:
            world = replace(world, max_num_batched_tokens=max(world.block_size, world.max_num_batched_tokens))
        return replace(self, world=world)


@st.composite
def live_worlds(draw: st.DrawFn, runner: str) -> LiveWorld:
    """Engines of every feature, such that the release takes the configuration and a request of every length fits."""
    num_spec = draw(_DRAFTS)
    overlapped = draw(st.booleans())
    kinds = st.sampled_from(kinds_with(num_spec))
    # The first runner wants all recurrent groups to be alike.
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
    )
    if world.prefix_caching and runner == "V2":
        world = draw(with_finer_hits(world))
    # The second runner has no mode "all", nor have other layers. A scan ends where a block does.
    all_states = runner == "V1" and set(world.kinds) <= {"mamba1", "mamba2"} and world.block_size >= _CHUNK
    if all_states and not wide:
        world = replace(world, mamba_cache_mode=draw(st.sampled_from(("align", "all"))))
    world = draw(_with_short_steps(world)) if wide else draw(_with_steps(world))
    of_all = world.max_num_seqs * (world.blocks_of_one - 1)
    # Where there are many rows, they are to run at once.
    many = st.sampled_from((of_all, of_all // 2))
    spare = draw(many if world.max_num_seqs > FEW_REQUESTS else _spare_blocks(of_all))
    return replace(world, num_blocks=world.blocks_of_one + spare)


_DRAFTS = counts(FEW_DRAFTS, MANY_DRAFTS, one_in=6)
_WIDE = seldom(6)
_REQUESTS = counts(FEW_REQUESTS, MANY_REQUESTS, min_value=2)


def _with_steps(world: LiveWorld) -> st.SearchStrategy[LiveWorld]:
    """The engine with steps that take in a recurrent block, and drafts of all requests."""
    least = max(world.block_size, world.max_num_seqs * (1 + world.num_spec))
    tokens = st.sampled_from(STEPS).map(lambda drawn: max(drawn, least))
    return tokens.map(lambda drawn: replace(world, max_num_batched_tokens=drawn))


def _with_short_steps(world: LiveWorld) -> st.SearchStrategy[LiveWorld]:
    """The engine with steps that are shorter than a block, and so few requests that all of their drafts fit."""
    row = 1 + world.num_spec
    rows = max(1, min(world.max_num_seqs, (world.block_size - 1) // row))
    return st.sampled_from(SHORT_STEPS).map(
        lambda tokens: replace(world, max_num_seqs=rows, max_num_batched_tokens=max(tokens, rows * row))
    )


@cache
def _spare_blocks(of_all: int) -> st.SearchStrategy[int]:
    """Blocks beyond those of one request: so few that blocks run out first, or about `of_all`, so that rows do."""
    return counts(SPARE_BLOCKS, (of_all,), one_in=6)


def kinds_with(num_spec: int) -> tuple[str, ...]:
    """The recurrent kinds whose builders know so many drafts."""
    return ("mamba2", "gdn") if num_spec else ("mamba2", "gdn", "mamba1", "short_conv")


def with_finer_hits(world: LiveWorld) -> st.SearchStrategy[LiveWorld]:
    """The engine with hits inside of blocks, states that a prefill saves on its way, and states that are not kept."""
    # Only these kinds save states on the way, and a model does so with all of its layers or with none.
    saves = set(world.kinds) <= {"mamba2", "gdn"}
    half = world.block_size // 2
    # In the field there are dozens of units in a block.
    units = (0, half, world.block_size // 4) if world.block_size > 2 * _CHUNK else (0, half)
    return st.builds(
        lambda unit, attention, checkpoints, shared, retention: replace(
            world,
            prefix_match_unit=unit,
            attention_block_size=attention,
            checkpoints=checkpoints,
            shared_prefix_checkpoint=shared,
            retention_interval=retention,
        ),
        st.sampled_from(units),
        st.sampled_from((0, 0, half)),
        st.booleans() if saves else st.just(False),
        st.booleans(),
        st.sampled_from((-1, 0)),
    )


@cache
def live_events(num_spec: int) -> st.SearchStrategy[LiveEvent]:
    """What may happen next."""
    adds = st.builds(
        LiveAdd,
        own=st.integers(1, 12),
        max_tokens=st.integers(1, 12),
        shared=st.integers(0, 20),
        like=st.integers(0, 3),
    )
    accepted = st.lists(st.integers(0, num_spec), max_size=4).map(tuple)
    turns = st.builds(LiveTurns, accepted, st.integers(1, 4))
    aborts, resets = st.builds(LiveAbort, st.integers(0, 3)), st.builds(LiveReset, st.booleans())
    return st.one_of(turns, adds, turns, adds, aborts, resets)


def live_stories(runner: str) -> st.SearchStrategy[LiveStory]:
    """Scenarios of the engine with this model runner."""
    return live_worlds(runner).flatmap(events_in)


def events_in(world: LiveWorld) -> st.SearchStrategy[LiveStory]:
    """Scenarios of this engine, which begin with a request, or with about as many as a step has rows."""
    more = _several_events(world.num_spec)
    if world.max_num_seqs <= FEW_REQUESTS:
        return st.builds(lambda one, then: LiveStory(world, (one, *then)), _FIRST, more)
    crowd = _crowd(world.num_spec, world.max_num_seqs)
    return st.builds(lambda one, then, last: LiveStory(world, (one, *then, *last)), _FIRST, crowd, more)


@cache
def _crowd(num_spec: int, rows: int) -> st.SearchStrategy[tuple[LiveEvent, ...]]:
    """About as many requests as a step has rows, a few steps, and drafts of all of them."""
    adds = st.builds(
        LiveAdd,
        own=st.integers(1, 6),
        max_tokens=st.integers(1, 6),
        shared=st.integers(0, 9),
        like=st.integers(0, 3),
    )
    several = st.builds(crowded, st.lists(adds, min_size=1, max_size=3), st.sampled_from(around((rows,))))
    accepted = st.integers(0, num_spec).map(lambda right: (right,) * rows)
    return st.builds(
        lambda requests, right, times: (*requests, LiveTurns(times=2), LiveTurns(right, times)),
        several,
        accepted,
        st.integers(1, 4),
    )


_FIRST = st.builds(LiveAdd, own=st.integers(1, 12), max_tokens=st.integers(1, 12))


@cache
def _several_events(num_spec: int) -> st.SearchStrategy[tuple[LiveEvent, ...]]:
    # Hypothesis looks through each strategy that it has not seen before. Lists of lists are longer than lists, and become as short.
    several = st.lists(live_events(num_spec), max_size=8)
    return st.lists(several, max_size=8).map(lambda parts: tuple(chain.from_iterable(parts)))
