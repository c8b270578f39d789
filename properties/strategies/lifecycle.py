"""Engines to send requests through, and what a step does with each of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from oracle.types import cdiv
from properties.engine.scenarios import Turn
from properties.engine.world import World
from properties.strategies.align.setup import Group, Kept, Setup
from properties.strategies.orders import schedules

DTYPES = ("uint8", "bfloat16", "float32", "float8_e4m3fn")
KINDS = (("conv", "temporal"), ("temporal",), ("conv",), ("conv", "conv", "conv", "temporal"))
LENGTHS = (24, 16, 40)
"""Tokens of a request at most: two to ten blocks, which a scenario of thirty steps can fill."""
FEW_SEQS, MANY_SEQS = 4, (9, 16)
"""Requests that run together, mostly at most and now and then: nine are one more than a vector of eight, and 16 two such vectors."""


# Strategies are made once for each of the few numbers that they depend on: making them takes longer than drawing.


@cache
def turns(num_spec: int) -> st.SearchStrategy[Turn]:
    """Any part in a step."""
    drafts = st.integers(0, num_spec)

    @st.composite
    def found(draw: st.DrawFn) -> Turn:
        return Turn(draw(_SKIPPED), draw(_BLOCKS), draw(drafts), draw(drafts))

    return found()


@cache
def parts(num_spec: int) -> st.SearchStrategy[list[Turn]]:
    """Turns for the requests of a step, which go round where there are more requests."""
    return st.lists(turns(num_spec), min_size=1, max_size=4)


_SKIPPED = st.sampled_from((False, False, False, False, True))
_BLOCKS = st.sampled_from((32, 1, 2))


@cache
def worlds(*, modes: tuple[str, ...], runners: tuple[str, ...]) -> st.SearchStrategy[World]:
    """Engines in one of these modes with one of these runners, with blocks enough for one request at least."""
    return _worlds(modes, runners)


@st.composite
def _worlds(draw: st.DrawFn, modes: tuple[str, ...], runners: tuple[str, ...]) -> World:
    mode, runner = draw(_one_of(modes)), draw(_one_of(runners))
    # Speculation and mode all do not go together.
    spec = 0 if mode == "all" else draw(_DRAFTS)
    layout, chosen = draw(_LAYOUTS), draw(_KINDS)
    block_size = max(2, 1 + spec) + draw(_ROOM)
    seqs = draw(_SEQS)
    groups = tuple(draw(_some_groups(layout, spec, chosen)))
    shared = len(groups) > 1 and draw(_FLAGS)
    setup = Setup(groups, chosen, block_size, spec, layout, shared)
    kinds = tuple(draw(_one_of(_builders(mode, spec))) for _ in groups)
    world = World(
        setup,
        kinds,
        mode,
        runner,
        max_num_seqs=seqs,
        max_model_len=max(draw(_LENGTHS), 2 * block_size),
        full_graphs=draw(_FLAGS),
        pointers=runner == "V1" and layout == "SD" and draw(_FLAGS),
        zero_marks=draw(_FLAGS),
        schedule=draw(schedules()),
    )
    held = draw(_REQUESTS)
    return with_blocks(world, seqs if seqs > FEW_SEQS else held, draw(_SPARE_BLOCKS))


_DRAFTS = st.sampled_from((*(2, 1, 0, 3) * 6, 5, 4, 8))
"""Up to three, and what engines in the field draft."""
_LAYOUTS = st.sampled_from(("SD", "DS"))
_KINDS = st.sampled_from(KINDS)
_ROOM = st.sampled_from((0, 1, 3, 5))
_FLAGS = st.booleans()
_SEQS = st.sampled_from((*(2, 1, 3, FEW_SEQS) * 5, *MANY_SEQS))
_LENGTHS = st.sampled_from(LENGTHS)
_REQUESTS = st.sampled_from((2, 1, 4))
_SPARE_BLOCKS = st.integers(0, 7)


@cache
def _one_of(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from(names)


def with_blocks(world: World, requests: int, more: int) -> World:
    """Blocks for so many requests at their longest, and a few more; others are preempted, or wait."""
    columns = 1 if world.mode == "none" else cdiv(world.max_model_len, world.block_size)
    held = columns if world.mode == "all" else 2 + world.num_spec
    return replace(world, num_blocks=1 + world.num_groups * held * min(requests, world.max_num_seqs) + more)


def _builders(mode: str, spec: int) -> tuple[str, ...]:
    """The builders that take such a configuration."""
    return ("mamba2", *(("gdn",) if mode != "all" else ()), *(("mamba1",) if not spec else ()))


@cache
def _some_groups(layout: str, spec: int, kinds: tuple[str, ...]) -> st.SearchStrategy[list[Group]]:
    return st.lists(_groups(layout, spec, kinds), min_size=1, max_size=2)


@st.composite
def _groups(draw: st.DrawFn, layout: str, spec: int, kinds: tuple[str, ...]) -> Group:
    states = tuple(draw(_kept(kind, layout, spec)) for kind in kinds)
    return Group(states, layers=draw(_LAYERS), lead=draw(_LEADS), padding=draw(_PADDINGS))


_LAYERS = st.sampled_from((1, 1, 2))
_LEADS = st.sampled_from((0, 0, 0, 4))
_PADDINGS = st.sampled_from((0, 0, 8))
_ROWS = st.sampled_from((3, 1, 2))
_CHANNELS = st.sampled_from((2, 3, 5))
_DTYPES = st.sampled_from(DTYPES)


@cache
@st.composite
def _kept(draw: st.DrawFn, kind: str, layout: str, spec: int) -> Kept:
    """A state of which two prefixes hardly have the same bytes."""
    rows, channels, dtype = draw(_ROWS), draw(_CHANNELS), draw(_DTYPES)
    if kind == "temporal":
        return Kept(kind, (rows, channels, 2), dtype)
    shape = (spec + rows, channels)
    return Kept(kind, shape if layout == "SD" else shape[::-1], dtype)
