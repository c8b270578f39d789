"""A port of one function with one defect: a sequence that ends on a chunk boundary gets one chunk too many.

make fuzz SUBJECT=examples.off_by_one BUDGET=20s
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

STATECHECK_PROTOCOL = 2


def chunk_offsets(cu_seqlens: Sequence[int], chunk_size: int) -> list[int]:
    """The number of chunks before each sequence, and of all of them. It should round up: -(-(end - start) // chunk_size)."""
    offsets = [0]
    for start, end in pairwise(cu_seqlens):
        offsets.append(offsets[-1] + (end - start) // chunk_size + 1)
    return offsets
