"""Conversions between element types as compiled for an NVIDIA GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic.elements import (
    BYTES,
    DTYPES,
    FLOATS,
    INTEGERS,
    SIGNED,
    UNSIGNED,
    WIDTHS,
    Array,
    is_scalar,
    wrapped,
)
from statecheck.kernels.arithmetic.floats import sum_to_odd
from statecheck.kernels.arithmetic.rounding import f64_to_bf16, to_bf16

Convert = Callable[[Any], Any]


def same(value: Any) -> Any:
    return value


def extend_signed(source: str, result: str) -> Convert:
    if INTEGERS[source] == INTEGERS[result]:
        return same
    dtype = DTYPES[result]
    if source == "i1":
        return lambda value: -int(value) if is_scalar(value) else -value.astype(dtype)
    return lambda value: value if type(value) is int else value.astype(dtype)


def extend_unsigned(source: str, result: str) -> Convert:
    if INTEGERS[source] == INTEGERS[result]:
        return same
    dtype = DTYPES[result]
    if source == "i1":
        return lambda value: int(value) if is_scalar(value) else value.astype(dtype)
    mask, unsigned = (1 << INTEGERS[source]) - 1, UNSIGNED[INTEGERS[source]]
    return lambda value: value & mask if type(value) is int else value.view(unsigned).astype(dtype)


def truncate(source: str, result: str) -> Convert:
    if INTEGERS[source] == INTEGERS[result]:
        return same
    if result == "i1":
        return lambda value: (value & 1) != 0
    half, dtype = 1 << INTEGERS[result] - 1, DTYPES[result]
    mask = 2 * half - 1
    return lambda value: ((value + half) & mask) - half if type(value) is int else value.astype(dtype)


def index_cast(source: str, result: str) -> Convert:
    return (truncate if INTEGERS[source] > INTEGERS[result] else extend_signed)(source, result)


def index_cast_unsigned(source: str, result: str) -> Convert:
    return (truncate if INTEGERS[source] > INTEGERS[result] else extend_unsigned)(source, result)


def _from_number(source: str, result: str) -> Convert:
    """From an array of integers of any width, or a NumPy integer."""
    if result != "bf16":
        dtype = DTYPES[result]
        return lambda numbers: numbers.astype(dtype)
    if INTEGERS[source] < 64:
        return lambda numbers: f64_to_bf16(numbers.astype(np.float64))

    def convert(numbers: Any) -> Any:
        high = (numbers >> 32).astype(np.float64) * 2.0**32
        return f64_to_bf16(sum_to_odd(high, (numbers & 0xFFFFFFFF).astype(np.float64)))

    return convert


def _integer_to_float(source: str, result: str, is_signed: bool) -> Convert:
    width = INTEGERS[source]
    if width == 1:
        dtype = DTYPES[result]
        return lambda value: dtype(value) if is_scalar(value) else value.astype(dtype)
    mask, signed_type, unsigned_type = (1 << width) - 1, SIGNED[width], UNSIGNED[width]
    convert = _from_number(source, result)

    def signed(value: Any) -> Any:
        return convert(signed_type(value) if type(value) is int else value)

    def unsigned(value: Any) -> Any:
        return convert(unsigned_type(value & mask) if type(value) is int else value.view(unsigned_type))

    return signed if is_signed else unsigned


def signed_to_float(source: str, result: str) -> Convert | None:
    """None for i1, of which Triton makes unsigned numbers only."""
    return None if source == "i1" else _integer_to_float(source, result, is_signed=True)


def unsigned_to_float(source: str, result: str) -> Convert:
    return _integer_to_float(source, result, is_signed=False)


def _float_to_integer(source: str, result: str, is_signed: bool) -> Convert | None:
    """Toward zero. What is out of range becomes the nearest integer that is not; 8 bits are the lower ones of 16.

    A NaN becomes zero, but where one of the types has 64 bits, it becomes the integer of the highest bit alone.
    """
    if result == "i1":
        return None
    width = INTEGERS[result]
    working = max(width, 16)
    low = -(1 << working - 1) if is_signed else 0
    high = low + (1 << working) - 1
    of_nan = 1 << working - 1 if source == "f64" or width == 64 else 0
    dtype, wide = DTYPES[result], np.int64 if is_signed else np.uint64

    def scalar(value: float) -> int:
        if math.isnan(value):
            number = of_nan
        else:
            number = high if value > high else low if value < low else int(value)
        return wrapped(number, width)

    def array(value: Array) -> Array:
        number = value.astype(np.float64)
        if ((number >= low) & (number < high + 1)).all():
            return number.astype(wide).view(np.int64).astype(dtype)
        above, below, nan = number >= high + 1, number < low, np.isnan(number)
        inside = np.where(above | below | nan, 0, number).astype(wide)
        limits = (wrapped(number, 64) for number in (high, low, of_nan))
        inside = inside.view(np.int64)
        for outside, limit in zip((above, below, nan), limits, strict=True):
            inside[outside] = limit
        return inside.astype(dtype)

    return lambda value: array(value) if isinstance(value, np.ndarray) else scalar(float(value))


def float_to_signed(source: str, result: str) -> Convert | None:
    """None for i1, which Triton asks for with a comparison."""
    return _float_to_integer(source, result, is_signed=True)


def float_to_unsigned(source: str, result: str) -> Convert | None:
    """None for i1, which Triton asks for with a comparison."""
    return _float_to_integer(source, result, is_signed=False)


def extend_float(source: str, result: str) -> Convert | None:
    """To a longer format; exact."""
    if source in BYTES or FLOATS[source] >= FLOATS[result]:
        return None
    dtype = DTYPES[result]
    return same if (source, result) == ("bf16", "f32") else lambda value: value.astype(dtype)


def truncate_float(source: str, result: str) -> Convert | None:
    """To a shorter format, to the nearest."""
    if result in BYTES or FLOATS[source] <= FLOATS[result]:
        return None
    if result == "bf16":
        return to_bf16 if source == "f32" else f64_to_bf16
    dtype = DTYPES[result]
    return lambda value: value.astype(dtype)


def _to_bits(element: str) -> Convert:
    """The bits as an unsigned NumPy integer, or an array of them."""
    width = WIDTHS[element]
    unsigned = UNSIGNED[width]
    if element == "bf16":
        return lambda value: (value.view(np.uint32) >> 16).astype(np.uint16)
    if element in FLOATS:
        return lambda value: value.view(unsigned)
    mask = (1 << width) - 1
    return lambda value: unsigned(value & mask) if type(value) is int else value.view(unsigned)


def _from_bits(element: str) -> Convert:
    dtype = DTYPES[element]
    if element == "bf16":
        return lambda bits: (bits.astype(np.uint32) << 16).view(np.float32)
    if element in FLOATS:
        return lambda bits: bits.view(dtype)
    return lambda bits: bits.view(dtype) if isinstance(bits, np.ndarray) else int(bits.view(dtype))


def bitcast(source: str, result: str) -> Convert | None:
    """The same bits as another type of as many."""
    if source == result or {source, result} <= {"i64", "ptr"}:
        return same
    if WIDTHS[source] != WIDTHS[result] or WIDTHS[source] == 1:
        return None
    to, back = _to_bits(source), _from_bits(result)
    return lambda value: back(to(value))
