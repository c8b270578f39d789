"""Floating-point operations are rounded once, from exact results, and functions correctly."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from properties.harness.kernels.arithmetic.elements import DTYPES
from properties.meta.kernels import reference
from properties.meta.kernels.cases import FLOAT_PREDICATES, FLOATS, ArithmeticCase
from properties.meta.kernels.comparing import few, found, known, pairs, same
from properties.meta.kernels.reference import Number, nearest, number
from properties.meta.kernels.values import WIDTHS, decode, floats, is_nan, operands

pytestmark = pytest.mark.filterwarnings("error")
mpmath: Any = pytest.importorskip("mpmath")


def exact(name: str, a: Number, b: Number) -> Number:
    """A float where infinities, NaNs or zeros have a say."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return {"addf": a + b, "subf": a - b, "mulf": a * b, "divf": a / b}[name] or 0.0
    if name in ("addf", "subf") and math.isfinite(a) and math.isfinite(b) and (a or b):
        return Fraction(a) + Fraction(b) * (1 if name == "addf" else -1)
    # Any other number does for one that is neither zero nor infinite.
    x, y = ((1.0 if one > 0 else -1.0) if isinstance(one, Fraction) else one for one in (a, b))
    if name == "divf" and y == 0:
        return math.copysign(
            math.nan if x == 0 else math.inf * abs(x), math.copysign(1, x) * math.copysign(1, y)
        )
    return {"addf": x + y, "subf": x - y, "mulf": x * y, "divf": x / (y or 1)}[name]


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("name", ["addf", "subf", "mulf", "divf"])
def test_float_operations_are_rounded_once(name: str, element: str) -> None:
    a, b = pairs(few(element, 2 if element == "f16" else 3), few(element, 3))
    rows = [(number(x, element), number(y, element)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    expected = [nearest(exact(name, x, y), element) for x, y in rows]
    same(name, element, rows, found(f"arith.{name}", (element, element), element, a, b), expected)


@pytest.mark.parametrize("element", FLOATS)
def test_fma_is_rounded_once(element: str) -> None:
    columns = [column[::5] for column in operands((element,) * 3)]
    finite = np.all(
        [~is_nan(column, element) & np.isfinite(decode(column, element)) for column in columns], axis=0
    )
    columns = [column[finite] for column in columns]
    rows = [
        tuple(number(x, element) for x in row) for row in zip(*(c.tolist() for c in columns), strict=True)
    ]
    expected = []
    for a, b, c in rows:
        result = Fraction(a) * Fraction(b) + Fraction(c)
        zero = 0.0 if a and b else float(a) * float(b) + float(c)
        expected.append(nearest(result or zero, element))
    same("fma", element, rows, found("math.fma", (element,) * 3, element, *columns), expected)


@pytest.mark.parametrize("element", FLOATS)
def test_a_remainder_comes_of_the_rounded_quotient(element: str) -> None:
    wide = "f64" if element == "f64" else "f32"
    a, b = pairs(few(element, 3), few(element, 5))
    rows = [(number(x, element), number(y, element)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    kept = [n for n, row in enumerate(rows) if all(isinstance(one, Fraction) for one in row)]
    expected, chosen = [], []
    for n in kept:
        x, y = (Fraction(one) for one in rows[n])
        bits = nearest(x / y, wide)
        assert bits is not None
        quotient = number(bits, wide)
        if not math.isinf(quotient):
            rest = nearest(x - math.trunc(quotient) * y or 0.0, wide)
            assert rest is not None
            expected.append(nearest(number(rest, wide), element))
            chosen.append(n)
    here = found("arith.remf", (element, element), element, a[chosen], b[chosen])
    # The sign of an exact zero is that of a sum of opposites: +, where the quotient is not zero.
    rows, sign = [rows[n] for n in chosen], 1 << WIDTHS[element] - 1
    same(
        "remf",
        element,
        rows,
        [one % sign or 0 if one == sign else one for one in here],
        [0 if one == sign else one for one in expected],
    )


@pytest.mark.parametrize("element", FLOATS)
def test_an_infinite_divisor_leaves_everything_and_zero_leaves_nothing(element: str) -> None:
    compute, dtype = known(ArithmeticCase("arith.remf", (element, element), element)), DTYPES[element]
    with np.errstate(all="ignore"):
        for number in (-2.5, 0.0, math.inf):
            assert compute(dtype(number), dtype(math.inf)) == number
            assert math.isnan(compute(dtype(number), dtype(0)))
        assert math.isnan(compute(dtype(math.inf), dtype(2)))


@pytest.mark.parametrize("element", FLOATS)
def test_the_least_and_the_greatest_number_know_the_sign_of_zero(element: str) -> None:
    a, b = pairs(few(element, 3), few(element, 3))
    rows = [(number(x, element), number(y, element)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]

    def order(bits: int) -> tuple[Number, bool]:
        return number(bits, element), bits >> WIDTHS[element] - 1 == 0

    for name, choose, propagates in (
        ("minimumf", min, True),
        ("maximumf", max, True),
        ("minnumf", min, False),
        ("maxnumf", max, False),
    ):
        expected: list[int | None] = []
        for x, y, row in zip(a.tolist(), b.tolist(), rows, strict=True):
            numbers = [bits for bits, value in zip((x, y), row, strict=True) if not math.isnan(value)]
            missing = len(numbers) < 2 if propagates else not numbers
            expected.append(None if missing else choose(numbers, key=order))
        same(name, element, rows, found(f"arith.{name}", (element, element), element, a, b), expected)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("predicate", FLOAT_PREDICATES)
def test_floats_are_compared_as_ieee_754_says(predicate: str, element: str) -> None:
    a, b = pairs(few(element, 3), few(element, 3))
    expected = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        p, q = number(x, element), number(y, element)
        if math.isnan(p) or math.isnan(q):
            expected.append(int(predicate in ("true", "une", "uno") or predicate[0] == "u"))
        else:
            holds = {"eq": p == q, "gt": p > q, "ge": p >= q, "lt": p < q, "le": p <= q, "ne": p != q}
            always = {"true": True, "ord": True, "false": False, "uno": False}
            expected.append(int(always[predicate] if predicate in always else holds[predicate[1:]]))
    assert found("arith.cmpf", (element, element), "i1", a, b, predicate=predicate) == expected


REAL: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x, 2),
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "erf": mpmath.erf,
}
FLUSHED = ("sqrt", "rsqrt", "sin", "erf")


def as_fraction(value: Any) -> Number:
    sign, mantissa, exponent, _ = value._mpf_
    return (-1) ** sign * mantissa * reference.power(exponent) if mantissa else 0.0


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("name", REAL)
def test_functions_are_rounded_correctly(name: str, element: str) -> None:
    smallest = Fraction(1, 1 << 126)
    numbers = [(bits, number(bits, element)) for bits in floats(element).tolist()]
    rows = [(bits, x) for bits, x in numbers if isinstance(x, Fraction) and abs(x) < 2**300]
    if name in ("log", "log2", "sqrt", "rsqrt"):
        rows = [(bits, x) for bits, x in rows if x > 0]
    if element == "f32" and name in FLUSHED:
        rows = [(bits, x) for bits, x in rows if abs(x) >= smallest]
    here = found(
        f"math.{name}", (element,), element, np.array([bits for bits, _ in rows], f"u{WIDTHS[element] // 8}")
    )
    with mpmath.workprec(600):
        for seen, (_, x) in zip(here, rows, strict=True):
            if name in ("exp", "exp2") and abs(x) > 2000:
                continue
            value = REAL[name](mpmath.mpf(x.numerator) / x.denominator)
            one = nearest(as_fraction(value), element)
            assert one is not None
            if name == "exp2" and element == "f32" and one < 1 << 23:
                one = 0
            assert abs(seen - one) <= (element == "f64") * 2, f"{name} of {float(x)!r}"


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("ceil", 1e-40, 0.0),
        ("floor", -1e-40, -0.0),
        ("sqrt", -1e-40, -0.0),
        ("rsqrt", 1e-40, math.inf),
        ("rsqrt", -1e-40, -math.inf),
        ("sin", -1e-40, -0.0),
        ("erf", 1e-40, 0.0),
        ("exp2", -127.0, 0.0),
        ("exp", -88.0, 6.0546014e-39),
        ("log", 1e-40, -92.10341),
        ("ceil", 0.25, 1.0),
        ("floor", -0.25, -1.0),
        ("sqrt", -1.0, math.nan),
        ("exp", -math.inf, 0.0),
    ],
)
def test_subnormal_numbers_are_zero_where_a_gpu_flushes_them(
    name: str, argument: float, expected: float
) -> None:
    compute = known(ArithmeticCase(f"math.{name}", ("f32",), "f32"))
    with np.errstate(all="ignore"):
        for result in (compute(np.float32(argument)), compute(np.array([argument], np.float32))[0]):
            if math.isnan(expected):
                assert math.isnan(result)
            else:
                assert result.tobytes() == np.float32(expected).tobytes()
