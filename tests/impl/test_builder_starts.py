"""Starts that a builder refuses, of numbers that no step of a property has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

batch: Any = import_module("impl.batch")
host: Any = import_module("impl.builders.host")

MOST, LEAST = 2**31 - 1, -(2**31)


def read(starts: list[int], dtype: torch.dtype, reader: Any = None) -> Any:
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
    return (reader or host.BatchReader(torch.device("cpu")))(common, "build")


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


def test_starts_of_the_same_bytes_and_another_width_are_read_anew() -> None:
    reader = host.BatchReader(torch.device("cpu"))
    assert read([0, 0, 0, 0], torch.int32, reader).rows == 3
    assert read([0, 0], torch.int64, reader).rows == 1
    assert read([0, 2], torch.int64, reader).lengths.tolist() == [2]
    assert read([0, 3], torch.int64, reader).lengths.tolist() == [3]


@pytest.mark.parametrize(
    ("starts", "filled"), [([0], 0), ([0, 0], 0), ([0, 1, 3], 2), ([0, 2, 2, 2], 1), ([0, MOST], 1)]
)
def test_rows_without_tokens_at_the_back_are_padding(starts: list[int], filled: int) -> None:
    assert {read(starts, dtype).filled for dtype in (torch.int32, torch.int64)} == {filled}
