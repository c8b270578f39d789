"""Mode all: the columns of each row's last computed token, first scheduled one and last scheduled one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from subjects import load

IMPL = load("impl")
blocks: Any = import_module("impl.builders.blocks")


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
