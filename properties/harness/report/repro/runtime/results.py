"""What came out beside what should: one sentence for each difference."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["expect", "expect_tensor", "expect_type"]

findings: list[str] = []


def expect(place: str, observed: object, expected: object) -> None:
    # True == 1 and 2.0 == 2, but they are other results.
    if type(observed) is not type(expected) or observed != expected:
        findings.append(f"{place} = {observed}, but should be {expected}")


def expect_tensor(place: str, observed: Any, expected: torch.Tensor) -> None:
    if not isinstance(observed, torch.Tensor):
        expect(place, type(observed).__name__, "Tensor")
        return
    expect(f"{place}.dtype", observed.dtype, expected.dtype)
    expect(f"tuple({place}.shape)", tuple(observed.shape), tuple(expected.shape))
    expect(f"{place}.device.type", observed.device.type, expected.device.type)
    if observed.dtype == expected.dtype and observed.shape == expected.shape:
        expect(f"{place}.tolist()", observed.tolist(), expected.tolist())


def expect_type(place: str, observed: object, expected: type) -> None:
    if not isinstance(observed, expected):
        findings.append(f"{place} is of type {type(observed).__name__}, but should be {expected.__name__}")
