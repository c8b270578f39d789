"""Scenarios of a whole engine: what it is like, and what happens to its requests, one thing after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import chain
from typing import Any, Protocol, Self

from hypothesis import strategies as st

from oracle.profile import Profile
from statecheck.case.values import Record, record

LONGEST = 32
"""Tokens of a request, at most."""
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
        """A connector takes its time for loads and saves, and nothing else may run by then."""
        steps = sum((*self.load_steps, *self.save_steps, self.late_lookups))
        return 8 + 2 * steps if self.connector else 0

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
        """With the mode that the release has."""
        if profile.keeps_all_blocks:
            return self
        return replace(self, world=replace(self.world, mamba_cache_mode="align"))


@st.composite
def live_worlds(draw: st.DrawFn, runner: str) -> LiveWorld:
    """Engines of every feature, such that the release takes the configuration and a request of every length fits."""
    num_spec = draw(st.integers(0, 3))
    overlapped = draw(st.booleans())
    kinds = st.sampled_from(kinds_with(num_spec))
    # The first runner wants all recurrent groups to be alike.
    alike = st.builds(lambda kind, count: [kind] * count, kinds, st.integers(1, 2))
    # With steps that overlap a release takes no drafts but a model's.
    methods = st.just("eagle") if overlapped else st.sampled_from(("ngram", "eagle"))
    world = LiveWorld(
        kinds=tuple(draw(alike if runner == "V1" else st.lists(kinds, min_size=1, max_size=2))),
        layers=draw(st.integers(1, 2)),
        # A recurrent block has room for a step's drafts.
        block_size=draw(st.sampled_from((4, 8) if num_spec > 1 else (4, 2, 8))),
        num_spec=num_spec,
        method=draw(methods) if num_spec else "ngram",
        prefix_caching=draw(st.booleans()),
        async_scheduling=overlapped,
        padding=draw(st.integers(0, 1)),
        layout=draw(st.sampled_from(("SD", "DS"))),
        runner=runner,
        max_num_seqs=draw(st.integers(2, 4)),
    )
    if world.prefix_caching and runner == "V2":
        world = draw(with_finer_hits(world))
    # The second runner has no mode "all", nor have other layers. A scan ends where a block does.
    if runner == "V1" and set(world.kinds) <= {"mamba1", "mamba2"} and world.block_size >= _CHUNK:
        world = replace(world, mamba_cache_mode=draw(st.sampled_from(("align", "all"))))
    # A step takes in a recurrent block, and drafts of all requests.
    least = max(world.block_size, world.max_num_seqs * (1 + num_spec))
    tokens = max(draw(st.sampled_from((16, 8, 4))), least)
    blocks = world.blocks_of_one + draw(st.integers(0, 16))
    return replace(world, max_num_batched_tokens=tokens, num_blocks=blocks)


def kinds_with(num_spec: int) -> tuple[str, ...]:
    """The recurrent kinds whose builders know so many drafts."""
    return ("mamba2", "gdn") if num_spec else ("mamba2", "gdn", "mamba1", "short_conv")


def with_finer_hits(world: LiveWorld) -> st.SearchStrategy[LiveWorld]:
    """The engine with hits inside of blocks, states that a prefill saves on its way, and states that are not kept."""
    # Only these kinds save states on the way, and a model does so with all of its layers or with none.
    saves = set(world.kinds) <= {"mamba2", "gdn"}
    half = world.block_size // 2
    return st.builds(
        lambda unit, attention, checkpoints, shared, retention: replace(
            world,
            prefix_match_unit=unit,
            attention_block_size=attention,
            checkpoints=checkpoints,
            shared_prefix_checkpoint=shared,
            retention_interval=retention,
        ),
        st.sampled_from((0, half)),
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

    def of(world: LiveWorld) -> st.SearchStrategy[LiveStory]:
        return st.builds(
            lambda one, more: LiveStory(world, (one, *more)), _FIRST, _several_events(world.num_spec)
        )

    return live_worlds(runner).flatmap(of)


_FIRST = st.builds(LiveAdd, own=st.integers(1, 12), max_tokens=st.integers(1, 12))


@cache
def _several_events(num_spec: int) -> st.SearchStrategy[tuple[LiveEvent, ...]]:
    # Hypothesis looks through each strategy that it has not seen before. Lists of lists are longer than lists, and become as short.
    several = st.lists(live_events(num_spec), max_size=8)
    return st.lists(several, max_size=8).map(lambda parts: tuple(chain.from_iterable(parts)))
