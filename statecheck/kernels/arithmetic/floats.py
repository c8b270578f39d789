"""Floating-point arithmetic as compiled for an NVIDIA GPU.

Every operation is rounded once, to the nearest, ties to even, and keeps subnormal numbers. bf16 is computed in f32 and
rounded, which gives the same for sums, differences, products and quotients, as f32 has more than twice its bits. Which
NaN comes out is not promised.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic.rounding import nearest, to_bf16

Function = Callable[..., Any]


def arithmetic(compute: Function) -> Callable[[str], Function]:
    """`compute` on the elements, rounded where they are bf16."""

    def of(element: str) -> Function:
        return (lambda a, b: to_bf16(compute(a, b))) if element == "bf16" else compute

    return of


add, subtract = arithmetic(operator.add), arithmetic(operator.sub)
multiply, divide = arithmetic(operator.mul), arithmetic(operator.truediv)


def _zeros_ordered(choose: Function, is_negative: Function) -> Function:
    """NumPy's choice, in which NaNs win, but -0 is less than +0: `is_negative` tells which is chosen, of the signs of both."""

    def chosen_in_order(a: Any, b: Any) -> Any:
        chosen = choose(a, b)
        # NumPy decides all but the sign of a zero.
        if chosen.all():
            return chosen
        negative = is_negative(np.signbit(a), np.signbit(b))
        signed = np.copysign(chosen, np.where(negative, np.int8(-1), np.int8(1)))
        return np.where(chosen == 0, signed, chosen)

    return chosen_in_order


def _of_numbers(choose: Function) -> Function:
    """The other operand where one is a NaN, signalling ones included."""

    def chosen_number(a: Any, b: Any) -> Any:
        chosen = choose(a, b)
        if not np.isnan(chosen).any():
            return chosen
        return np.where(np.isnan(a), b, np.where(np.isnan(b), a, chosen))

    return chosen_number


minimum, maximum = _zeros_ordered(np.minimum, operator.or_), _zeros_ordered(np.maximum, operator.and_)
minimum_number, maximum_number = _of_numbers(minimum), _of_numbers(maximum)


def _or_unordered(compute: Function) -> Function:
    """What is true of NaNs: that the opposite, `compute`, is not."""
    return lambda a, b: np.logical_not(compute(a, b))


def _different(a: Any, b: Any) -> Any:
    return (a < b) | (a > b)


COMPARISONS: dict[str, Function] = {
    "oeq": operator.eq,
    "ogt": operator.gt,
    "oge": operator.ge,
    "olt": operator.lt,
    "ole": operator.le,
    "one": _different,
    "ueq": _or_unordered(_different),
    "ugt": _or_unordered(operator.le),
    "uge": _or_unordered(operator.lt),
    "ult": _or_unordered(operator.ge),
    "ule": _or_unordered(operator.gt),
    "une": operator.ne,
}


def sum_to_odd(a: Any, b: Any) -> Any:
    """The sum of two f64 rounded to the neighbour with an odd significand, unless it is exact.

    Rounding it again to a format that is shorter by two bits or more gives what rounding the exact sum does.
    """
    near = np.asarray(a + b)
    part = near - a
    error = (a - (near - part)) + (b - part)
    bits = near.view(np.int64)
    even = (np.abs(error) > 0) & (bits & 1 == 0)
    return np.where(even, bits + np.where((error > 0) == (near > 0), 1, -1), bits).view(np.float64)


def _round_bf16(value: Any) -> Any:
    return nearest(value, 8, -126).astype(np.float32)


def _fused(rounded: Function) -> Function:
    """The product plus the third operand, rounded once."""

    def compute(a: Any, b: Any, c: Any) -> Any:
        product = a.astype(np.float64) * b.astype(np.float64)
        return rounded(sum_to_odd(product, c.astype(np.float64)))

    return compute


FMA: dict[str, Function] = {
    "f16": _fused(lambda value: value.astype(np.float16)),
    "bf16": _fused(_round_bf16),
    "f32": _fused(lambda value: value.astype(np.float32)),
}
"""By the type of the elements."""
