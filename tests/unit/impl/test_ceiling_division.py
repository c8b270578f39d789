"""Ceiling division of tensors in all integer dtypes, and where hardware traps."""

from __future__ import annotations

import pytest
import torch

from subjects import load

cdiv = load("impl").resolve("cdiv")
SIGNED = torch.int8, torch.int16, torch.int32, torch.int64


@pytest.mark.parametrize("dtype", [torch.uint8, *SIGNED])
def test_every_integer_dtype_is_divided_exactly_and_kept(dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    values = sorted({*range(max(limits.min, -9), 10), limits.min, limits.min + 1, limits.max})
    x = torch.tensor(values, dtype=dtype)
    for y in sorted({*range(max(limits.min, -4), 5), limits.min, limits.max} - {0, -1}):
        found = cdiv(x, y)
        assert found.dtype == dtype
        assert found.tolist() == [-(-value // y) for value in values], y


@pytest.mark.parametrize("dtype", SIGNED)
def test_the_smallest_integer_over_minus_one_wraps_and_does_not_trap(dtype: torch.dtype) -> None:
    least = torch.iinfo(dtype).min
    assert cdiv(torch.tensor([least, least + 1, 5], dtype=dtype), -1).tolist() == [least, -(least + 1), -5]
