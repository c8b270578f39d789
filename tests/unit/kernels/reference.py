"""Arithmetic by its definitions: Python's integers and fractions, one value at a time, nothing of NumPy.

`result` gives what an operation makes of operands, as bits: None for any NaN, `ANY` where nothing is promised.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from tests.unit.kernels.cases import INTEGERS
from tests.unit.kernels.values import WIDTHS

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
    """The number that the bits of a floating-point format stand for."""
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


def nearest(exact: Number, element: str) -> int | None:
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
    whole = round(units)
    # A significand that has become too long carries into the exponent by itself.
    bits = (exponent + bias - 1 << fraction_bits) + whole
    highest = {"f8E4M3FN": 0x7E}.get(element, infinity)
    return sign | min(bits, highest)


def saturated(exact: Number, element: str) -> int | None:
    """The same as `nearest` to a type of 8 bits, but an overflow becomes the largest number."""
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


ANY: Any = object()
Bits = int | None
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_SAME_BITS = ("tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int")


def result(
    name: str, operands: tuple[str, ...], to: str, attributes: Mapping[str, str], bits: tuple[int, ...]
) -> Bits:
    """The bits of the result of an operation on operands of these types."""
    source, word = operands[-1], name.partition(".")[2]
    if name in _SAME_BITS:
        return bits[0]
    if word == "select":
        return bits[1] if bits[0] else bits[2]
    if word == "cmpi":
        return int(_integers_compare(attributes["predicate"], source, *bits))
    if word == "cmpf":
        return int(_floats_compare(attributes["predicate"], *(number(pattern, source) for pattern in bits)))
    if word in ("extsi", "extui", "trunci"):
        return _integer(bits[0], source, word == "extsi") % (1 << width_of(to))
    if word in ("sitofp", "uitofp"):
        value = _integer(bits[0], source, word == "sitofp")
        return nearest(Fraction(value) if value else 0.0, to)
    if word in ("fptosi", "fptoui"):
        width = width_of(to)
        return to_integer(number(bits[0], source), source, width, word == "fptosi") % (1 << width)
    if word in ("extf", "truncf", "fp_to_fp"):
        return _converted(bits[0], source, to)
    if source in ("i1", *INTEGERS):
        return _of_integers(word, source, bits)
    return _of_floats(word, source, bits)


def width_of(element: str) -> int:
    return 1 if element == "i1" else WIDTHS[element]


def _integer(bits: int, element: str, is_signed: bool) -> int:
    return signed(bits, width_of(element)) if is_signed else bits


def _integers_compare(predicate: str, element: str, a: int, b: int) -> bool:
    if predicate in ("eq", "ne"):
        return _ORDER[predicate](a, b)
    is_signed = predicate[0] == "s"
    return _ORDER[predicate[1:]](_integer(a, element, is_signed), _integer(b, element, is_signed))


def _floats_compare(predicate: str, a: Number, b: Number) -> bool:
    if math.isnan(a) or math.isnan(b):
        return predicate[0] == "u"
    return _ORDER[predicate[1:]](a, b)


def _of_integers(word: str, element: str, bits: tuple[int, ...]) -> int:
    width = width_of(element)
    if word == "absi":
        return abs(signed(bits[0], width)) % (1 << width)
    return INTEGER[word](signed(bits[0], width), signed(bits[1], width), width) % (1 << width)


def _converted(bits: int, source: str, to: str) -> Bits:
    value = number(bits, source)
    if (source, to) == ("f8E5M2", "bf16") and bits & 0x7C == 0x7C:
        # Triton multiplies the bits by a power of two, as if the highest exponent were like any other.
        value = (-1) ** (bits >> 7) * Fraction(4 + (bits & 3)) * 2**14
    return saturated(value, to) if to.startswith("f8") else nearest(value, to)


def _of_floats(word: str, element: str, bits: tuple[int, ...]) -> Bits:
    sign = 1 << WIDTHS[element] - 1
    if word in ("negf", "absf"):
        return bits[0] ^ sign if word == "negf" else bits[0] & ~sign
    if word in ("minimumf", "maximumf", "minnumf", "maxnumf"):
        return _chosen(min if "min" in word else max, element, bits, propagates="imum" in word)
    numbers = [number(pattern, element) for pattern in bits]
    if word == "fma":
        return _fused(numbers, element)
    return nearest(_exact(word.removeprefix("precise_"), *numbers), element)


def _chosen(choose: Callable[..., int], element: str, bits: tuple[int, ...], propagates: bool) -> Bits:
    """The least or the greatest, where -0 is less than 0; of numbers only, unless a NaN `propagates`."""
    numbers = [pattern for pattern in bits if not math.isnan(number(pattern, element))]
    if (len(numbers) < len(bits) and propagates) or not numbers:
        return None
    return choose(
        numbers, key=lambda pattern: (number(pattern, element), pattern >> WIDTHS[element] - 1 == 0)
    )


def _exact(word: str, a: Number, b: Number) -> Number:
    """A float where infinities, NaNs or zeros have a say."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return {"addf": a + b, "subf": a - b, "mulf": a * b, "divf": a / b}[word] or 0.0
    if word in ("addf", "subf") and math.isfinite(a) and math.isfinite(b) and (a or b):
        return Fraction(a) + Fraction(b) * (1 if word == "addf" else -1)
    # Any other number does for one that is neither zero nor infinite.
    x, y = ((1.0 if value > 0 else -1.0) if isinstance(value, Fraction) else value for value in (a, b))
    if word == "divf" and y == 0:
        size = math.nan if x == 0 else math.inf * abs(x)
        return math.copysign(size, math.copysign(1, x) * math.copysign(1, y))
    return {"addf": x + y, "subf": x - y, "mulf": x * y, "divf": x / (y or 1)}[word]


def _fused(numbers: list[Number], element: str) -> Bits:
    if not all(map(math.isfinite, numbers)):
        return ANY
    a, b, c = numbers
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return nearest(exact or (0.0 if a and b else float(a) * float(b) + float(c)), element)
