"""Conversions between floating-point formats, bit by bit.

Rounding is to the nearest, ties to even, and once, as conversions of the GPU do it; or toward zero. NaNs become the GPU's
one: all bits set but the sign, except where a conversion is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic.elements import Array

Convert = Callable[[Any], Any]

_BF16_NAN = np.uint32(0x7FFF0000).view(np.float32)
_HIGH_HALF = 0xFFFF0000


def to_bf16(value: Any) -> Any:
    """The nearest bf16 of an f32."""
    if not isinstance(value, np.ndarray):
        word = int(value.view(np.uint32))
        if word & 0x7FFFFFFF > 0x7F800000:
            return _BF16_NAN
        # 0x7FFF rounds a tie down; one more, where the last bit that stays is odd, rounds it up to the even neighbour.
        return np.uint32(word + 0x7FFF + (word >> 16 & 1) & _HIGH_HALF).view(np.float32)
    bits = value.view(np.uint32)
    rounded = (bits >> 16) & 1
    rounded += bits
    rounded += 0x7FFF
    rounded &= _HIGH_HALF
    return _with_nan(rounded.view(np.float32), value)


def to_bf16_toward_zero(value: Any) -> Any:
    """The bf16 of an f32 without its low bits."""
    if not isinstance(value, np.ndarray):
        return to_bf16_toward_zero(np.array([value]))[0]
    return _with_nan((value.view(np.uint32) & _HIGH_HALF).view(np.float32), value)


def _with_nan(rounded: Array, value: Array) -> Array:
    nan = np.isnan(value)
    if nan.any():
        rounded[nan] = _BF16_NAN
    return rounded


def nearest(value: Any, precision: int, lowest: int) -> Any:
    """The nearest multiple, ties to even, of what ends the significands of that many bits of an f64.

    `lowest` is the exponent of the smallest normal number. Nothing overflows.
    """
    exponent = np.maximum(np.frexp(value)[1] - 1, lowest) - (precision - 1)
    return np.ldexp(np.rint(np.ldexp(value, -exponent)), exponent)


def f64_to_bf16(value: Any) -> Any:
    """The nearest bf16 of an f64."""
    return to_bf16(nearest(value, 8, -126).astype(np.float32))


def to_f16_toward_zero(value: Any) -> Any:
    """The f16 next to an f32 on the side of zero; the largest one in place of what overflows."""
    if not isinstance(value, np.ndarray):
        return to_f16_toward_zero(np.array([value]))[0]
    near = value.astype(np.float16)
    beyond = np.abs(near.astype(np.float32)) > np.abs(value)
    # One less among the bits is one step toward zero, whatever the sign.
    return (near.view(np.uint16) - beyond).view(np.float16)


def f16_to_bf16(value: Any) -> Any:
    return to_bf16(value.astype(np.float32))


def f16_to_bf16_toward_zero(value: Any) -> Any:
    return to_bf16_toward_zero(value.astype(np.float32))


def _to_byte(precision: int, lowest: int, largest: float, byte: Callable[[Array], Array]) -> Convert:
    """What overflows becomes the largest number, infinities too."""

    def convert(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return int(convert(np.array([value]))[0])
        rounded = np.clip(nearest(value.astype(np.float64), precision, lowest), -largest, largest)
        return np.where(np.isnan(rounded), np.uint8(0x7F), byte(rounded))

    return convert


def _e5m2(rounded: Array) -> Array:
    return (rounded.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)


def _e4m3(rounded: Array) -> Array:
    # Times 2**-8, so that the exponent's field is that of an f16 without its highest bit.
    bits = np.ldexp(rounded, -8).astype(np.float16).view(np.uint16)
    return ((bits >> 8 & 0x80) | (bits >> 7 & 0x7F)).astype(np.uint8)


to_e5m2 = _to_byte(3, -14, 57344.0, _e5m2)
to_e4m3 = _to_byte(4, -6, 448.0, _e4m3)


def to_e5m2_toward_zero(value: Any) -> Any:
    """The upper byte of the f16 next to an f32 on the side of zero, as Triton computes it."""
    if not isinstance(value, np.ndarray):
        return int(to_e5m2_toward_zero(np.array([value]))[0])
    near = np.where(np.isnan(value), np.uint16(0x7FFF), to_f16_toward_zero(value).view(np.uint16))
    return (near >> 8).astype(np.uint8)


def _numbers(precision_bits: int, bias: int) -> Array:
    """The number of every byte, were all exponents those of numbers."""
    byte = np.arange(256)
    exponent, fraction = (byte & 0x7F) >> precision_bits, byte & (1 << precision_bits) - 1
    significand = np.where(exponent > 0, fraction + (1 << precision_bits), fraction)
    numbers: Array = np.ldexp(significand, np.maximum(exponent, 1) - bias - precision_bits)
    return np.where(byte < 128, numbers, -numbers)


def _e5m2_numbers() -> Array:
    return (np.arange(256, dtype=np.uint16) << 8).view(np.float16)


def _e4m3_numbers() -> Array:
    numbers = _numbers(3, 7).astype(np.float16)
    numbers[[0x7F, 0xFF]] = np.uint16(0x7FFF).view(np.float16)
    return numbers


def _table(numbers: Array) -> Convert:
    return lambda value: numbers[value]


BYTE_TO: dict[tuple[str, str], Convert] = {
    ("f8E5M2", "f16"): _table(_e5m2_numbers()),
    ("f8E5M2", "f32"): _table(_e5m2_numbers().astype(np.float32)),
    # Triton shifts the bits into place and multiplies: there are neither infinities nor NaNs.
    ("f8E5M2", "bf16"): _table(_numbers(2, 15).astype(np.float32)),
    ("f8E4M3FN", "f16"): _table(_e4m3_numbers()),
    ("f8E4M3FN", "f32"): _table(_e4m3_numbers().astype(np.float32)),
    ("f8E4M3FN", "bf16"): _table(_e4m3_numbers().astype(np.float32)),
}

FP_TO_FP: dict[tuple[str, str], dict[str | None, Convert]] = {
    ("f16", "f32"): dict.fromkeys((None, "rtne", "rtz"), lambda value: value.astype(np.float32)),
    ("f32", "f16"): {"rtne": lambda value: value.astype(np.float16), "rtz": to_f16_toward_zero},
    ("f32", "bf16"): {"rtne": to_bf16, "rtz": to_bf16_toward_zero},
    ("f16", "bf16"): {None: f16_to_bf16, "rtne": f16_to_bf16, "rtz": f16_to_bf16_toward_zero},
    ("bf16", "f16"): {
        None: lambda value: value.astype(np.float16),
        "rtne": lambda value: value.astype(np.float16),
        "rtz": to_f16_toward_zero,
    },
    **{(source, "f8E5M2"): {"rtne": to_e5m2} for source in ("f16", "bf16")},
    ("f32", "f8E5M2"): {"rtne": to_e5m2, "rtz": to_e5m2_toward_zero},
    **{(source, "f8E4M3FN"): {"rtne": to_e4m3} for source in ("f16", "bf16", "f32")},
    **{pair: dict.fromkeys((None, "rtne", "rtz"), convert) for pair, convert in BYTE_TO.items()},
}
