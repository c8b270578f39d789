"""Arrays that go to the device in one copy: where each begins, and what is between them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

chunks: Any = import_module("impl.chunks")


@pytest.mark.parametrize("chunk_size", [2**31 - 1, 2**31, 2**64])
def test_a_chunk_may_hold_as_many_tokens_as_there_may_be(chunk_size: int) -> None:
    starts = torch.tensor([0, 0, 2**31 - 1, 2**31 - 1], dtype=torch.int32)
    ends, last, sequences = chunks.compute_varlen_chunk_metadata(starts, chunk_size)
    assert ends.tolist() == [0, 2**31 - 1]
    assert last.tolist() == [-1, 0, -1]
    assert sequences.tolist() == [1]
    computed = np.array([0, 2**31 - 2, 7])
    found = chunks.split_at_positions(np.array([0, 1, 2, 9]), np.array([1, 1, 7]), computed, chunk_size)
    assert [array.tolist() for array in found] == [[0, 1, 2, 9], [0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("lens", [(2**40,), (64, 2**33 + 1, 0, 2**40)])
def test_chunk_offsets_count_beyond_32_bits(lens: tuple[int, ...]) -> None:
    starts = torch.tensor([0, *lens]).cumsum(0)
    expected = torch.tensor([0, *(-(-length // 64) for length in lens)]).cumsum(0)
    assert chunks.prepare_chunk_offsets(starts, 64).tolist() == expected.tolist()
