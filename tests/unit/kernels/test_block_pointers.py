"""Blocks of a tensor are loaded and stored as far as they lie inside of it."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.usefixtures("executed")


@triton.jit
def sum_of_two_blocks_kernel(  # type: ignore[no-untyped-def]
    x_ptr, out_ptr, rows, columns, stride, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    first = tl.program_id(0) * ROWS
    block = tl.make_block_ptr(x_ptr, (rows, columns), (stride, 1), (first, 0), (ROWS, COLUMNS), (1, 0))
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(2):
        total += tl.load(block, boundary_check=(0, 1), padding_option="zero")
        block = tl.advance(block, (0, step))
    out = tl.make_block_ptr(out_ptr, (rows, columns), (columns, 1), (first, 0), (ROWS, COLUMNS), (1, 0))
    tl.store(out, total.to(out.dtype.element_ty), boundary_check=(0, 1))


@pytest.mark.parametrize("step", [-1, 2])
def test_blocks_move_and_end_where_their_tensor_ends(step: int) -> None:
    x, out = torch.arange(18.0).reshape(3, 6)[:, :5], torch.full((5, 5), -1.0)
    sum_of_two_blocks_kernel[(2,)](x, out, 3, 5, 6, step, ROWS=2, COLUMNS=8)
    moved = torch.nn.functional.pad(x, (-step, step))
    assert torch.equal(out[:3], x + moved)
    assert out[3:].eq(-1).all()
