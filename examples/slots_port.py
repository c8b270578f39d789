"""Slots, snapshots, pages and pairs of blocks in plain Python: what a port of an engine that is not vLLM may look like.

statecheck fuzz --subject examples.slots_port --device cpu --budget 60s
"""
# ruff: noqa: D103 - PROTOCOL.md has a sentence about each function.

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

STATECHECK_PROTOCOL = 2
Ints = list[int]
Layer = tuple[str, list[torch.Tensor], int, int]


@dataclass
class Slots:
    """The free slots in the order in which they are given, and how many owners the others have."""

    free: Ints
    owners: Counter[int] = field(default_factory=Counter)


def new_slots(size: int) -> Slots:
    return Slots(list(range(1, size + 1)))


def alloc_slots(allocator: Slots, count: int) -> Ints | None:
    if not can_admit(allocator, count):
        return None
    slots, allocator.free = allocator.free[:count], allocator.free[count:]
    allocator.owners.update(slots)
    return slots


def free_slots(allocator: Slots, slots: Ints) -> None:
    allocator.owners.subtract(slots)
    allocator.free += [slot for slot in slots if not allocator.owners[slot]]


def share_slots(allocator: Slots, slots: Ints) -> None:
    allocator.owners.update(slots)


def count_free_slots(allocator: Slots) -> int:
    return len(allocator.free)


def can_admit(allocator: Slots, count: int) -> bool:
    return count <= len(allocator.free)


def clear_slots(states: list[torch.Tensor], slots: torch.Tensor) -> None:
    for state in states:
        state[:, slots] = 0


def copy_slots(states: list[torch.Tensor], sources: torch.Tensor, targets: torch.Tensor) -> None:
    for state in states:
        state[:, targets] = state[:, sources]


def snapshot_points(num_tokens: int, block_size: int, interval: int) -> Ints:
    last = num_tokens // block_size * block_size
    return sorted({*range(interval, num_tokens, interval), *filter(None, (last, num_tokens))})


def admit_tokens(num_computed: int, num_tokens: int, budget: int, block_size: int, interval: int) -> int:
    points = snapshot_points(num_tokens, block_size, interval)
    return min(budget, next(point for point in points if point > num_computed) - num_computed)


def page_views(layers: list[Layer]) -> list[torch.Tensor]:
    views = []
    for _, tensors, _, page_size in layers:
        first = tensors[0]
        size = first.element_size()
        elements, pages = page_size // size, first.shape[0] * first.stride(0) * size // page_size
        views.append(first.as_strided((pages, elements), (elements, 1)))
    return views


def pair_blocks(
    source: Sequence[int], target: Sequence[int], num_computed: int, block_size: int
) -> list[tuple[int, int]]:
    running = max(num_computed - 1, 0) // block_size
    return [(source[running], target[running])]
