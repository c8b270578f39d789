"""A port of five functions, to begin with: each hands plain numbers, lists or tensors to the engine's own code.

PROTOCOL.md of statecheck describes these functions and the others that a port may offer.
"""
# ruff: noqa: D103 - PROTOCOL.md has a sentence about each function.

from itertools import pairwise

from torch import Tensor

STATECHECK_PROTOCOL = 2


def _chunks_of(cu_seqlens: list[int], chunk_size: int) -> list[int]:
    return [-(-(end - start) // chunk_size) for start, end in pairwise(cu_seqlens)]


def chunk_offsets(cu_seqlens: list[int], chunk_size: int) -> list[int]:
    offsets = [0]
    for count in _chunks_of(cu_seqlens, chunk_size):
        offsets.append(offsets[-1] + count)
    return offsets


def chunk_indices(cu_seqlens: list[int], chunk_size: int) -> list[tuple[int, int]]:
    counts = _chunks_of(cu_seqlens, chunk_size)
    return [(sequence, chunk) for sequence, count in enumerate(counts) for chunk in range(count)]


def query_lens(query_start_loc: Tensor) -> Tensor:
    return query_start_loc[1:] - query_start_loc[:-1]


def num_computed_tokens(query_start_loc: Tensor, seq_lens: Tensor) -> Tensor:
    return seq_lens - query_lens(query_start_loc)


def drop_columns(
    columns: dict[str, int], finished: list[str], preempted: list[str], resumed: list[str]
) -> None:
    for request in (*finished, *preempted, *resumed):
        columns.pop(request, None)
