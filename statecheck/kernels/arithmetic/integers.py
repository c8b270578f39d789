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


def wrapping(compute: Function) -> Callable[[int], Function]:
    """Addition, subtraction and multiplication: `compute` with a result that wraps around."""

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


def _unsigned_division(compute: Function) -> Callable[[int], Function]:
    def of(width: int) -> Function:
        to, back = unsigned(width)

        def divide(a: Any, b: Any) -> Any:
            return back(compute(to(a), to(b)))

        return _division(width, divide, divide)

    return of


divide_unsigned = _unsigned_division(operator.floordiv)
remainder_unsigned = _unsigned_division(operator.mod)


def divide_ceiling(width: int) -> Function:
    """Rounded up, from the truncated quotient, as MLIR expands it."""
    divide, times, plus = divide_signed(width), multiply(width), add(width)

    def compute(a: Any, b: Any) -> Any:
        quotient = divide(a, b)
        return plus(quotient, (times(quotient, b) != a) & ((a ^ b) >= 0))

    return compute


def divide_floor(width: int) -> Function:
    """Rounded down, from the truncated quotient, as MLIR expands it."""
    divide, times, minus = divide_signed(width), multiply(width), subtract(width)

    def compute(a: Any, b: Any) -> Any:
        quotient = divide(a, b)
        return minus(quotient, (times(quotient, b) != a) & ((a ^ b) < 0))

    return compute


def divide_ceiling_unsigned(width: int) -> Function:
    """Zero for zero, else one more than the quotient of one less, as MLIR expands it."""
    divide, minus, plus, dtype = divide_unsigned(width), subtract(width), add(width), SIGNED[width]

    def compute(a: Any, b: Any) -> Any:
        result = plus(divide(minus(a, 1), b), 1)
        if type(a) is int:
            return result if a else (0 if type(b) is int else np.zeros_like(b))
        return np.where(a == 0, dtype(0), result)

    return compute


def shift_left(width: int) -> Function:
    mask, half = (1 << min(width, 32)) - 1, 1 << width - 1

    def compute(a: Any, b: Any) -> Any:
        if type(b) is int:
            shifted = a << min(b & mask, width)
            return ((shifted + half) & (2 * half - 1)) - half if type(a) is int else shifted
        return np.left_shift(a, b & mask if width == 64 else b)

    return compute


def shift_right_signed(width: int) -> Function:
    mask = (1 << min(width, 32)) - 1

    def compute(a: Any, b: Any) -> Any:
        if type(b) is int:
            return a >> min(b & mask, width)
        return np.right_shift(a, b & mask if width == 64 else b)

    return compute


def shift_right_unsigned(width: int) -> Function:
    mask = (1 << min(width, 32)) - 1
    to, back = unsigned(width)

    def compute(a: Any, b: Any) -> Any:
        if type(b) is int:
            return back(to(a) >> min(b & mask, width))
        return back(np.right_shift(to(a), to(b & mask if width == 64 else b)))

    return compute


def _choice(scalars: Function, arrays: Function) -> Callable[[int], Function]:
    def compute(a: Any, b: Any) -> Any:
        return scalars(a, b) if type(a) is int and type(b) is int else arrays(a, b)

    return lambda width: compute


def _unsigned_choice(scalars: Function, arrays: Function) -> Callable[[int], Function]:
    def of(width: int) -> Function:
        to, back = unsigned(width)
        choose = _choice(scalars, arrays)(width)
        return lambda a, b: back(choose(to(a), to(b)))

    return of


minimum_signed, maximum_signed = _choice(min, np.minimum), _choice(max, np.maximum)
minimum_unsigned, maximum_unsigned = _unsigned_choice(min, np.minimum), _unsigned_choice(max, np.maximum)


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
