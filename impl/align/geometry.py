"""Whether a cache's geometry and block tables are such that the align-mode copies can be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..checks import describe, refuse
from ..layout import is_conv_state_dim_first


def check_geometry(spec: Any, function: str) -> None:
    """Refuse a MambaSpec under which a step could pass two boundaries, or store more drafts than conv rows.

    A 2-D shape is a conv state's, but for the last of several states, which is the temporal one.
    """
    tokens = 1 + spec.num_speculative_blocks
    if tokens > spec.block_size:
        rule = f"< {spec.block_size}, the block size: a step may pass one boundary at most"
        refuse("num_speculative_blocks", spec.num_speculative_blocks, rule, function)
    shapes = spec.shapes
    for i, shape in enumerate(shapes):
        if len(shape) != 2 or (i > 0 and i == len(shapes) - 1):
            continue
        rows = shape[1] if is_conv_state_dim_first() else shape[0]
        if rows < tokens:
            rule = f"with at least {tokens} conv rows, one for each token of a step"
            refuse(f"shapes[{i}]", tuple(shape), rule, function)


def checked_tables(
    block_tables: Sequence[torch.Tensor], num_groups: int, device: torch.device, function: str
) -> Sequence[torch.Tensor]:
    """`block_tables` itself, if there is one int32 table per group, all with one width and one row stride."""
    if len(block_tables) != num_groups:
        refuse("block_tables", f"{len(block_tables)} tables", f"{num_groups}, one per mamba group", function)
    for i, table in enumerate(block_tables):
        fits = isinstance(table, torch.Tensor) and table.dtype == torch.int32 and table.ndim == 2
        if not fits or table.device.type != device.type or (table.size(1) > 1 and table.stride(1) != 1):
            rule = f"an int32 tensor [rows, width] on {device} with contiguous rows"
            refuse(f"block_tables[{i}]", describe(table), rule, function)
    first = block_tables[0]
    for i, table in enumerate(block_tables):
        if (table.stride(0), table.size(1)) != (first.stride(0), first.size(1)):
            seen = f"row stride {table.stride(0)}, width {table.size(1)}"
            rule = f"row stride {first.stride(0)}, width {first.size(1)} as block_tables[0]"
            refuse(f"block_tables[{i}]", seen, rule, function)
    return block_tables
