"""Values of a batch that a builder reads on the host: starts and lengths that no step of a property has, or that only a GPU has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

batch: Any = import_module("impl.batch")
host: Any = import_module("impl.builders.host")
checks: Any = import_module("impl.checks")

MOST, LEAST = 2**31 - 1, -(2**31)


def read(
    starts: list[int], dtype: torch.dtype, reader: Any = None, lengths: torch.dtype | None = None
) -> Any:
    rows, ends = len(starts) - 1, torch.tensor(starts, dtype=dtype)
    common = batch.CommonAttentionMetadata(
        query_start_loc=ends,
        query_start_loc_cpu=ends,
        seq_lens=torch.zeros(rows, dtype=lengths or dtype),
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
    assert read([0, 0], torch.int64, reader).lengths.tolist() == [0]
    assert read([0, 0, 0, 0], torch.int32, reader).lengths.tolist() == [0, 0, 0]
    assert read([0, 2], torch.int64, reader).lengths.tolist() == [2]
    assert read([0, 3], torch.int64, reader).lengths.tolist() == [3]


@pytest.mark.parametrize(
    ("starts", "filled"), [([0], 0), ([0, 0], 0), ([0, 1, 3], 2), ([0, 2, 2, 2], 1), ([0, MOST], 1)]
)
def test_rows_without_tokens_at_the_back_are_padding(starts: list[int], filled: int) -> None:
    assert {read(starts, dtype).filled for dtype in (torch.int32, torch.int64)} == {filled}


def test_sequence_lengths_of_another_dtype_than_the_starts_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^seq_lens = int64 .*, but should be a torch.int32 tensor, as query_start"
    ):
        read([0, 1], torch.int32, lengths=torch.int64)


def read_on_a_device(**known: Any) -> Any:
    """A batch of a decode and a prompt, of which the host knows no more than is said."""
    starts = np.array([0, 1, 6], np.int32)
    fields = {"bounds": None, "stateless": None, "seq_lens": None} | known
    return host.HostBatch(
        rows=2, filled=2, tokens=6, longest=5, starts=starts, lengths=np.diff(starts), **fields
    )


def test_values_of_decodes_that_the_host_does_not_know_are_not_checked() -> None:
    lengths = np.array([1, 5])
    with pytest.raises(
        ValueError, match=r"^is_prefilling = None, but should be given, since row 0 has no prior"
    ):
        host.check_decodes_have_state(read_on_a_device(seq_lens=lengths), 1, "build")
    host.check_decodes_have_state(read_on_a_device(), 1, "build")
    host.check_decodes_have_state(read_on_a_device(seq_lens=lengths, stateless=lengths > 1), 1, "build")


def test_chunks_need_lengths_on_the_host() -> None:
    with pytest.raises(
        ValueError, match=r"^seq_lens_cpu_upper_bound = None, but should be given, since there are"
    ):
        host.computed_on_host(read_on_a_device(), 1, "build")
    lengths, bounds = np.array([9, 7], np.int32), np.array([9, 8], np.int32)
    for known, computed in ({"seq_lens": lengths}, 2), ({"seq_lens": lengths, "bounds": bounds}, 3):
        found = host.computed_on_host(read_on_a_device(**known), 1, "build")
        assert (found.tolist(), found.dtype) == ([computed], np.int64)


@pytest.mark.parametrize("shape", [(3,), (2, 1, 1), (3, 1), ()])
def test_a_table_has_two_dimensions_and_a_row_for_each_row(shape: tuple[int, ...]) -> None:
    table = torch.ones(2, 1, dtype=torch.int32)
    assert checks.device_rows("table", table, 2, torch.device("cpu"), "f", ndim=2) is table
    with pytest.raises(
        ValueError, match=r"^table = .*, but should be .* of 2 dimensions with 2 rows on cpu "
    ):
        checks.device_rows("table", torch.ones(shape, dtype=torch.int32), 2, torch.device("cpu"), "f", ndim=2)
