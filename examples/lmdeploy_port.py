"""lmdeploy (`pip install --no-deps lmdeploy mmengine-lite addict termcolor`) as a port: the blocks of its caches, which requests with the same prefix share.

statecheck fuzz --subject examples.lmdeploy_port --device cpu --budget 1m
"""
# ruff: noqa: D103 - PROTOCOL.md has a sentence about each function.

from importlib.metadata import version
from typing import Any

import numpy as np
from lmdeploy.pytorch.paging.block_manager.base_block_manager import LogicalAllocator

STATECHECK_PROTOCOL = 2
RELEASE = version("lmdeploy")


class Blocks:
    """The allocator, which names blocks by numbers of its own, and the numbers of the blocks that it has handed out."""

    def __init__(self, size: int) -> None:
        self.allocator = LogicalAllocator(num_cpu_blocks=0, num_gpu_blocks=size + 1, num_gpu_reserved=1)
        self.numbers: dict[int, int] = {}

    def of(self, slots: Any) -> np.ndarray:
        """The allocator's numbers of blocks."""
        return np.asarray([self.numbers[slot] for slot in slots], dtype=np.int64)


def new_slots(size: int) -> Blocks:
    return Blocks(size)


def alloc_slots(allocator: Blocks, count: int) -> Any:
    try:
        numbers = allocator.allocator.allocate(count)
    except MemoryError:
        return None
    slots = allocator.allocator.get_physical_blocks(numbers)
    allocator.numbers.update(zip(slots.tolist(), numbers.tolist(), strict=True))
    return slots


def free_slots(allocator: Blocks, slots: Any) -> None:
    allocator.allocator.free(allocator.of(slots))


def share_slots(allocator: Blocks, slots: Any) -> None:
    # As `BlockTrie` does for a request that matches a prefix.
    allocator.allocator.add_ref_count(allocator.of(slots), 1)


def count_free_slots(allocator: Blocks) -> int:
    return allocator.allocator.get_phy_allocator("gpu").get_num_free_blocks()


def can_admit(allocator: Blocks, count: int) -> bool:
    return count <= count_free_slots(allocator)
