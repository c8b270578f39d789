"""Arithmetic by its definitions: Python's integers and fractions, one value at a time, nothing of NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

FORMATS = {
    "f8E5M2": (8, 2),
    "f8E4M3FN": (8, 3),
    "f16": (16, 10),
    "bf16": (16, 7),
    "f32": (32, 23),
    "f64": (64, 52),
}
"""Widths, and how many bits of them are the fraction."""

Number = Fraction | float
"""A float where it is an infinity, a NaN or a zero, which has a sign."""


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> width - 1 else value


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def by_zero(a: int, width: int) -> int:
    return 0xFFFFFFFF if width == 64 and 0 <= a < 1 << 32 else -1


def _divided(compute: Callable[[int, int], int]) -> Callable[[int, int, int], int]:
    return lambda a, b, width: compute(a, b) if b else by_zero(a, width)


def _of_unsigned(compute: Callable[[int, int, int], int]) -> Callable[[int, int, int], int]:
    def of(a: int, b: int, width: int) -> int:
        mask = (1 << width) - 1
        return compute(a & mask, b & mask, width)

    return of


def _amount(b: int, width: int) -> int:
    return b % (1 << min(width, 32))


INTEGER: dict[str, Callable[[int, int, int], int]] = {
    "addi": lambda a, b, width: a + b,
    "subi": lambda a, b, width: a - b,
    "muli": lambda a, b, width: a * b,
    "divsi": _divided(truncated),
    "remsi": _divided(lambda a, b: a - b * truncated(a, b)),
    # By zero: the quotient is -1, and one is added or taken where it is not exact and the signs agree or differ.
    "ceildivsi": lambda a, b, width: -(-a // b) if b else by_zero(a, width) + (1 if a > 0 else 0),
    "floordivsi": lambda a, b, width: a // b if b else by_zero(a, width) - (1 if a < 0 else 0),
    "ceildivui": _of_unsigned(
        lambda a, b, width: -(-a // b) if b else 0 if a == 0 else by_zero(signed(a - 1, width), width) + 1
    ),
    "andi": lambda a, b, width: a & b,
    "ori": lambda a, b, width: a | b,
    "xori": lambda a, b, width: a ^ b,
    "shli": lambda a, b, width: 0 if _amount(b, width) >= width else a << _amount(b, width),
    "shrsi": lambda a, b, width: a >> min(_amount(b, width), width),
    "shrui": lambda a, b, width: a % (1 << width) >> min(_amount(b, width), width),
    "minsi": lambda a, b, width: min(a, b),
    "maxsi": lambda a, b, width: max(a, b),
    "minui": _of_unsigned(lambda a, b, width: min(a, b)),
    "maxui": _of_unsigned(lambda a, b, width: max(a, b)),
    "mulhiui": _of_unsigned(lambda a, b, width: a * b >> width),
    "divui": lambda a, b, width: (a % (1 << width)) // (b % (1 << width)) if b else by_zero(a, width),
    "remui": lambda a, b, width: (a % (1 << width)) % (b % (1 << width)) if b else by_zero(a, width),
}


def number(bits: int, element: str) -> Number:
    """What the bits of a floating-point format stand for."""
    width, fraction_bits = FORMATS[element]
    sign = -1 if bits >> width - 1 else 1
    exponent = bits >> fraction_bits & (1 << width - 1 - fraction_bits) - 1
    fraction = bits & (1 << fraction_bits) - 1
    highest = (1 << width - 1 - fraction_bits) - 1
    if element == "f8E4M3FN" and bits & 0x7F == 0x7F:
        return math.nan
    if exponent == highest and element != "f8E4M3FN":
        return math.nan if fraction else sign * math.inf
    significand = fraction if exponent == 0 else fraction + (1 << fraction_bits)
    if significand == 0:
        return sign * 0.0
    return sign * significand * power(max(exponent, 1) - (highest >> 1) - fraction_bits)


def power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def largest(element: str) -> Fraction:
    width, fraction_bits = FORMATS[element]
    infinity = (1 << width - 1) - (1 << fraction_bits)
    finite = number({"f8E4M3FN": 0x7E}.get(element, infinity - 1), element)
    assert isinstance(finite, Fraction)
    return finite


def nearest(exact: Number, element: str, toward_zero: bool = False) -> int | None:
    """The bits of the number closest to an exact one, ties to even; None for a NaN."""
    width, fraction_bits = FORMATS[element]
    infinity = (1 << width - 1) - (1 << fraction_bits)
    if isinstance(exact, float):
        sign = 1 << width - 1 if math.copysign(1, exact) < 0 else 0
        return None if math.isnan(exact) else sign | (infinity if exact else 0)
    sign = 1 << width - 1 if exact < 0 else 0
    bias = infinity >> fraction_bits + 1
    size: Fraction = abs(exact)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, 1 - bias)
    while size >= power(exponent + 1):
        exponent += 1
    units = size / power(exponent - fraction_bits)
    whole = units.numerator // units.denominator if toward_zero else round(units)
    # A significand that has become too long carries into the exponent by itself.
    bits = (exponent + bias - 1 << fraction_bits) + whole
    highest = {"f8E4M3FN": 0x7E}.get(element, infinity - 1 if toward_zero else infinity)
    return sign | min(bits, highest)


def saturated(exact: Number, element: str) -> int | None:
    """As `nearest` to a type of 8 bits, but what overflows becomes the largest number."""
    if isinstance(exact, Fraction) or math.isinf(exact):
        limit = largest(element)
        exact = max(min(exact, limit), -limit)
    return nearest(exact, element)


def to_integer(exact: Number, source: str, width: int, is_signed: bool) -> int:
    """Toward zero, saturating; 8 bits are the lower ones of 16."""
    working = max(width, 16)
    low = -(1 << working - 1) if is_signed else 0
    high = low + (1 << working) - 1
    if math.isnan(exact):
        return signed(1 << working - 1 if source == "f64" or width == 64 else 0, width)
    if math.isinf(exact):
        return signed(high if exact > 0 else low, width)
    return signed(min(max(math.trunc(exact), low), high), width)
