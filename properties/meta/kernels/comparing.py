"""Results of the executor's arithmetic as bits, and their comparison with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from properties.harness.kernels.arithmetic import operation
from properties.meta.kernels.cases import ArithmeticCase
from properties.meta.kernels.values import WIDTHS, Array, decode, edges, encode, is_nan, operands


def known(case: ArithmeticCase) -> Callable[..., Any]:
    compute = operation(case.name, case.operands, case.result, case.attributes)
    assert compute is not None, f"{case} is not known"
    return compute


def found(name: str, types: tuple[str, ...], result: str, *columns: Array, **attributes: str) -> list[int]:
    """Bits of the results on all rows."""
    compute = known(ArithmeticCase(name, types, result, attributes))
    values = [decode(bits, element) for bits, element in zip(columns, types, strict=True)]
    with np.errstate(all="ignore"):
        return encode(compute(*values), result).tolist()


def same(case: str, element: str, rows: list[Any], here: list[int], expected: list[int | None]) -> None:
    """None stands for any NaN."""
    nan = is_nan(np.array(here, f"u{WIDTHS[element] // 8}"), element)
    for row, seen, one, seen_nan in zip(rows, here, expected, nan, strict=True):
        agrees = bool(seen_nan) if one is None else seen == one
        assert agrees, f"{case} of {row} = {seen:#x}, but should be {one if one is None else hex(one)}"


def few(element: str, step: int = 1) -> Array:
    """Edges, every `step`-th of them."""
    return edges(element)[::step]


def pairs(a: Array, b: Array) -> tuple[Array, Array]:
    return np.repeat(a, len(b)), np.tile(b, len(a))


def bits_to_convert(element: str) -> Array:
    """All where there are few, else edges and random ones."""
    (bits,) = operands((element,))
    return bits[::7] if len(bits) > 30000 else bits
