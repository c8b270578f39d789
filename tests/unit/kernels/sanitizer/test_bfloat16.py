"""Executed kernels compute bfloat16 as a GPU does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

from statecheck.sanitizer import sanitize

pytestmark = pytest.mark.usefixtures("executed")

BF16 = torch.bfloat16


@triton.jit
def combine_kernel(a_ptr, b_ptr, out_ptr, OPERATION: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    a = tl.load(a_ptr + lanes)
    b = tl.load(b_ptr + lanes)
    if OPERATION == "add":
        a = a + b
    elif OPERATION == "multiply":
        a = a * b
    elif OPERATION == "less":
        a = tl.where(a < b, a, b)
    elif OPERATION == "equal":
        a = tl.where(a == b, a, b)
    elif OPERATION == "negate":
        a = -a
    elif OPERATION == "fma":
        a = tl.fma(a, b, a)
    elif OPERATION == "where":
        a = tl.where(lanes < 2, a, b)
    elif OPERATION == "zero":
        a = tl.where(lanes < 2, a, 0.0)
    elif OPERATION == "wide":
        a = (a.to(tl.float32) + 1.0).to(tl.bfloat16)
    elif OPERATION == "wide sum":
        a = tl.broadcast_to(tl.sum(a.to(tl.float32), 0), (SIZE,)).to(tl.bfloat16)
    tl.store(out_ptr + lanes, a)


A, B = torch.tensor([256, 2.5, -3, 0.1], dtype=BF16), torch.tensor([1, 2.5, 7, 1 / 3], dtype=BF16)
RIGHT: dict[str, Callable[[], torch.Tensor]] = {
    "add": lambda: A + B,
    "multiply": lambda: A * B,
    "less": lambda: torch.minimum(A, B),
    "equal": lambda: torch.where(A == B, A, B),
    "negate": lambda: -A,
    "fma": lambda: (A.double() * B.double() + A.double()).to(BF16),
    "where": lambda: torch.cat([A[:2], B[2:]]),
    "zero": lambda: torch.cat([A[:2], torch.zeros(2, dtype=BF16)]),
    "wide": lambda: (A.float() + 1).to(BF16),
    "wide sum": lambda: A.float().sum().to(BF16).expand(4),
}


@pytest.mark.parametrize("operation", RIGHT)
def test_executed_bfloat16_is_right(operation: str) -> None:
    out = torch.zeros(4, dtype=BF16)
    with sanitize():
        combine_kernel[(1,)](A, B, out, OPERATION=operation, SIZE=4)
    assert out.tolist() == RIGHT[operation]().tolist()
