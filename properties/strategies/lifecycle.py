"""Engines to send requests through, and what a step does with each of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from oracle.types import cdiv
from properties.engine.lives import Turn
from properties.engine.world import World
from properties.strategies.align import Group, Kept, Setup
from properties.strategies.orders import schedules
from properties.strategies.situations import noted

DTYPES = ("uint8", "bfloat16", "float32", "float8_e4m3fn")
KINDS = (("conv", "temporal"), ("temporal",), ("conv",), ("conv", "conv", "conv", "temporal"))
LENGTHS = (24, 16, 40)


def turns(num_spec: int) -> st.SearchStrategy[Turn]:
    """Any part in a step."""
    return st.builds(
        Turn,
        skipped=st.sampled_from((False, False, False, False, True)),
        blocks=st.sampled_from((32, 1, 2)),
        drafts=st.integers(0, num_spec),
        accepted=st.integers(0, num_spec),
    )


def worlds(*, modes: tuple[str, ...], runners: tuple[str, ...]) -> st.SearchStrategy[World]:
    """Engines in one of these modes with one of these runners, with blocks enough for one request at least."""
    return _worlds(modes, runners).map(noted)


@st.composite
def _worlds(draw: st.DrawFn, modes: tuple[str, ...], runners: tuple[str, ...]) -> World:
    mode, runner = draw(st.sampled_from(modes)), draw(st.sampled_from(runners))
    # Speculation and mode all do not go together.
    spec = 0 if mode == "all" else draw(st.sampled_from((2, 1, 0, 3)))
    layout, chosen = draw(st.sampled_from(("SD", "DS"))), draw(st.sampled_from(KINDS))
    block_size = max(2, 1 + spec) + draw(st.sampled_from((0, 1, 3, 5)))
    groups = tuple(draw(st.lists(_groups(layout, spec, chosen), min_size=1, max_size=2)))
    shared = len(groups) > 1 and draw(st.booleans())
    setup = Setup(groups, chosen, block_size, spec, layout, shared)
    kinds = tuple(draw(st.sampled_from(_builders(mode, spec))) for _ in groups)
    world = World(
        setup,
        kinds,
        mode,
        runner,
        max_num_seqs=draw(st.sampled_from((2, 1, 3, 4))),
        max_model_len=draw(st.sampled_from(LENGTHS)),
        full_graphs=draw(st.booleans()),
        pointers=runner == "V1" and layout == "SD" and draw(st.booleans()),
        zero_marks=draw(st.booleans()),
        schedule=draw(schedules()),
    )
    return with_blocks(world, draw(st.sampled_from((2, 1, 4))), draw(st.integers(0, 7)))


def with_blocks(world: World, requests: int, more: int) -> World:
    """Blocks for so many requests at their longest, and a few more; others have to make way, or to wait."""
    columns = 1 if world.mode == "none" else cdiv(world.max_model_len, world.block_size)
    held = columns if world.mode == "all" else 2 + world.num_spec
    return replace(world, num_blocks=1 + world.num_groups * held * min(requests, world.max_num_seqs) + more)


def _builders(mode: str, spec: int) -> tuple[str, ...]:
    """The builders that take such a configuration."""
    return ("mamba2", *(("gdn",) if mode != "all" else ()), *(("mamba1",) if not spec else ()))


@st.composite
def _groups(draw: st.DrawFn, layout: str, spec: int, kinds: tuple[str, ...]) -> Group:
    states = tuple(draw(_kept(kind, layout, spec)) for kind in kinds)
    return Group(
        states,
        layers=draw(st.sampled_from((1, 1, 2))),
        lead=draw(st.sampled_from((0, 0, 0, 4))),
        padding=draw(st.sampled_from((0, 0, 8))),
    )


@st.composite
def _kept(draw: st.DrawFn, kind: str, layout: str, spec: int) -> Kept:
    """A state of which two prefixes hardly have the same bytes."""
    rows, channels = draw(st.sampled_from((3, 1, 2))), draw(st.sampled_from((2, 3, 5)))
    dtype = draw(st.sampled_from(DTYPES))
    if kind == "temporal":
        return Kept(kind, (rows, channels, 2), dtype)
    shape = (spec + rows, channels)
    return Kept(kind, shape if layout == "SD" else shape[::-1], dtype)
