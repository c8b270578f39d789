"""Integer arithmetic as compiled for an NVIDIA GPU, on NumPy's signed integers, and on truth values for i1.

Results wrap around. What LLVM leaves undefined is what the machine code of a lone operation gives: a shift by the width or
more shifts everything out, where the amount is taken as unsigned and of at most 32 bits; a division by zero gives all
ones, quotient and remainder, signed or not. The compiler divides 64-bit integers whose upper halves are zero as 32-bit
ones, so that there all ones are 2**32 - 1. A truth value is never shifted, and a divisor among truth values is 1.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[..., Any]


def unsigned(value: Any) -> Any:
    """The same bits without a sign."""
    return value.view(f"u{value.dtype.itemsize}")


def _of_unsigned(compute: Function) -> Function:
    """The same on the unsigned values of the operands."""
    return lambda a, b: compute(unsigned(a), unsigned(b)).view(a.dtype)


def _by_zero(a: Any) -> Any:
    if a.dtype.itemsize < 8:
        return np.full_like(a, -1)
    return np.where((a >= 0) & (a <= 0xFFFFFFFF), np.int64(0xFFFFFFFF), np.int64(-1))


def _division(compute: Function) -> Function:
    def divide(a: Any, b: Any) -> Any:
        zero = b == 0
        return np.where(zero, _by_zero(a), compute(a, np.where(zero, 1, b))) if zero.any() else compute(a, b)

    return divide


@_division
def _divide(a: Any, b: Any) -> Any:
    # NumPy rounds down, a GPU toward zero; a multiple of b leaves nothing to round.
    return (a - np.fmod(a, b)) // b


_divide_unsigned = _division(_of_unsigned(operator.floordiv))


def _shift(compute: Function) -> Function:
    """NumPy shifts everything out where the amount is the width or more."""
    return lambda a, b: compute(a, b & 0xFFFFFFFF if b.dtype.itemsize == 8 else b)


def multiply_high_unsigned(a: Any, b: Any) -> Any:
    """The upper half of the product of unsigned values."""
    return _of_unsigned(_high)(a, b)


def _high(a: Any, b: Any) -> Any:
    width = 8 * a.dtype.itemsize
    if width < 64:
        return (a.astype(np.uint64) * b >> width).astype(a.dtype)
    a_high, a_low, b_high, b_low = a >> 32, a & 0xFFFFFFFF, b >> 32, b & 0xFFFFFFFF
    middle = a_high * b_low + (a_low * b_low >> 32)
    other = a_low * b_high + (middle & 0xFFFFFFFF)
    return a_high * b_high + (middle >> 32) + (other >> 32)


OPERATIONS: dict[str, Function] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "divsi": _divide,
    "divui": _divide_unsigned,
    "remsi": _division(np.fmod),
    "remui": _division(_of_unsigned(operator.mod)),
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "shli": _shift(np.left_shift),
    "shrsi": _shift(np.right_shift),
    "shrui": _of_unsigned(_shift(np.right_shift)),
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "minui": _of_unsigned(np.minimum),
    "maxui": _of_unsigned(np.maximum),
}


def _first(a: Any, b: Any) -> Any:
    return a & (b | True)


OF_TRUTH_VALUES: dict[str, Function] = {
    **dict.fromkeys(("addi", "subi", "xori"), operator.xor),
    **dict.fromkeys(("muli", "andi", "maxsi", "minui"), operator.and_),
    **dict.fromkeys(("ori", "minsi", "maxui"), operator.or_),
    **dict.fromkeys(("divsi", "divui", "shli", "shrsi", "shrui"), _first),
    **dict.fromkeys(("remsi", "remui"), lambda a, b: a & b & False),
}
"""The signed i1 that is set is -1."""

_ORDER: dict[str, Function] = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


def comparison(element: str, predicate: str) -> Function | None:
    """Comparisons of integers: "eq", "ne", or an order with "s" or "u" before it."""
    if predicate in ("eq", "ne"):
        return operator.eq if predicate == "eq" else operator.ne
    compare = _ORDER.get(predicate[1:])
    if compare is None or (predicate[0] == "s") is not (element == "i1"):
        # Truth values are ordered as unsigned ones, all others as signed ones.
        return compare
    return (lambda a, b: compare(b, a)) if element == "i1" else lambda a, b: compare(unsigned(a), unsigned(b))
