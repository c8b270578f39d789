"""Starts that a builder refuses, of numbers that no step of a property has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

batch: Any = import_module("impl.batch")
host: Any = import_module("impl.builders.host")

MOST, LEAST = 2**31 - 1, -(2**31)


def test_an_array_is_kept_while_the_memory_is_the_same_and_holds_what_that_holds() -> None:
    """As an engine has it: fronts of one buffer, which is written in place."""
    arrays, buffer = host.HostArrays(), torch.arange(6, dtype=torch.int32)
    first = arrays.rows("starts", buffer[:4], 4, "build")
    buffer[1] = 9
    assert arrays.rows("starts", buffer[:4], 4, "build") is first
    assert first.tolist() == [0, 9, 2, 3]
    assert arrays.rows("starts", buffer[:5], 5, "build").tolist() == [0, 9, 2, 3, 4]
    assert arrays.rows("starts", buffer[1:5], 4, "build").tolist() == [9, 2, 3, 4]
    assert arrays.rows("starts", buffer[:4].clone(), 4, "build").tolist() == [0, 9, 2, 3]
    assert arrays.of("table", buffer.view(2, 3)).tolist() == [[0, 9, 2], [3, 4, 5]]
    assert arrays.of("table", buffer.view(3, 2)).tolist() == [[0, 9], [2, 3], [4, 5]]
    assert arrays.of("table", buffer.view(2, 3).T).tolist() == [[0, 3], [9, 4], [2, 5]]
    assert arrays.of("table", buffer.view(torch.int16).view(2, 6)).shape == (2, 6)


def test_an_array_that_is_kept_is_refused_as_a_new_one_would_be() -> None:
    arrays, buffer = host.HostArrays(), torch.arange(8, dtype=torch.int32)
    arrays.rows("starts", buffer, 8, "build")
    wrong = [
        (buffer, 7),
        (buffer.view(2, 4), 8),
        (buffer.view(torch.float32), 8),
        (buffer.numpy(), 8),
        (None, 8),
    ]
    for value, rows in wrong:
        with pytest.raises(ValueError, match=rf"but should be an int32 or int64 tensor of shape \({rows},\)"):
            arrays.rows("starts", value, rows, "build")


def read(starts: list[int], dtype: torch.dtype) -> Any:
    rows, ends = len(starts) - 1, torch.tensor(starts, dtype=dtype)
    common = batch.CommonAttentionMetadata(
        query_start_loc=ends,
        query_start_loc_cpu=ends,
        seq_lens=torch.zeros(rows, dtype=dtype),
        num_reqs=rows,
        num_actual_tokens=MOST,
        max_query_len=MOST,
        max_seq_len=MOST,
        block_table_tensor=torch.zeros(rows, 1, dtype=torch.int32),
        slot_mapping=torch.empty(0, dtype=torch.int64),
    )
    return host.BatchReader(torch.device("cpu"))(common, "build")


@pytest.mark.parametrize(
    ("starts", "place"),
    [
        ([1], 0),
        ([-1, 4], 0),
        ([0, 3, 2], 2),
        ([0, -1, 4], 1),
        ([0, 3, 2, 3], 2),
        ([0, 0, 1], 1),
        ([0, 1, 1, 2, 2], 2),
        # All differences of these wrap around to something that is not negative.
        ([0, MOST, LEAST, -1, 5], 2),
    ],
)
def test_starts_that_do_not_rise_from_0_or_pause_before_a_row_are_refused_by_place(
    starts: list[int], place: int
) -> None:
    for dtype in (torch.int32, torch.int64):
        with pytest.raises(ValueError, match=rf"^query_start_loc_cpu\[{place}\] = {starts[place]}, "):
            read(starts, dtype)


@pytest.mark.parametrize(
    ("starts", "filled"), [([0], 0), ([0, 0], 0), ([0, 1, 3], 2), ([0, 2, 2, 2], 1), ([0, MOST], 1)]
)
def test_rows_without_tokens_at_the_back_are_padding(starts: list[int], filled: int) -> None:
    assert {read(starts, dtype).filled for dtype in (torch.int32, torch.int64)} == {filled}
