"""Mode all: the columns of each row's last computed token, first scheduled one and last scheduled one."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from properties.strategies.builders import BuilderSetup
from statecheck.execution.in_process import InProcess
from subjects import load

IMPL = load("impl")
WIDTH = 5
blocks: Any = import_module("impl.builders.blocks")


def builder() -> Any:
    port = InProcess(IMPL, "cpu")
    setup = BuilderSetup("mamba1", "all", block_size=4, max_model_len=4 * WIDTH)
    keywords = {name: port.materialise(value) for name, value in setup.construct().keywords}
    return IMPL.resolve(setup.builder)(**keywords)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("block_size", [1, 3, 4, 2**31])
def test_columns_are_those_of_contract_1_11(block_size: int, dtype: torch.dtype) -> None:
    most = min(WIDTH * block_size, 40)
    rows = [(computed, query) for computed in range(most + 1) for query in range(most - computed + 1)]
    starts = torch.tensor([0, *(query for _, query in rows)]).cumsum(0).to(dtype)
    common = SimpleNamespace(
        query_start_loc=starts,
        seq_lens=torch.tensor([computed + query for computed, query in rows]).to(dtype),
        block_table_tensor=torch.ones(len(rows), WIDTH, dtype=torch.int32),
    )
    found = builder()._compute_prefix_caching_block_indices(common, block_size)
    assert [one.dtype for one in found] == [torch.int32] * 3
    assert list(zip(*(one.tolist() for one in found), strict=True)) == [
        (
            max(-(-computed // block_size) - 1, 0),
            computed // block_size,
            max(-(-(computed + query) // block_size) - 1, 0),
        )
        for computed, query in rows
    ]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_batch_of_one_row_may_have_more_columns_than_rows(dtype: torch.dtype) -> None:
    common = SimpleNamespace(
        query_start_loc=torch.tensor([0, 3], dtype=dtype),
        seq_lens=torch.tensor([4 * WIDTH], dtype=dtype),
        block_table_tensor=torch.ones(1, WIDTH, dtype=torch.int32),
    )
    found = builder()._compute_prefix_caching_block_indices(common, 4)
    assert [one.tolist() for one in found] == [[WIDTH - 1]] * 3


def test_lengths_on_a_device_are_not_checked_against_the_table() -> None:
    blocks.StateBlocks("align", 4, 1).check("table", torch.ones(2, 2), None, 1, "build")
    with pytest.raises(ValueError, match=r"^seq_lens\[1\] = 5, but should be <= 4, what block_table covers "):
        blocks.StateBlocks("align", 4, 1).check("table", torch.ones(2, 2), np.array([4, 5]), 1, "build")


@pytest.mark.parametrize("block_size", [2**31 - 1, 2**31, 2**62, 2**63, 2**64])
def test_blocks_that_hold_every_token_keep_the_first_column(block_size: int) -> None:
    table = torch.tensor([[5, 6], [7, 8]], dtype=torch.int32)
    spec = IMPL.resolve("MambaSpec")(
        block_size=block_size, shapes=((2, 3),), dtypes=(torch.float32,), num_speculative_blocks=0
    )
    gathered = IMPL.resolve("mamba_get_block_table_tensor")(
        table, torch.tensor([0, 2**31 - 1], dtype=torch.int32), spec, "align"
    )
    assert gathered.tolist() == [[5], [7]]
