"""Memory for the states of layers, as serving engines lay it out."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

Specs = Sequence[tuple[str, Sequence[int], torch.dtype]]


def make_pools(
    layers: Sequence[Specs],
    *,
    num_blocks: int,
    device: str | torch.device,
    page_bytes: int | None = None,
) -> list[list[tuple[str, torch.Tensor]]]:
    """State tensors for (kind, shape of one block, dtype), as serving engines lay them out, with no contents yet.

    Each layer has one buffer of `num_blocks` pages; its states lie one behind another in each page, every one
    aligned to its element size. Without `page_bytes`, a layer's pages are as small as that allows.

    Raises:
        ValueError: `page_bytes` is too small for a layer's states or not a multiple of their element sizes.
    """
    return [_paged(states, num_blocks, device, page_bytes, f"layers[{i}]") for i, states in enumerate(layers)]


def _paged(
    states: Specs, num_blocks: int, device: str | torch.device, page_bytes: int | None, place: str
) -> list[tuple[str, torch.Tensor]]:
    starts, end = [], 0
    for _, shape, dtype in states:
        starts.append(-(-end // dtype.itemsize) * dtype.itemsize)
        end = starts[-1] + prod(shape) * dtype.itemsize
    unit = max((dtype.itemsize for _, _, dtype in states), default=1)
    page = -(-end // unit) * unit if page_bytes is None else page_bytes
    if page < end or page % unit:
        raise ValueError(f"page_bytes = {page}, but should be >= {end} and a multiple of {unit} [{place}]")
    buffer = torch.empty(num_blocks * page, dtype=torch.uint8, device=device)
    parts = zip(states, starts, strict=True)
    return [(kind, _state_in(buffer, shape, dtype, start, page)) for (kind, shape, dtype), start in parts]


def _state_in(
    buffer: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, start: int, page: int
) -> torch.Tensor:
    size = prod(shape)
    flat = (buffer.numel() // page, size), (page // dtype.itemsize, 1), start // dtype.itemsize
    return buffer.view(dtype).as_strided(*flat).unflatten(1, tuple(shape))
