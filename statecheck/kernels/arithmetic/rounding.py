"""Conversions between floating-point formats, bit by bit.

Rounding is to the nearest, ties to even, and once, as conversions of the GPU do it. NaNs become the GPU's NaN: all bits
set but the sign, except where a conversion is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Convert = Callable[[Any], Any]

_BF16_NAN = np.uint32(0x7FFF0000).view(np.float32)
_HIGH_HALF = 0xFFFF0000


def to_bf16(value: Any) -> Any:
    """The nearest bf16 of an f32."""
    bits = value.view(np.uint32)
    # 0x7FFF rounds a tie down; one more, where the last bit that stays is odd, rounds it up to the even neighbour.
    bits = bits + 0x7FFF + (bits >> 16 & 1)
    return np.where(np.isnan(value), _BF16_NAN, (bits & _HIGH_HALF).view(np.float32))


def nearest(value: Any, precision: int, lowest: int) -> Any:
    """The nearest multiple, ties to even, of what ends the significands of that many bits of an f64.

    `lowest` is the exponent of the smallest normal number. Nothing overflows.
    """
    exponent = np.maximum(np.frexp(value)[1] - 1, lowest) - (precision - 1)
    return np.ldexp(np.rint(np.ldexp(value, -exponent)), exponent)


def f64_to_bf16(value: Any) -> Any:
    """The nearest bf16 of an f64."""
    return to_bf16(nearest(value, 8, -126).astype(np.float32))


def f16_to_bf16(value: Any) -> Any:
    return to_bf16(value.astype(np.float32))


def _to_byte(element: torch.dtype) -> Convert:
    """To the nearest. What overflows becomes the largest number, infinities too."""
    largest = torch.finfo(element).max

    def convert(value: Any) -> Any:
        inside = np.asarray(np.clip(value.astype(np.float32), -largest, largest))
        return torch.from_numpy(inside).to(element).view(torch.uint8).numpy()

    return convert


to_e5m2, to_e4m3 = _to_byte(torch.float8_e5m2), _to_byte(torch.float8_e4m3fn)


def _of_byte(element: torch.dtype, result: type[Any]) -> Convert:
    numbers = torch.arange(256, dtype=torch.uint8).view(element).float().numpy().astype(result)
    return lambda value: numbers[value]


def _e5m2_to_bf16(value: Any) -> Any:
    """Triton shifts the bits into place and multiplies: there are neither infinities nor NaNs."""
    magnitude = ((value & 0x7F).astype(np.uint32) << 21).view(np.float32) * np.float32(2.0**112)
    return np.where(value < 0x80, magnitude, -magnitude)


BYTE_TO: dict[tuple[str, str], Convert] = {
    ("f8E5M2", "f16"): _of_byte(torch.float8_e5m2, np.float16),
    ("f8E5M2", "f32"): _of_byte(torch.float8_e5m2, np.float32),
    ("f8E5M2", "bf16"): _e5m2_to_bf16,
    ("f8E4M3FN", "f16"): _of_byte(torch.float8_e4m3fn, np.float16),
    **{("f8E4M3FN", to): _of_byte(torch.float8_e4m3fn, np.float32) for to in ("f32", "bf16")},
}

FP_TO_FP: dict[tuple[str, str], dict[str | None, Convert]] = {
    ("f16", "f32"): dict.fromkeys((None, "rtne", "rtz"), lambda value: value.astype(np.float32)),
    ("f32", "f16"): {"rtne": lambda value: value.astype(np.float16)},
    ("f32", "bf16"): {"rtne": to_bf16},
    ("f16", "bf16"): dict.fromkeys((None, "rtne"), f16_to_bf16),
    ("bf16", "f16"): dict.fromkeys((None, "rtne"), lambda value: value.astype(np.float16)),
    **{(source, "f8E5M2"): {"rtne": to_e5m2} for source in ("f16", "bf16", "f32")},
    **{(source, "f8E4M3FN"): {"rtne": to_e4m3} for source in ("f16", "bf16", "f32")},
    **{pair: dict.fromkeys((None, "rtne", "rtz"), convert) for pair, convert in BYTE_TO.items()},
}
