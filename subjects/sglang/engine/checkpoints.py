"""The pool of checkpoints of `--enable-int8-mamba-checkpoint`, in which the tree keeps its states.

Which slot a checkpoint has, and when it is stored, loaded and given back, is the release's. The checkpoints here have the bytes of their states: rounded to int8 they would name
no tokens.
"""

from typing import Any

import torch

from subjects.kit.objects import names_in
from subjects.sglang.release import RELEASE, NotOffered

CHECKPOINT = 3000
"""Offset of the numbers of checkpoints, to tell them from slots of the device, of host memory and of a storage."""
_OLDEST = (0, 5, 23)


class _ExactStore:
    """In the place of the release's `Int8CheckpointStore`."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_slots: int,
        num_heads: int,
        head_v_dim: int,
        head_k_dim: int,
        device: str,
        scale_dtype: torch.dtype,
    ) -> None:
        shape = num_layers, num_slots, num_heads, head_v_dim, head_k_dim
        self.states = torch.empty(shape, dtype=scale_dtype, device=device)

    def store_from_pool(self, states: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> None:
        self.states[:, target] = states[:, source]

    def copy_to_pool(self, states: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> None:
        states[:, target] = self.states[:, source]

    def mem_usage_bytes(self) -> int:
        return self.states.numel() * self.states.element_size()


def checkpoint_arguments(count: int) -> dict[str, Any]:
    """The arguments of an engine with so many checkpoints; none with 0.

    Raises:
        NotOffered: the adapter does not know the release's checkpoints.
    """
    if not count:
        return {}
    if RELEASE < _OLDEST:
        raise NotOffered("checkpoints in int8")
    names_in("sglang.srt.mem_cache.mamba_checkpoint_pool")["Int8CheckpointStore"] = _ExactStore
    return {"enable_int8_mamba_checkpoint": True, "int8_mamba_ckpt_size": count}


class Checkpoints:
    """The checkpoints of an engine.

    Args:
        pool: the release's.
    """

    def __init__(self, pool: Any) -> None:
        self.allocator = pool.allocator
        self.temporal: torch.Tensor = pool.temporal.states
        self.conv: list[torch.Tensor] = pool.conv

    @property
    def slots(self) -> range:
        """The numbers of all checkpoints."""
        return range(CHECKPOINT + 1, CHECKPOINT + self.allocator.size + 1)

    @property
    def free(self) -> list[int]:
        """The numbers of those that are free."""
        return [CHECKPOINT + slot for slot in self.allocator.free_slots.tolist()]
