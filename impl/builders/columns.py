"""Mode all: the columns of the block table that a step reads its states from and writes them to."""

from typing import Any

import torch

from .blocks import StateBlocks
from .common import tokens_before


def token_columns(common: Any, blocks: StateBlocks) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Columns of each row's last computed token, first scheduled and last scheduled one; [R] int32.

    The first and the last are 0 where there is no such token. Source: contract 1.11.
    """
    computed, most = tokens_before(common), common.block_table_tensor.size(1)
    last_scheduled = blocks.column_of_last(common.seq_lens, most)
    return blocks.column_of_last(computed, most), blocks.column_of_next(computed, most), last_scheduled


def add_columns(
    metadata: Any,
    common: Any,
    blocks: StateBlocks,
    buffers: tuple[torch.Tensor, torch.Tensor] | None,
) -> None:
    """Add the columns of each row to the metadata.

    `buffers`: of the last computed and the last scheduled token, [>= R] int32, which a graph reads; None for new tensors.
    """
    rows, first = metadata.num_reqs, metadata.num_decodes
    computed_out, scheduled_out = (None, None) if buffers is None else (each[:rows] for each in buffers)
    computed, most = tokens_before(common), common.block_table_tensor.size(1)
    metadata.block_idx_last_computed_token = blocks.column_of_last(computed, most, computed_out)
    metadata.block_idx_last_scheduled_token = blocks.column_of_last(common.seq_lens, most, scheduled_out)
    if metadata.num_prefills:
        computed = computed[first:]
        metadata.num_computed_tokens_p = computed.to(torch.int32)
        metadata.block_idx_first_scheduled_token_p = blocks.column_of_next(computed, most)
