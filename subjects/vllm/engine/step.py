"""A step of a scenario, as reports and laws read it; and for its picture, the blocks that rows used."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from oracle.lifecycle.broken_laws import Broken, BrokenLaws
from oracle.lifecycle.known_states import Found, KnownStates
from oracle.lifecycle.observed import ForwardRow
from subjects.vllm.engine.states import LiveLayer, LiveMemory


@dataclasses.dataclass(frozen=True)
class LiveStep:
    """A step as the engine observed it.

    Args:
        scheduled: by request, what the scheduler decided: tokens computed before, tokens and drafts of the step, whether it begins.
        preempted, finished: requests.
        outputs: by request, the tokens that it said.
        owners: (request, group, column, block) after the step.
        published: (group, block, request, tokens) of each block that may be hit as so many tokens of the request.
        free: blocks.
        idle: nothing is left to do.
        broken: what breaks each law.
        findings: all that does: the law, what was seen, what should be, and what was found of whose state.
        tables: as `owners`, while the forward runs.
        accesses: which blocks each row of the forward used in each group, see `accessed`.
        held: what stands in the block of each of `owners`.
        loaded, saved: (group, block, request, tokens) of blocks that a connector wrote, and read to save them.
        unloaded: requests whose loads failed.
    """

    scheduled: dict[str, Any]
    preempted: tuple[str, ...]
    finished: tuple[str, ...]
    outputs: dict[str, Any]
    owners: tuple[Any, ...]
    published: tuple[Any, ...]
    free: int
    idle: bool
    broken: BrokenLaws
    findings: tuple[Broken, ...]
    tables: tuple[Any, ...]
    accesses: tuple[Any, ...]
    held: tuple[Any, ...]
    loaded: tuple[Any, ...] = ()
    saved: tuple[Any, ...] = ()
    unloaded: tuple[str, ...] = ()


RowAccess = tuple[str, int, tuple[int, ...], int, tuple[int, ...], tuple[Found, ...]]
"""A row's request, a group, the blocks that it reads, the one that it runs in (0 in attention, which has none), those that it
writes, and what it found."""


def accessed(rows: Sequence[ForwardRow], known: KnownStates, block_size: int) -> tuple[RowAccess, ...]:
    """Accesses of each row of a forward in each group; `block_size` is that of attention."""
    return tuple(access for row in rows for access in _accessed_by_row(row, known, block_size))


def _accessed_by_row(row: ForwardRow, known: KnownStates, block_size: int) -> Iterator[RowAccess]:
    name = row.request
    pages = row.table[: -(-row.computed // block_size)]
    slots = tuple(dict.fromkeys(slot // block_size for slot in row.slots if slot >= block_size))
    yield name, 0, tuple(pages), 0, slots, _founds(known, name, [keys[-1] for keys in row.keys if keys])
    for window in row.sliding:
        yield (
            name,
            window.group,
            window.read,
            0,
            window.written,
            _founds(known, name, [keys[-1] for keys in window.keys if keys]),
        )
    for access in row.groups:
        run, temporal = access.blocks
        states = access.temporal
        read = tuple(dict.fromkeys((temporal, run))) if access.initial else ()
        found = _founds(known, name, states) if access.initial else ()
        yield name, access.group, read, run, tuple(block for block in access.written if block), found


def held(
    owners: Sequence[tuple[str, int, int, int]], memory: LiveMemory, known: KnownStates, block_size: int
) -> tuple[tuple[Found, ...], ...]:
    """Of each (request, group, column, block) what stands there: one state, or several where layers differ."""
    return tuple(
        _founds(
            known,
            name,
            [_held_in(layer, known, name, column * block_size, block) for layer in memory.groups[group]],
        )
        for name, group, column, block in owners
    )


def _held_in(layer: LiveLayer, known: KnownStates, name: str, first: int, block: int) -> int:
    """The state of a block; of a page of attention the one after the last of the request's tokens in it."""
    if layer.kind == "attention":
        keys, request = layer.keys(block), known.requests[name]
        own = 0
        while own < len(keys) and keys[own] == request.state(first + own + 1):
            own += 1
        return keys[max(0, own - 1)]
    return layer.window(block, 0)[-1] if layer.kind == "short_conv" else layer.temporal(block)


def _founds(known: KnownStates, name: str, states: Sequence[int]) -> tuple[Found, ...]:
    return tuple(known.found(state, name) for state in dict.fromkeys(states))
