"""Engines that are plainer than another one: fewer groups, layers and states, smaller ones, fewer features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from properties.engine.world import World
from properties.strategies.align.kept import Kept
from properties.strategies.align.setup import Setup

PLENTY = 32
"""Enough blocks that no request is preempted; few enough to read."""


def plainness(world: World) -> tuple[int, ...]:
    """Less is plainer."""
    groups, setup = world.setup.groups, world.setup
    states = [state for group in groups for state in group.states]
    flags = (
        world.full_graphs,
        world.pointers,
        world.zero_marks,
        setup.shared,
        setup.layout == "DS",
        world.schedule,
    )
    return (
        len(groups),
        sum(group.layers for group in groups),
        len(states),
        sum(map(bool, flags)),
        sum(state.nbytes for state in states) + sum(group.lead + group.padding for group in groups),
        world.num_spec,
        world.block_size,
        world.max_num_seqs,
        abs(world.num_blocks - PLENTY),
    )


def plainer_worlds(world: World) -> Iterator[World]:
    """One change at a time."""
    yield replace(world, full_graphs=False, pointers=False, zero_marks=False, schedule="")
    yield replace(world, full_graphs=False)
    yield replace(world, pointers=False)
    yield replace(world, zero_marks=False)
    yield replace(world, schedule="")
    yield replace(world, num_blocks=PLENTY)
    for seqs in range(1, world.max_num_seqs):
        yield replace(world, max_num_seqs=seqs)
    for setup, kinds in _setups(world.setup, world.kinds):
        yield replace(world, setup=setup, kinds=kinds)
    if world.setup.num_spec:
        yield replace(world, setup=_with_spec(world.setup, world.setup.num_spec - 1))
    if world.setup.block_size > max(2, 1 + world.setup.num_spec):
        yield replace(world, setup=replace(world.setup, block_size=world.setup.block_size - 1))


def _setups(setup: Setup, kinds: tuple[str, ...]) -> Iterator[tuple[Setup, tuple[str, ...]]]:
    for number in range(len(setup.groups)):
        if len(setup.groups) > 1:
            rest = setup.groups[:number] + setup.groups[number + 1 :]
            yield replace(setup, groups=rest, shared=False), kinds[:number] + kinds[number + 1 :]
    if setup.shared:
        yield replace(setup, shared=False), kinds
    for chosen in (("temporal",), ("conv",), ("conv", "temporal")):
        if len(chosen) < len(setup.kinds):
            yield _with_kinds(setup, chosen), kinds
    plainer = tuple(replace(group, layers=1) for group in setup.groups)
    yield replace(setup, groups=plainer), kinds
    plainer = tuple(replace(group, lead=0, padding=0) for group in setup.groups)
    yield replace(setup, groups=plainer), kinds
    yield _with_states(setup, lambda state: replace(state, dtype="uint8")), kinds
    yield _with_states(setup, lambda state: _small(state, setup)), kinds
    if setup.layout == "DS":
        turned = _with_states(
            setup, lambda state: replace(state, shape=state.shape[::-1]) if state.kind == "conv" else state
        )
        yield replace(turned, layout="SD"), kinds


def _with_kinds(setup: Setup, kinds: tuple[str, ...]) -> Setup:
    """The last states of each layer that are of these kinds."""
    groups = []
    for group in setup.groups:
        states = [next((state for state in group.states if state.kind == kind), None) for kind in kinds]
        if None in states:
            return setup
        groups.append(replace(group, states=tuple(state for state in states if state is not None)))
    return replace(setup, groups=tuple(groups), kinds=kinds)


def _with_states(setup: Setup, change: Callable[[Kept], Kept]) -> Setup:
    groups = (replace(group, states=tuple(map(change, group.states))) for group in setup.groups)
    return replace(setup, groups=tuple(groups))


def _small(state: Kept, setup: Setup) -> Kept:
    """Two bytes of a temporal state, two channels and a window of one row of a conv state."""
    if state.kind == "temporal":
        return replace(state, shape=(1, 1, 2))
    shape = (1 + setup.num_spec, 2)
    return replace(state, shape=shape if setup.layout == "SD" else shape[::-1])


def _with_spec(setup: Setup, num_spec: int) -> Setup:
    """Fewer speculative tokens, for which conv states have fewer rows."""
    fewer = setup.num_spec - num_spec

    def change(state: Kept) -> Kept:
        if state.kind == "temporal":
            return state
        rows = 0 if setup.layout == "SD" else 1
        shape = tuple(size - fewer * (axis == rows) for axis, size in enumerate(state.shape))
        return replace(state, shape=shape)

    return replace(_with_states(setup, change), num_spec=num_spec)
