"""Slots of recurrent states: what copies between them leave in memory, as bytes."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oracle.rules import require, rule

Memory = Mapping[str, bytes]
"""The bytes of each pool, by its name."""
SKIPPED = -1
"""A step, or a slot, of a row that is not copied."""


@dataclass(frozen=True)
class StateView:
    """A view of a pool: strides and offset are in elements of `itemsize` bytes. The first axis is that of layers."""

    pool: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def entry(self, *at: int) -> Iterator[int]:
        """Where each element of the entry at these indices of the first axes begins, in bytes."""
        fixed = self.offset + sum(index * stride for index, stride in zip(at, self.strides, strict=False))
        axes = zip(self.shape[len(at) :], self.strides[len(at) :], strict=True)
        for steps in itertools.product(*([stride * index for index in range(size)] for size, stride in axes)):
            yield (fixed + sum(steps)) * self.itemsize


class EntryMove(NamedTuple):
    """An entry of one view that becomes an entry of another one with as many elements."""

    source: StateView
    source_at: tuple[int, ...]
    target: StateView
    target_at: tuple[int, ...]


@rule
def moved(memory: Memory, moves: Sequence[EntryMove]) -> dict[str, bytes]:
    """All pools after the moves. Every source is read before a target is written.

    Refused: two moves with one target.
    """
    targets = [(move.target, move.target_at) for move in moves]
    require(len(set(targets)) == len(targets), "targets", targets, "be slots that differ")
    read = [_elements(memory, move) for move in moves]
    after = {name: bytearray(held) for name, held in memory.items()}
    for move, elements in zip(moves, read, strict=True):
        for at, element in zip(move.target.entry(*move.target_at), elements, strict=True):
            after[move.target.pool][at : at + len(element)] = element
    return {name: bytes(held) for name, held in after.items()}


def _elements(memory: Memory, move: EntryMove) -> list[bytes]:
    held, size = memory[move.source.pool], move.source.itemsize
    return [held[at : at + size] for at in move.source.entry(*move.source_at)]


def copied_slots(
    memory: Memory, states: Sequence[StateView], sources: Sequence[int], targets: Sequence[int]
) -> dict[str, bytes]:
    """Each target slot holds what its source slot held, in each layer of each state.

    Refused: a slot that is source and target, or a target twice.
    """
    shared = sorted(set(sources) & set(targets))
    require(not shared, "targets", list(targets), f"be no sources, as {shared} are")
    return moved(memory, _of_slots(states, zip(sources, targets, strict=True)))


def _of_slots(states: Sequence[StateView], pairs: Iterator[tuple[int, int]]) -> list[EntryMove]:
    chosen = list(pairs)
    return [
        EntryMove(state, (layer, source), state, (layer, target))
        for state in states
        for layer in range(state.shape[0])
        for source, target in chosen
    ]


def tracked_slots(
    memory: Memory,
    states: Sequence[StateView],
    sources: Sequence[int],
    mask: Sequence[bool],
    targets: Sequence[int],
) -> dict[str, bytes]:
    """The slot that keeps a row's state at a boundary holds the row's own state, where the row is at one.

    A row without a slot, or without one to keep, is skipped: its number is negative.
    """
    rows = zip(sources, mask, targets, strict=True)
    pairs = [(source, target) for source, there, target in rows if there and source >= 0 and target >= 0]
    return copied_slots(memory, states, [one for one, _ in pairs], [one for _, one in pairs])


def copied_pages(
    memory: Memory,
    pools: Sequence[tuple[str, int]],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> dict[str, bytes]:
    """Each target page of a pool holds what its source page held: all of its bytes, whatever states, keys and padding they are.

    Args:
        pools: names, and the bytes of a page of each.
        sources, targets: pages of each pool.
    """
    after = dict(memory)
    for (name, size), read, written in zip(pools, sources, targets, strict=True):
        pages = StateView(name, 1, (1, len(memory[name]) // size, size), (0, size, 1), 0)
        after |= {name: copied_slots(memory, [pages], read, written)[name]}
    return after


@rule
def cleared_slots(memory: Memory, states: Sequence[StateView], slots: Sequence[int]) -> dict[str, bytes]:
    """Each slot holds zeros in each layer of each state."""
    after = {name: bytearray(held) for name, held in memory.items()}
    for state in states:
        for layer, slot in itertools.product(range(state.shape[0]), slots):
            for at in state.entry(layer, slot):
                after[state.pool][at : at + state.itemsize] = bytes(state.itemsize)
    return {name: bytes(held) for name, held in after.items()}


@rule
def accepted_states(
    memory: Memory,
    states: Sequence[StateView],
    steps: Sequence[StateView],
    chosen: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> dict[str, bytes]:
    """Slots after a verified step: each holds the state after the step that is named for it.

    Args:
        steps: of each state, what the step left after each draft, by layer, row and draft.
        chosen: slots, and the draft of each row after which the slot holds the state; a negative draft leaves it as it is.
    """
    moves = [
        EntryMove(left, (layer, row, draft), state, (layer, slot))
        for state, left in zip(states, steps, strict=True)
        for layer in range(state.shape[0])
        for slots, drafts in chosen
        for row, (slot, draft) in enumerate(zip(slots, drafts, strict=True))
        if draft >= 0 and slot >= 0
    ]
    return moved(memory, moves)


@rule
def last_accepted(
    accepted: Sequence[Sequence[int]],
    counts: Sequence[int],
    lengths: Sequence[int] | None,
    drafts: int,
    interval: int,
) -> tuple[list[int], list[int] | None]:
    """The draft of each row that is the last accepted one, and that at a boundary, -1 for a row that passes none.

    Args:
        accepted: of each row the numbers of its accepted drafts among all rows', in order; each row has `drafts` of them.
        counts: how many are accepted, of each row.
        lengths: tokens of each row before the step; None: no boundary is asked for.
        interval: tokens between two boundaries.
    """
    last = [
        path[count - 1] - row * drafts for row, (path, count) in enumerate(zip(accepted, counts, strict=True))
    ]
    if lengths is None:
        return last, None
    kept = []
    for row, (path, count, before) in enumerate(zip(accepted, counts, lengths, strict=True)):
        boundary = (before + count) // interval * interval
        kept.append(path[boundary - before - 1] - row * drafts if boundary > before else SKIPPED)
    return last, kept


def slots_of_rows(rows: Sequence[int], slots: Sequence[int], live: int) -> tuple[list[int], list[int]]:
    """The slot of each live row, and -1 for padding; and the rows, in which padding is 0."""
    padding = len(rows) - live
    return [*(slots[row] for row in rows[:live]), *[SKIPPED] * padding], [*rows[:live], *[0] * padding]
