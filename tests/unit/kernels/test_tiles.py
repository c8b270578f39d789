"""Operations of kernels on whole tiles, executed: reductions and scans along an axis, products, and what is picked of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.helpers.toy_kernels import tile_kernel

pytestmark = pytest.mark.usefixtures("executed")

TILE = torch.tensor([[3, -1, 4, 1], [-5, 9, 2, 6], [5, 3, -5, 8], [9, 7, 9, -3]], dtype=torch.int32)


RIGHT: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda tile: tile.sum(0).expand(4, 4),
    "max": lambda tile: tile.amax(1)[:, None].expand(4, 4),
    "argmax": lambda tile: tile.argmax(1)[:, None].expand(4, 4),
    "cumsum": lambda tile: tile.cumsum(1),
    "cumsum backwards": lambda tile: tile.flip(0).cumsum(0).flip(0),
    "cumprod": lambda tile: tile.cumprod(0),
    "all": lambda tile: tile + tile.sum(),
}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32], ids=str)
@pytest.mark.parametrize("operation", RIGHT)
def test_a_tile_is_reduced_and_scanned_as_torch_does(operation: str, dtype: torch.dtype) -> None:
    tile = TILE.to(dtype)
    out = torch.zeros_like(tile)
    tile_kernel[(1,)](tile, out, OPERATION=operation, SIZE=4)
    assert out.tolist() == RIGHT[operation](tile).tolist()
