"""Slots, snapshots, and blocks that are sent, asked of a port's plain functions and held against laws of the oracle."""

from collections.abc import Sequence
from operator import index
from typing import Any

import torch

from oracle import tracking
from subjects.kit.slots import allocated
from subjects.plain.port import ask, current_port, ints, read_as

__all__ = ["StateSlots", "TrackingPlan"]
Operations = Sequence[tuple[str, int]]


def _numbers(found: Any) -> Any:
    return read_as(lambda slots: tuple(ints(slots)), found)


def _truth(found: Any) -> bool:
    if found not in (True, False):
        raise TypeError(f"can_admit = {found!r}, but should be True or False")
    return bool(found)


def _allocate(size: int, operations: Operations) -> str:
    allocator = ask("new_slots", size=size)
    pool = {
        "alloc": lambda count: ask("alloc_slots", allocator=allocator, count=count),
        "free": lambda slots: ask("free_slots", allocator=allocator, slots=slots),
        "share": lambda slots: ask("share_slots", allocator=allocator, slots=slots),
    }
    if hasattr(current_port(), "count_free_slots"):
        pool["left"] = lambda _: index(ask("count_free_slots", allocator=allocator))
    if hasattr(current_port(), "can_admit"):
        pool["admit"] = lambda count: _truth(ask("can_admit", allocator=allocator, count=count))
    return allocated(size, operations, pool, _numbers)


class TrackingPlan:
    """Decisions of the host about slots and blocks: what is wrong with them, in a sentence."""

    allocate = staticmethod(_allocate)
    share = staticmethod(_allocate)
    admit = staticmethod(_allocate)

    @staticmethod
    def snapshot_points(num_tokens: int, block_size: int, interval: int) -> Any:
        points = ask("snapshot_points", num_tokens=num_tokens, block_size=block_size, interval=interval)
        return read_as(
            lambda found: tracking.broken_snapshots(num_tokens, block_size, interval, ints(found)), points
        )

    @staticmethod
    def admit_tokens(
        num_computed: int, num_tokens: int, block_size: int, interval: int, budgets: Sequence[int]
    ) -> str:
        prompt, taken, computed = (num_tokens, block_size, interval), [], num_computed
        for budget in budgets:
            count = ask(
                "admit_tokens",
                num_computed=computed,
                num_tokens=num_tokens,
                budget=budget,
                block_size=block_size,
                interval=interval,
            )
            try:
                taken += ints([count])
            except TypeError:
                return f"step {len(taken)} takes {count!r}, but should take an int"
            computed += taken[-1]
            wrong = tracking.broken_admission(num_computed, *prompt, budgets[: len(taken)], taken)
            if computed == num_tokens or wrong != "nothing":
                return wrong
        return "nothing"

    @staticmethod
    def pair_blocks(source: Sequence[int], target: Sequence[int], num_computed: int, block_size: int) -> Any:
        tables = {"source": list(source), "target": list(target)}
        pairs = ask("pair_blocks", **tables, num_computed=num_computed, block_size=block_size)

        def wrong(found: Any) -> str:
            sent = [(from_block, to_block) for from_block, to_block in map(ints, found)]
            return tracking.broken_pairing(source, target, num_computed, block_size, sent)

        return read_as(wrong, pairs)


class StateSlots:
    """Copies of whole slots and of whole pages."""

    @staticmethod
    def clear(conv: Sequence[torch.Tensor], slots: torch.Tensor) -> None:
        ask("clear_slots", {"states": "conv"}, states=list(conv), slots=slots)

    @staticmethod
    def copy(conv: Sequence[torch.Tensor], sources: torch.Tensor, targets: torch.Tensor) -> None:
        ask("copy_slots", {"states": "conv"}, states=list(conv), sources=sources, targets=targets)

    @staticmethod
    def copy_pages(
        layers: Sequence[tuple[str, Sequence[torch.Tensor], int, int]],
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
    ) -> None:
        given = [(kind, list(views), block_size, page_size) for kind, views, block_size, page_size in layers]
        views = ask("page_views", layers=given)
        for view, read, written in zip(views, sources, targets, strict=True):
            for source, target in zip(read, written, strict=True):
                view[target].copy_(view[source])
