"""A port whose kernel counts its programs in the order in which they run: outputs depend on it."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from examples.recurrences_port import linear_chunk as right_chunk
from examples.recurrences_port import linear_recurrent as right_recurrent

STATECHECK_PROTOCOL = 2


@triton.jit
def _count_programs(out_ptr, counter_ptr, width):  # type: ignore[no-untyped-def]
    rank = tl.atomic_add(counter_ptr, 1)
    token = tl.program_id(0)
    tl.store(out_ptr + token * width, tl.load(out_ptr + token * width) + rank)


def _counted(out: Any) -> Any:
    if len(out):
        counter = torch.zeros(1, dtype=torch.int32, device=out.device)
        _count_programs[(len(out),)](out, counter, out.stride(0))
    return out


def linear_recurrent(**arguments: Any) -> Any:
    return _counted(right_recurrent(**arguments))


def linear_chunk(**arguments: Any) -> Any:
    return _counted(right_chunk(**arguments))
