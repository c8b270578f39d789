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
    elif OPERATION == "atomic add":
        tl.atomic_add(out_ptr + lanes, a)
    elif OPERATION == "scan":
        a = tl.associative_scan(a, 0, chosen)
    elif OPERATION == "reduction":
        a = tl.broadcast_to(tl.reduce(a, 0, chosen), (SIZE,))
    elif OPERATION == "where":
        a = tl.where(lanes < 2, a, b)
    elif OPERATION == "zero":
        a = tl.where(lanes < 2, a, 0.0)
    elif OPERATION == "reshape":
        a = tl.reshape(tl.trans(tl.reshape(a, (2, SIZE // 2))), (SIZE,))
    elif OPERATION == "bitcast":
        a = (a.to(tl.int16, bitcast=True) ^ 1).to(tl.bfloat16, bitcast=True)
    elif OPERATION == "wide":
        a = (a.to(tl.float32) + 1.0).to(tl.bfloat16)
    elif OPERATION == "wide sum":
        a = tl.broadcast_to(tl.sum(a.to(tl.float32), 0), (SIZE,)).to(tl.bfloat16)
    tl.store(out_ptr + lanes, a)


@triton.jit
def chosen(a, b):  # type: ignore[no-untyped-def]
    return tl.where(True, a, b)


@triton.jit
def dot_kernel(a_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    square = lanes[:, None] * SIZE + lanes[None, :]
    a = tl.load(a_ptr + square)
    tl.store(out_ptr + square, tl.dot(a, a))


@triton.jit
def cast_kernel(in_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, SIZE)
    tl.store(out_ptr + lanes, tl.load(in_ptr + lanes).to(out_ptr.dtype.element_ty))


@pytest.fixture
def not_understood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The executor knows no operation."""

    def refuse(*_: Any) -> Any:
        raise NotUnderstoodError("anything")

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile_module, "_made", refuse)
    for kernel in (combine_kernel, dot_kernel, cast_kernel):
        monkeypatch.setattr(kernel, "device_caches", copy(kernel.device_caches))
        kernel.device_caches.clear()


def refused(kernel: Any, *arguments: Any, **constexprs: Any) -> str:
    """Why a launch is not made, "" if it is."""
    try:
        kernel[(1,)](*arguments, **constexprs)
    except Bfloat16Arithmetic as finding:
        return str(finding)
    return ""


def combined(operation: str) -> str:
    a, b, out = torch.tensor([1, 2, 3, 4], dtype=BF16), torch.ones(4, dtype=BF16), torch.zeros(4, dtype=BF16)
    return refused(combine_kernel, a, b, out, OPERATION=operation, SIZE=4)


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
@pytest.mark.parametrize(
    "operation",
    ["add", "multiply", "less", "equal", "negate", "fma", "atomic add", "wide", "wide sum"],
)
def test_arithmetic_is_refused(operation: str) -> None:
    words = combined(operation)
    assert words.startswith("combine_kernel computes with bfloat16 numbers (")
    assert words.endswith("which gets them wrong; the executor does not know anything")


@pytest.mark.usefixtures("not_understood")
@pytest.mark.parametrize("operation", ["where", "zero", "reshape", "bitcast", "scan", "reduction"])
def test_what_only_moves_bits_is_interpreted(operation: str) -> None:
    assert not combined(operation)


@pytest.mark.usefixtures("not_understood")
def test_a_dot_and_a_cast_are_refused() -> None:
    square, out = torch.ones(16, 16, dtype=BF16), torch.zeros(16, 16)
    assert "(tt.dot)" in refused(dot_kernel, square, out, SIZE=16)
    assert not refused(dot_kernel, square.float(), out, SIZE=16)
    assert "(arith.truncf)" in refused(cast_kernel, out[0], square[0], SIZE=16)
    assert "(arith.extf)" in refused(cast_kernel, square[0], out[0], SIZE=16)
