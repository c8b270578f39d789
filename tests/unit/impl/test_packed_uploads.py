"""Arrays that go to the device in one copy: where each begins, and what is between them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

chunks: Any = import_module("impl.chunks")
HOST = torch.device("cpu")


def arrays(dtype: type, *sizes: int) -> list[Any]:
    return [np.arange(size).astype(dtype) for size in sizes]


@pytest.mark.parametrize("sizes", [(0,), (1,), (3, 5, 64), (63, 1, 0, 65), (64, 64)])
def test_each_array_begins_at_a_multiple_of_64_bytes_and_comes_back_as_it_was(sizes: tuple[int, ...]) -> None:
    int64s, int32s, flags = arrays(np.int64, *sizes), arrays(np.int32, *sizes), arrays(np.bool_, *sizes)
    found = chunks.upload_packed(HOST, int32s, int64s, flags)
    assert [one.dtype for one in found] == [
        *[torch.int64] * len(sizes),
        *[torch.int32] * len(sizes),
        *[torch.bool] * len(sizes),
    ]
    base = min(one.data_ptr() for one in found)
    for one, expected in zip(found, [*int64s, *int32s, *flags], strict=True):
        assert one.tolist() == expected.tolist()
        assert one.numel() == 0 or (one.data_ptr() - base) % 64 == 0


@pytest.mark.parametrize(("size", "most"), [(3, 3), (3, 4), (0, 5), (5, 70)])
def test_an_array_may_be_filled_up_and_the_next_is_not_touched(size: int, most: int) -> None:
    filled = chunks.Filled(np.arange(size, dtype=np.int32), most)
    first, second = chunks.upload_packed(HOST, [filled, np.arange(7, dtype=np.int32)])
    assert first.tolist() == [*range(size), *[-1] * (most - size)]
    assert second.tolist() == list(range(7))


def test_programs_of_a_row_are_counted_beyond_16_bits() -> None:
    programs = chunks.conv_programs(np.array([8 * 40_000, 9], np.int32))
    assert programs.ordinals.tolist() == [*range(40_000), 0, 1]
    assert programs.ordinals.dtype == np.int32
    assert programs.owners.tolist() == [*[0] * 40_000, 1, 1]


@pytest.mark.parametrize("chunk_size", [2**31 - 1, 2**31, 2**64])
def test_a_chunk_may_hold_as_many_tokens_as_there_may_be(chunk_size: int) -> None:
    starts = torch.tensor([0, 0, 2**31 - 1, 2**31 - 1], dtype=torch.int32)
    ends, last, sequences = chunks.compute_varlen_chunk_metadata(starts, chunk_size)
    assert ends.tolist() == [0, 2**31 - 1]
    assert last.tolist() == [-1, 0, -1]
    assert sequences.tolist() == [1]
    computed = np.array([0, 2**31 - 2, 7])
    found = chunks.split_at_positions(np.array([0, 1, 2, 9]), np.array([1, 1, 7]), computed, chunk_size)
    assert [one.tolist() for one in found] == [[0, 1, 2, 9], [0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("lens", [(2**40,), (64, 2**33 + 1, 0, 2**40)])
def test_chunk_offsets_count_beyond_32_bits(lens: tuple[int, ...]) -> None:
    starts = torch.tensor([0, *lens]).cumsum(0)
    expected = torch.tensor([0, *(-(-length // 64) for length in lens)]).cumsum(0)
    assert chunks.prepare_chunk_offsets(starts, 64).tolist() == expected.tolist()
