"""Lengths that fit no starts, and blocks of no token, are refused by value."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from subjects import load

IMPL = load("impl")


def test_a_wrong_number_of_lengths_is_refused_with_the_number_that_fits() -> None:
    common = IMPL.resolve("CommonAttentionMetadata")(
        query_start_loc=torch.tensor([0, 1, 2, 4], dtype=torch.int32),
        query_start_loc_cpu=None,
        seq_lens=torch.tensor([3, 5], dtype=torch.int32),
        num_reqs=3,
        num_actual_tokens=4,
        max_query_len=2,
        max_seq_len=5,
        block_table_tensor=None,
        slot_mapping=None,
    )
    with pytest.raises(ValueError, match=r"^seq_lens = .*, but should be of shape \(3,\) on cpu, as query"):
        common.compute_num_computed_tokens()


@pytest.mark.parametrize("block_size", [0, -4])
def test_blocks_of_no_token_are_refused_whatever_the_specification_is(block_size: int) -> None:
    spec = SimpleNamespace(block_size=block_size, num_speculative_blocks=0)
    table, seq_lens = torch.ones(1, 2, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=rf"^block_size = {block_size}, but should be >= 1 "):
        IMPL.resolve("mamba_get_block_table_tensor")(table, seq_lens, spec, "align", max_seq_len=1)
