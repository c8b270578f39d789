"""Values of every element type as bits: which ones to try, and how the executor represents them.

Bits are unsigned NumPy integers, of 8 bits for i1.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

WIDTHS = {
    "i1": 8,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "ptr": 64,
    "f8E5M2": 8,
    "f8E4M3FN": 8,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
}
FRACTIONS = {"f8E5M2": 2, "f8E4M3FN": 3, "f16": 10, "bf16": 7, "f32": 23, "f64": 52}
"""How many bits of a floating-point number belong to its fraction."""

NUMBERS = (
    # Ties between neighbours in f16, in bf16, in both f8 types and in f32, and what is just beside them.
    *(1 + 2.0**-k for k in (3, 4, 8, 11, 24)),
    *(1 + 3 * 2.0**-k for k in (4, 8, 11)),
    *(1 + 2.0**-k + 2.0**-23 for k in (3, 4, 8, 11)),
    1 + 2.0**-8 + 2.0**-40,
    # The largest f16, f8E5M2 and f8E4M3FN, the ties above them, and where f32 overflows.
    *(65504, 65519.99, 65520, 65536, 57344, 61440, 61441, 448, 464, 465, 480, 3.4028235e38, 3.4e38),
    # Their smallest ones and the ties below them.
    *(2.0**-k for k in (6, 9, 10, 14, 16, 17, 24, 25, 126, 133, 134, 149, 150)),
    *(1.5 * 2.0**-k for k in (10, 17, 25, 134)),
    # Where conversions to integers saturate.
    *(0.5, 0.999, 127.5, 128, 255, 256, 32767.5, 32768, 65535.5, 2147483520, 2147483648, 4294967296),
    *(2.0**k for k in (53, 62, 63, 64, 65)),
    # Arguments of functions.
    *(0.1, 1 / 3, 1.5707963, 2.0, 3.0, 10.0, 88.7, 88.8, 100.0, 103.9, 126.5, 149.5, 1e5, 1e30),
)


def floats(element: str) -> Array:
    """Numbers at the edges of a floating-point type, infinities and NaNs, of both signs."""
    width, fraction = WIDTHS[element], FRACTIONS[element]
    infinity, one_bit = ((1 << width - 1 - fraction) - 1) << fraction, 1 << fraction
    bias = (infinity >> fraction) >> 1
    unity = bias << fraction
    patterns = {0, 1, 2, 3, one_bit - 1, one_bit, one_bit + 1, unity - 1, unity, unity + 1}
    patterns |= {
        infinity - 2,
        infinity - 1,
        infinity,
        infinity + 1,
        infinity | one_bit >> 1,
        2 * one_bit - 1 | infinity,
    }
    magnitudes = {*patterns, *encode(rounded(np.array(NUMBERS), element), element).tolist()}
    sign = 1 << width - 1
    return np.array(sorted(magnitudes | {magnitude | sign for magnitude in magnitudes}), f"u{width // 8}")


def rounded(numbers: Array, element: str) -> Array:
    """Some value near each of the numbers."""
    with np.errstate(all="ignore"):
        if element == "bf16":
            return decode(numbers.astype(np.float32).view(np.uint32) >> 16, "bf16")
        return numbers.astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[element])


def integers(element: str) -> Array:
    """Integers at the edges of a type, amounts of shifts, and divisors."""
    width = WIDTHS[element]
    near = {(1 << k) + d for k in (4, 7, 8, 15, 16, 31, 32, 33, 62, 63) for d in (-1, 0, 1)}
    some = {0, 1, 2, 3, 5, 7, 9, 10, 33, 34, 63, 64, 65, 100, 1000, 65537, (1 << 32) + 3, 0x5555555555555555}
    some |= {0x123456789ABCDEF0, (1 << 24) + 1, (1 << 40) + (1 << 32), (1 << 40) + (1 << 32) + 1}
    mask = (1 << width) - 1
    return np.array(
        sorted({pattern & mask for value in near | some for pattern in (value, -value)}), f"u{width // 8}"
    )


def every(element: str) -> Array:
    """All values of a type of at most 16 bits."""
    return np.arange(2 if element == "i1" else 1 << WIDTHS[element], dtype=f"u{WIDTHS[element] // 8}")


def edges(element: str) -> Array:
    """The values to combine with each other: all of them where they are few."""
    if element in FRACTIONS and WIDTHS[element] > 8:
        return floats(element)
    return every(element) if WIDTHS[element] == 8 else integers(element)


def some(element: str, count: int, seed: int) -> Array:
    """Random bits, half of them near zero or one."""
    width = WIDTHS[element]
    random = np.random.default_rng(seed)
    bits = random.integers(0, 2 if element == "i1" else 1 << width, count, dtype=f"u{width // 8}")
    if element in FRACTIONS and width > 8:
        bits[::2] = encode(rounded(random.normal(0, 4, count)[::2], element), element)
    elif width > 8:
        bits[::2] >>= random.integers(0, width, count, dtype=bits.dtype)[::2]
    return bits


def operands(elements: tuple[str, ...], seed: int = 1) -> tuple[Array, ...]:
    """Bits of operands: all combinations of edges, and random ones."""
    if len(elements) == 1 and WIDTHS[elements[0]] <= 16:
        return (every(elements[0]),)
    columns = [edges(element) for element in elements]
    if len(elements) == 3:
        columns = [column if len(column) < 30 else column[:: len(column) // 24] for column in columns]
    combined = np.array(list(itertools.product(*(range(len(column)) for column in columns)))).T
    more = [some(element, 4096, seed + n) for n, element in enumerate(elements)]
    return tuple(
        np.concatenate([column[chosen], extra])
        for column, chosen, extra in zip(columns, combined, more, strict=True)
    )


def decode(bits: Array, element: str) -> Array:
    """The executor's array of these bits."""
    if element == "i1":
        return bits != 0
    if element == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if element.startswith("f8"):
        return bits.astype(np.uint8)
    kind = "f" if element in FRACTIONS else "i"
    return bits.view(f"{kind}{WIDTHS[element] // 8}")


def encode(values: Array, element: str) -> Array:
    """The bits of the executor's array."""
    if element == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.view(f"u{WIDTHS[element] // 8}")


def scalar(values: Array, n: int, element: str) -> Any:
    """The executor's scalar of an element of its array."""
    return values[n] if element in FRACTIONS and WIDTHS[element] > 8 else values[n].item()


def is_nan(bits: Array, element: str) -> Array:
    width, fraction = WIDTHS[element], FRACTIONS.get(element)
    magnitude = bits & (1 << width - 1) - 1
    if fraction is None:
        return np.zeros(len(bits), bool)
    if element == "f8E4M3FN":
        return magnitude == 0x7F
    return magnitude > ((1 << width - 1 - fraction) - 1) << fraction


def distance(a: Array, b: Array, element: str) -> Array:
    """How many numbers apart two floating-point numbers are, as f64. Zeros are the same."""
    places = []
    for bits in (a, b):
        sign = bits >> WIDTHS[element] - 1
        magnitude = (bits & (1 << WIDTHS[element] - 1) - 1).astype(np.int64)
        places.append(np.where(sign != 0, -magnitude, magnitude))
    # Numbers of opposite signs may be further apart than int64 reaches.
    halves = np.abs(places[0] // 2 - places[1] // 2)
    near = halves < 1 << 60
    return np.where(near, np.abs(places[0] - places[1]), halves * 2.0).astype(np.float64)
