"""How far a kernel's result may lie from the recurrence: computed of the input, never chosen.

A recurrence runs three times. On the values, in double precision, it gives the expected result. On absolute values, where each difference
becomes a sum, it gives the size of all that was added up on the way; this size, times the number of a token's operations, times the unit roundoff of
the type in which the kernel accumulates, times `CONSTANT`, bounds what any order of these operations can differ by (Higham, Accuracy and Stability of
Numerical Algorithms, chapter 3). And on the error of the state before, with values of zero, it says what that error has become: all recurrences here are
linear in their state. So an error is made anew by each token, and decays as the state does.

`HeadStep.advance` adds four terms for each entry of a state. With s the size behind the token, k the part of s that is left of the size b before it, d the
decay where no rounded product multiplies the state, n the token's operations, p its rounded products, u the roundoff of sums and t that of products:

1. the error of the state before, as the recurrence carries it on;
2. `Roundoff.of(n)` * (s - k + smallest): what the token adds is rounded in sums, and in products where these round their factors;
3. `CONSTANT` * p * t * (k - d * b): what is left goes through rounded products, but for the part that only decays;
4. `CONSTANT` * n * u * k: what is left is rounded by the sums that it goes through.

An output has `Roundoff.of(n)` * (its size + smallest) beside the error of the state that it reads.

Where a step cannot make a row of the state longer, as the delta rule with a key of length 1, absolute values still grow from token to token. There Euclidean
lengths bound sizes and errors as well (`Lengths`), and the smaller of the two bounds holds.

A kernel that makes products on tensor cores, or keeps factors in the type of its inputs, rounds a token's part a few times on its way, and what is left
of earlier tokens only where these go through a product again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log1p, sqrt

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
SMALLEST = {
    "float64": 2.0**-1000,
    "float32": 2.0**-100,
    "tfloat32": 2.0**-100,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-100,
}
"""What a result may be off by beside its relative bound, by type.

float16 rounds to multiples of 2^-24. In float32 and bfloat16 a factor below 2^-126 is flushed to zero; the other factors of its product are taken to be
at most 2^26.
"""

ROUNDED = 3.0
"""Times that a token's part, or an output, is rounded to the type of a product's factors on its way."""


@dataclass(frozen=True)
class Roundoff:
    """Unit roundoffs: of the type in which a kernel accumulates, and of the type that the factors of its products are rounded to, 0 where that is the same.

    `smallest`: what is not larger may be rounded as if it were as large. Factors in float16, one of which may be large, lose more of what is small.
    """

    sums: float
    products: float = 0.0
    smallest: float = 0.0

    @classmethod
    def of_factors(cls, factors: str) -> Roundoff:
        """Of a kernel that accumulates in float32, and rounds the factors of its products to this type."""
        if factors == "float32":
            return cls(UNIT_ROUNDOFF["float32"])
        small = 2.0**14 * SMALLEST["float16"] if factors == "float16" else 0.0
        return cls(UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[factors], small)

    def of(self, operations: float) -> float:
        """How far a result of so many operations may be off, as a part of its size."""
        return CONSTANT * (operations * self.sums + ROUNDED * self.products)


@dataclass(frozen=True)
class Near:
    """A number that is expected, and by how much a result may differ from it."""

    value: float
    bound: float = 0.0


def near(value: float, bound: float, stored: str) -> Near:
    """A result of a kernel, which may be off by `bound` before it is rounded to the type that it is stored in.

    Where it may be larger than any finite number of this type, an infinity of the value's sign is right, too.
    """
    return Near(value, bound + 2 * UNIT_ROUNDOFF[stored] * (abs(value) + bound) + SMALLEST[stored])


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    """The sum of products."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def length(vector: Sequence[float]) -> float:
    """The Euclidean length."""
    return sqrt(dot(vector, vector))


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
