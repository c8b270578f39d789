"""What is executed computes bfloat16 as a GPU does. A launch that has to be interpreted and computes with it is not made."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.kernels.source import compile as compile_module
from statecheck.kernels.source.ir import NotUnderstoodError
from statecheck.sanitizer import Bfloat16Arithmetic, sanitize

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


@pytest.fixture
def not_understood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The executor knows no operation."""

    def refuse(*_: Any) -> Any:
        raise NotUnderstoodError("anything")

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile_module, "_made", refuse)
    monkeypatch.setattr(combine_kernel, "device_caches", copy(combine_kernel.device_caches))
    combine_kernel.device_caches.clear()


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
def test_what_is_executed_is_right(operation: str) -> None:
    out = torch.zeros(4, dtype=BF16)
    with sanitize():
        combine_kernel[(1,)](A, B, out, OPERATION=operation, SIZE=4)
    assert out.tolist() == RIGHT[operation]().tolist()


@pytest.mark.usefixtures("not_understood")
def test_a_launch_that_is_interpreted_is_refused() -> None:
    words = r"^combine_kernel has bfloat16 numbers, .*; the executor does not know anything$"
    with pytest.raises(Bfloat16Arithmetic, match=words):
        combine_kernel[(1,)](A, B, torch.zeros(4, dtype=BF16), OPERATION="add", SIZE=4)
    combine_kernel[(1,)](A.float(), B.float(), torch.zeros(4), OPERATION="add", SIZE=4)
