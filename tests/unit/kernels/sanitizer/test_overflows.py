"""An offset that overflows int32 is a finding of its own where it is used, and none where its lane is masked."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
import triton
import triton.language as tl

from statecheck.kernels.launch import watching
from statecheck.sanitizer import OutsideView, OverflowedOffset, Sanitizer
from tests.unit.kernels.watching import found

pytestmark = pytest.mark.usefixtures("executed")


@triton.jit
def rows_kernel(x_ptr, out_ptr, stride, count, WIDE: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    if WIDE:
        rows = rows.to(tl.int64)
    places = rows[:, None] * stride + tl.arange(0, 2)[None, :]
    tile = tl.load(x_ptr + places, rows[:, None] < count)
    tl.store(out_ptr + rows[:, None] * 2 + tl.arange(0, 2)[None, :], tile, rows[:, None] < count)


@triton.jit
def scalar_kernel(x_ptr, out_ptr, row, stride):  # type: ignore[no-untyped-def]
    tl.store(out_ptr, tl.load((x_ptr + row * stride) + 1))


@triton.jit
def later_kernel(x_ptr, out_ptr, row, stride, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    pointers = x_ptr + (row * stride).to(tl.int64) + tl.arange(0, SIZE)
    for _ in range(2):
        pointers += SIZE
    tl.store(out_ptr + tl.arange(0, SIZE), tl.load(pointers))


BEHIND = 1 << 30


def rows(stride: int, count: int, *, wide: bool = False) -> str:
    x = torch.zeros(16, dtype=torch.int32)[:8]
    return found(rows_kernel, 1, x, torch.zeros_like(x), stride, count, WIDE=wide, SIZE=4)


def test_a_product_of_32_bits_that_overflows_names_its_line_and_the_offset() -> None:
    message = rows(BEHIND, 3)
    assert message.startswith(
        "OverflowedOffset: program (0, 0, 0) of rows_kernel loads 4 bytes at test_overflows.py:"
    )
    assert "overflows int32 at test_overflows.py:" in message
    assert "it is up to 3221225473, but should be < 2147483648" in message


# An overflow in a masked lane is none; behind the view there is more of its storage, which ends no process.
@pytest.mark.parametrize(
    ("stride", "count", "kinds"),
    [(BEHIND, 3, "oo"), (BEHIND, 2, "vv"), (BEHIND, 1, "  "), (4, 4, "v ")],
)
@pytest.mark.parametrize("bounds_only", [False, True])
def test_an_offset_that_fits_may_be_outside(stride: int, count: int, kinds: str, bounds_only: bool) -> None:
    kind = {"o": OverflowedOffset, "v": OutsideView}.get(kinds[bounds_only])
    x, watch = torch.zeros(16, dtype=torch.int32)[:8], Sanitizer(bounds_only=bounds_only)
    with nullcontext() if kind is None else pytest.raises(kind), watching(lambda: watch):
        rows_kernel[(1,)](x, torch.zeros_like(x), stride, count, WIDE=False, SIZE=4)


def test_an_offset_of_64_bits_does_not_overflow() -> None:
    assert rows(BEHIND, 3, wide=True).startswith("OutsideView: ")


def test_an_offset_that_comes_back_into_the_tensor_is_found() -> None:
    x = torch.zeros(16, dtype=torch.int32)
    # (1 << 16) * (1 << 16) is 0 in 32 bits: the access is in the tensor, and the wrong one.
    message = found(scalar_kernel, 1, x, torch.zeros(1, dtype=torch.int32), 1 << 16, 1 << 16)
    assert message.startswith("OverflowedOffset: program (0, 0, 0) of scalar_kernel loads 4 bytes")
    assert "it is up to 4294967296" in message


def test_an_overflow_shows_in_an_access_by_pointers_that_were_moved_on() -> None:
    x = torch.zeros(64, dtype=torch.int32)
    out = torch.zeros(8, dtype=torch.int32)
    assert found(later_kernel, 1, x, out, 1 << 16, 1 << 16, SIZE=8).startswith("OverflowedOffset: ")
    assert found(later_kernel, 1, x, out, 2, 16, SIZE=8) == ""
