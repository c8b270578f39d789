"""How far a kernel's result may lie from the recurrence: computed of the input, never chosen.

A recurrence runs three times. On the values, in double precision, it gives the expected result. On absolute values, where each difference
becomes a sum, it gives the size of all that was added up on the way; this size, times the number of operations that a result went through, times
the unit roundoff of the type in which the kernel accumulates, times `CONSTANT`, bounds what any order of these operations can differ by (Higham,
Accuracy and Stability of Numerical Algorithms, chapter 3). And on the bounds of a state that was itself computed, with values of zero, it says
what the state's own error has become: all recurrences here are linear in their state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log1p

Matrix = list[list[float]]

UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "tfloat32": 2.0**-11,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
"""Half the distance of 1 to the next number, by type; `tfloat32` is what tensor cores make of float32."""
CONSTANT = 4.0
"""Stands for roundings that are not counted one by one: exponentials, divisions and square roots, which hardware computes to a few units."""
TINY = 2.0**-120
"""What is smaller may be flushed to zero."""


@dataclass(frozen=True)
class Near:
    """A number that is expected, and by how much a result may differ from it."""

    value: float
    bound: float = 0.0


def near(value: float, size: float, operations: float, carried: float, roundoff: float, stored: str) -> Near:
    """A result of a kernel.

    Args:
        size: the result on absolute values.
        operations: that it went through.
        carried: what the error of the state before has become.
        roundoff: of the type in which the kernel accumulates.
        stored: the type that the result is rounded to in the end.
    """
    bound = CONSTANT * operations * roundoff * size + carried
    return Near(value, bound + 2 * UNIT_ROUNDOFF[stored] * (abs(value) + bound) + TINY)


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    """The sum of products."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def absolute(vector: Sequence[float]) -> list[float]:
    """The vector of absolute values."""
    return [abs(value) for value in vector]


def zeros(rows: int, columns: int) -> Matrix:
    """A state of nothing."""
    return [[0.0] * columns for _ in range(rows)]


def silu(x: float) -> float:
    """x times the logistic function of x."""
    return x / (1 + exp(-x)) if x > -700 else 0.0


SILU_SLOPE = 1.1
"""By at most so much a difference before `silu` grows."""


def softplus(x: float) -> float:
    """The logarithm of 1 + exp(x), which is at most |x| + 1."""
    return x + log1p(exp(-x)) if x > 0 else log1p(exp(x))
