"""What is executed computes bfloat16 as a GPU does. Of a launch that has to be interpreted, what comes out wrong is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from properties.harness.kernels import interpreted
from properties.sanitizer import Bfloat16Arithmetic, sanitize

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


def found(kernel: Any, *arguments: Any, **constexprs: Any) -> str:
    """What is found in a launch that is interpreted, "" if nothing."""
    with sanitize():
        try:
            interpreted.launch(kernel, (1, 1, 1), (*arguments, *constexprs.values()))
        except Bfloat16Arithmetic as finding:
            return str(finding)
    return ""


def combined(operation: str) -> str:
    a, b, out = torch.tensor([1, 2, 3, 4], dtype=BF16), torch.ones(4, dtype=BF16), torch.zeros(4, dtype=BF16)
    return found(combine_kernel, a, b, out, OPERATION=operation, SIZE=4)


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


@pytest.mark.parametrize("number", [0.1, -0.1, 1 + 1 / 128 + 1 / 256, 3.4e38, 1 + 1 / 129, 1.5])
def test_a_cast_that_is_executed_rounds_to_the_nearest(number: float) -> None:
    numbers, out = torch.tensor([number]), torch.zeros(1, dtype=BF16)
    with sanitize():
        cast_kernel[(1,)](numbers, out, SIZE=1)
    assert out.tolist() == numbers.to(BF16).tolist()


@pytest.mark.parametrize(
    "operation", ["add", "multiply", "less", "equal", "negate", "fma", "scan", "reduction", "atomic add"]
)
def test_arithmetic_is_refused(operation: str) -> None:
    words = combined(operation)
    assert "computes a bfloat16" in words
    assert "at test_bfloat16.py:" in words


@pytest.mark.parametrize("operation", ["where", "zero", "reshape", "bitcast", "wide", "wide sum"])
def test_what_only_moves_bits_or_computes_in_float32_is_right(operation: str) -> None:
    assert not combined(operation)


def test_a_dot_is_refused() -> None:
    square = torch.ones(16, 16, dtype=BF16)
    assert "bfloat16 dot" in found(dot_kernel, square, torch.zeros(16, 16), SIZE=16)
    assert not found(dot_kernel, square.float(), torch.zeros(16, 16), SIZE=16)


def cast(numbers: torch.Tensor, to: torch.dtype) -> tuple[str, torch.Tensor]:
    out = torch.zeros(numbers.shape, dtype=to)
    return found(cast_kernel, numbers, out, SIZE=len(numbers)), out


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, -3.25, float("inf"), float("nan"), 1 + 1 / 1024])
def test_a_cast_that_cutting_off_gets_right_is_allowed(number: float) -> None:
    words, out = cast(torch.tensor([number]), BF16)
    assert not words
    assert torch.allclose(out, torch.tensor([number]).to(BF16), 0, 0, equal_nan=True)


@pytest.mark.parametrize("number", [0.1, -0.1, 1 + 1 / 128 + 1 / 256, 3.4e38, 1 + 1 / 129])
def test_a_cast_that_should_have_rounded_up_is_refused(number: float) -> None:
    words, _ = cast(torch.tensor([number]), BF16)
    assert "cast from fp32 to bf16" in words


def test_a_nan_whose_last_bits_alone_say_so_is_refused() -> None:
    nan = torch.tensor([0x7F800001], dtype=torch.int32).view(torch.float32)
    assert "cast from fp32 to bf16" in cast(nan, BF16)[0]


def test_every_bfloat16_widens_to_its_float32_or_is_refused() -> None:
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(BF16)
    for chunk in every.reshape(-1, 256):
        words, out = cast(chunk.contiguous(), torch.float32)
        right = chunk.to(torch.float32)
        assert words or bool(((out == right) | (out.isnan() & right.isnan())).all())


def test_normal_bfloat16_numbers_widen() -> None:
    numbers = torch.tensor([0, 1, -2.5, 3e38, -1e-30, float("inf"), float("-inf"), float("nan")], dtype=BF16)
    assert not cast(numbers, torch.float32)[0]


@pytest.mark.parametrize(("number", "refused"), [(1.5, False), (1 + 1 / 128 + 1 / 256, True)])
def test_half_precision_is_judged_by_its_result(number: float, refused: bool) -> None:
    assert bool(cast(torch.tensor([number], dtype=torch.float16), BF16)[0]) is refused
    assert not cast(torch.tensor([1.5], dtype=BF16), torch.float16)[0]
