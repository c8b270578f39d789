"""A port of one function, without a defect."""

from __future__ import annotations

from itertools import pairwise

STATECHECK_PROTOCOL = 2


def chunk_offsets(cu_seqlens: list[int], chunk_size: int) -> list[int]:
    """The number of chunks before each sequence, and in all."""
    chunks = [-(-(end - start) // chunk_size) for start, end in pairwise(cu_seqlens)]
    return [sum(chunks[:count]) for count in range(len(chunks) + 1)]
