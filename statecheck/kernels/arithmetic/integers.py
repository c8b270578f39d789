"""Integer arithmetic as compiled for an NVIDIA GPU, on Python's integers and NumPy's arrays alike.

Results wrap around. What LLVM leaves undefined is what the machine code of a lone operation gives: a shift by the width or
more shifts everything out, where the amount is taken as unsigned and of at most 32 bits; a division by zero gives all
ones, quotient and remainder, signed or not. The compiler divides 64-bit integers whose upper halves are zero as 32-bit
ones, so that there all ones are 2**32 - 1.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic.elements import SIGNED, UNSIGNED, Array

Function = Callable[..., Any]
Convert = Callable[[Any], Any]


def unsigned(width: int) -> tuple[Convert, Convert]:
    """To the unsigned values of the same bits, and back."""
    mask, half = (1 << width) - 1, 1 << width - 1
    signed_type, unsigned_type = SIGNED[width], UNSIGNED[width]

    def to(value: Any) -> Any:
        return value & mask if type(value) is int else value.view(unsigned_type)

    def back(value: Any) -> Any:
        if type(value) is int:
            return value if value < half else value - 2 * half
        return value.view(signed_type)

    return to, back


def _of_unsigned(of: Callable[[int], Function]) -> Callable[[int], Function]:
    """The same on the unsigned values of the operands."""

    def of_width(width: int) -> Function:
        (to, back), compute = unsigned(width), of(width)
        return lambda a, b: back(compute(to(a), to(b)))

    return of_width


def wrapping(compute: Function) -> Callable[[int], Function]:
    """`compute` with a result that wraps around, as arrays do by themselves."""

    def of(width: int) -> Function:
        half, mask = 1 << width - 1, (1 << width) - 1

        def wrapped_result(a: Any, b: Any) -> Any:
            result = compute(a, b)
            if type(result) is int and not -half <= result < half:
                return ((result + half) & mask) - half
            return result

        return wrapped_result

    return of


add, subtract, multiply = wrapping(operator.add), wrapping(operator.sub), wrapping(operator.mul)


def _by_zero(width: int) -> Convert:
    if width < 64:
        return lambda a: -1 if type(a) is int else np.full_like(a, -1)

    def wide(a: Any) -> Any:
        if type(a) is int:
            return 0xFFFFFFFF if 0 <= a <= 0xFFFFFFFF else -1
        return np.where((a >= 0) & (a <= 0xFFFFFFFF), np.int64(0xFFFFFFFF), np.int64(-1))

    return wide


def _division(width: int, scalars: Function, arrays: Function) -> Function:
    by_zero = _by_zero(width)

    def divide(a: Any, b: Any) -> Any:
        if type(b) is int:
            if b == 0:
                return by_zero(a)
            return scalars(a, b) if type(a) is int else arrays(a, b)
        zero = b == 0
        if not zero.any():
            return arrays(a, b)
        return np.where(zero, by_zero(a), arrays(a, np.where(zero, 1, b)))

    return divide


def divide_signed(width: int) -> Function:
    half = 1 << width - 1

    def scalars(a: int, b: int) -> int:
        quotient = a // b
        # Python rounds down, a GPU toward zero.
        if quotient < 0 and quotient * b != a:
            return quotient + 1
        # The least number divided by -1 wraps around to itself.
        return quotient if quotient != half else -half

    def arrays(a: Any, b: Any) -> Array:
        # NumPy rounds down too, but a multiple of b leaves nothing to round.
        exact: Array = a - np.fmod(a, b)
        return exact // b

    return _division(width, scalars, arrays)


def remainder_signed(width: int) -> Function:
    def scalars(a: int, b: int) -> int:
        remainder = a % b
        return remainder - b if remainder and (a < 0) is not (b < 0) else remainder

    return _division(width, scalars, np.fmod)


def divide_unsigned(width: int) -> Function:
    divide = _of_unsigned(lambda width: operator.floordiv)(width)
    return _division(width, divide, divide)


def remainder_unsigned(width: int) -> Function:
    remainder = _of_unsigned(lambda width: operator.mod)(width)
    return _division(width, remainder, remainder)


def _from_truncated(
    change: Callable[[int], Function], inexact_where: Callable[[Any], Any]
) -> Callable[[int], Function]:
    """The truncated quotient, changed by one where it is not exact, as MLIR expands it."""

    def of(width: int) -> Function:
        divide, times, changed = divide_signed(width), multiply(width), change(width)

        def compute(a: Any, b: Any) -> Any:
            quotient = divide(a, b)
            return changed(quotient, (times(quotient, b) != a) & inexact_where(a ^ b))

        return compute

    return of


divide_ceiling = _from_truncated(add, lambda signs: signs >= 0)
divide_floor = _from_truncated(subtract, lambda signs: signs < 0)


def divide_ceiling_unsigned(width: int) -> Function:
    """Zero for zero, else one more than the quotient of one less, as MLIR expands it."""
    divide, minus, plus, dtype = divide_unsigned(width), subtract(width), add(width), SIGNED[width]

    def compute(a: Any, b: Any) -> Any:
        result = plus(divide(minus(a, 1), b), 1)
        if type(a) is int:
            return result if a else (0 if type(b) is int else np.zeros_like(b))
        return np.where(a == 0, dtype(0), result)

    return compute


def _shift(scalars: Function, arrays: Function) -> Callable[[int], Function]:
    """NumPy shifts everything out where the amount is the width or more."""

    def of(width: int) -> Function:
        mask = (1 << min(width, 32)) - 1

        def compute(a: Any, b: Any) -> Any:
            if type(b) is int:
                return scalars(a, min(b & mask, width))
            return arrays(a, b & mask if width == 64 else b)

        return compute

    return of


def shift_left(width: int) -> Function:
    return wrapping(_shift(operator.lshift, np.left_shift)(width))(width)


shift_right_signed = _shift(operator.rshift, np.right_shift)
shift_right_unsigned = _of_unsigned(shift_right_signed)


def _choice(scalars: Function, arrays: Function) -> Callable[[int], Function]:
    def compute(a: Any, b: Any) -> Any:
        return scalars(a, b) if type(a) is int and type(b) is int else arrays(a, b)

    return lambda width: compute


minimum_signed, maximum_signed = _choice(min, np.minimum), _choice(max, np.maximum)
minimum_unsigned, maximum_unsigned = _of_unsigned(minimum_signed), _of_unsigned(maximum_signed)


def absolute(width: int) -> Function:
    half = 1 << width - 1

    def compute(a: Any) -> Any:
        return abs(a) if type(a) is not int or a != -half else a

    return compute


def multiply_high_unsigned(width: int) -> Function:
    """The upper half of the product of unsigned values."""
    to, back = unsigned(width)
    wide = UNSIGNED.get(2 * width)

    def compute(a: Any, b: Any) -> Any:
        a, b = to(a), to(b)
        if type(a) is int and type(b) is int:
            return back(a * b >> width)
        if wide is not None:
            product = np.asarray(a, wide) * np.asarray(b, wide) >> width
            return product.astype(UNSIGNED[width]).view(SIGNED[width])
        return _high_of_64(np.asarray(a, np.uint64), np.asarray(b, np.uint64)).view(np.int64)

    return compute


def _high_of_64(a: Array, b: Array) -> Array:
    a_high, a_low, b_high, b_low = a >> 32, a & 0xFFFFFFFF, b >> 32, b & 0xFFFFFFFF
    middle = a_high * b_low + (a_low * b_low >> 32)
    other = a_low * b_high + (middle & 0xFFFFFFFF)
    high: Array = a_high * b_high + (middle >> 32) + (other >> 32)
    return high


def multiply_extended_unsigned(width: int) -> Function:
    """The lower and the upper half of the product."""
    low, high = multiply(width), multiply_high_unsigned(width)
    return lambda a, b: (low(a, b), high(a, b))


def multiply_extended_signed(width: int) -> Function:
    """The lower and the upper half of the product."""
    low, high, minus = multiply(width), multiply_high_unsigned(width), subtract(width)

    def compute(a: Any, b: Any) -> Any:
        # A negative factor stands for itself plus 2**width among the unsigned ones.
        excess = (a >> width - 1 & b) + (b >> width - 1 & a)
        return low(a, b), minus(high(a, b), excess)

    return compute


def add_extended_unsigned(width: int) -> Function:
    """The sum, and whether it was carried."""
    plus, to = add(width), unsigned(width)[0]

    def compute(a: Any, b: Any) -> Any:
        total = plus(a, b)
        return total, to(total) < to(a)

    return compute
