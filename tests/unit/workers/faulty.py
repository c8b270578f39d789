"""A subject that faults on real devices, to see a campaign go past it: `--subject tests.unit.workers.faulty --isolated`.

Everything is the default subject's but two copy specifications, for requests without drafts. That of a temporal state touches
memory terabytes away if the block is above FAULTY_ABOVE (default 3), that of a conv state never ends if it is above
FAULTY_HANGS_ABOVE (default: none is). On a GPU kernels do so; on a CPU the process is ended by a segmentation fault, or loops.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import torch
import triton
import triton.language as tl

from subjects import load

ABOVE, HANGS_ABOVE = "FAULTY_ABOVE", "FAULTY_HANGS_ABOVE"
DEFAULT_ABOVE = 3
_FAR = 1 << 42


def __getattr__(name: str) -> Any:
    """Names that are not faulty are the default subject's."""
    return getattr(load("impl").module, name)


def get_temporal_copy_spec(
    state: torch.Tensor, block_ids: list[int], cur_block_idx: int, num_accepted_tokens: int
) -> Any:
    """The default subject's, but the device touches memory that is not there for high blocks."""
    right = load("impl").module.get_temporal_copy_spec(state, block_ids, cur_block_idx, num_accepted_tokens)
    if _only_block(block_ids, cur_block_idx) > int(os.environ.get(ABOVE, DEFAULT_ABOVE)):
        _touch_nothing(state.device)
    return right


def get_conv_copy_spec(
    state: torch.Tensor, block_ids: list[int], cur_block_idx: int, num_accepted_tokens: int
) -> Any:
    """The default subject's, but the device never ends for high blocks."""
    right = load("impl").module.get_conv_copy_spec(state, block_ids, cur_block_idx, num_accepted_tokens)
    if _only_block(block_ids, cur_block_idx) > int(os.environ.get(HANGS_ABOVE, sys.maxsize)):
        _never_end(state.device)
    return right


def _only_block(block_ids: list[int], column: int) -> int:
    """The running block, 0 where others follow for drafts.

    With these, fewer drafts would need more other blocks to get to the same number, and no search makes both steps at once.
    """
    return block_ids[column] if column == len(block_ids) - 1 else 0


def _touch_nothing(device: torch.device) -> None:
    if device.type == "cpu":
        ctypes.string_at(0)
    _store_far_away[(1,)](torch.zeros(1, dtype=torch.int32, device=device), _FAR)


def _never_end(device: torch.device) -> None:
    while device.type == "cpu":
        """For ever."""
    _wait_forever[(1,)](torch.ones(1, dtype=torch.int32, device=device))


@triton.jit
def _store_far_away(place, distance):  # type: ignore[no-untyped-def]
    tl.store(place + distance.to(tl.int64), 1)


@triton.jit
def _wait_forever(lock):  # type: ignore[no-untyped-def]
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
