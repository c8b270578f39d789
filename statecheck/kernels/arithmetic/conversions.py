"""Conversions between element types as compiled for an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic.elements import BYTES, DTYPES, FLOATS, INTEGERS, WIDTHS
from statecheck.kernels.arithmetic.floats import sum_to_odd
from statecheck.kernels.arithmetic.integers import unsigned
from statecheck.kernels.arithmetic.rounding import f64_to_bf16, to_bf16

Convert = Callable[[Any], Any]


def same(value: Any) -> Any:
    return value


def _of_bits(value: Any) -> Any:
    return value if value.dtype == np.bool_ else unsigned(value)


def extend_signed(source: str, result: str) -> Convert:
    dtype = DTYPES[result]
    return (lambda value: -value.astype(dtype)) if source == "i1" else lambda value: value.astype(dtype)


def extend_unsigned(source: str, result: str) -> Convert:  # noqa: ARG001 - as the others
    dtype = DTYPES[result]
    return lambda value: _of_bits(value).astype(dtype)


def truncate(source: str, result: str) -> Convert:  # noqa: ARG001 - as the others
    dtype = DTYPES[result]
    return (lambda value: (value & 1) != 0) if result == "i1" else lambda value: value.astype(dtype)


def index_cast(source: str, result: str, extend: Callable[[str, str], Convert]) -> Convert:
    return (truncate if INTEGERS[source] > INTEGERS[result] else extend)(source, result)


def _from_number(source: str, result: str) -> Convert:
    """From integers of any width."""
    if result != "bf16":
        dtype = DTYPES[result]
        return lambda numbers: numbers.astype(dtype)
    if INTEGERS[source] < 64:
        return lambda numbers: f64_to_bf16(numbers.astype(np.float64))

    def convert(numbers: Any) -> Any:
        high = (numbers >> 32).astype(np.float64) * 2.0**32
        return f64_to_bf16(sum_to_odd(high, (numbers & 0xFFFFFFFF).astype(np.float64)))

    return convert


def signed_to_float(source: str, result: str) -> Convert | None:
    """None for i1, of which Triton makes unsigned numbers only."""
    return None if source == "i1" else _from_number(source, result)


def unsigned_to_float(source: str, result: str) -> Convert:
    convert = _from_number(source, result)
    return lambda value: convert(_of_bits(value))


def float_to_integer(source: str, result: str, *, is_signed: bool) -> Convert | None:
    """Toward zero. What is out of range becomes the nearest integer that is not; 8 bits are the lower ones of 16.

    A NaN becomes zero, but where one of the types has 64 bits, it becomes the integer of the highest bit alone. None for i1,
    which Triton asks for with a comparison.
    """
    if result == "i1":
        return None
    working = max(INTEGERS[result], 16)
    low = -(1 << working - 1) if is_signed else 0
    high = low + (1 << working) - 1
    of_nan = 1 << working - 1 if source == "f64" or working == 64 else 0
    dtype, wide = DTYPES[result], np.int64 if is_signed else np.uint64

    def convert(value: Any) -> Any:
        number = value.astype(np.float64)
        above, below, nan = number >= high + 1, number < low, np.isnan(number)
        inside = np.where(above | below | nan, 0, number).astype(wide).view(np.int64)
        outside = (np.array(limit, np.uint64).view(np.int64) for limit in (high, low % (1 << 64), of_nan))
        return np.select((above, below, nan), tuple(outside), inside).astype(dtype)

    return convert


def extend_float(source: str, result: str) -> Convert | None:
    """To a longer format; exact."""
    if source in BYTES or FLOATS[source] >= FLOATS[result]:
        return None
    dtype = DTYPES[result]
    return lambda value: value.astype(dtype)


def truncate_float(source: str, result: str) -> Convert | None:
    """To a shorter format, to the nearest."""
    if result in BYTES or FLOATS[source] <= FLOATS[result]:
        return None
    if result == "bf16":
        return to_bf16 if source == "f32" else f64_to_bf16
    dtype = DTYPES[result]
    return lambda value: value.astype(dtype)


def bitcast(source: str, result: str) -> Convert | None:
    """The same bits as another type of as many."""
    if source == result or {source, result} <= {"i64", "ptr"}:
        return same
    if WIDTHS[source] != WIDTHS[result] or WIDTHS[source] == 1:
        return None
    dtype = DTYPES[result]
    if source == "bf16":
        return lambda value: (value.view(np.uint32) >> 16).astype(np.uint16).view(dtype)
    if result == "bf16":
        return lambda value: (value.view(np.uint16).astype(np.uint32) << 16).view(dtype)
    return lambda value: value.view(dtype)
