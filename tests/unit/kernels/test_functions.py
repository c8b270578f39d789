"""Functions of floats are rounded correctly, and flush subnormal numbers as a GPU does."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.unit.kernels import reference
from tests.unit.kernels.cases import ArithmeticCase
from tests.unit.kernels.comparing import computed, known
from tests.unit.kernels.reference import Number, nearest, number
from tests.unit.kernels.values import WIDTHS, floats

pytestmark = pytest.mark.filterwarnings("error")
mpmath: Any = pytest.importorskip("mpmath")


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
    case = ArithmeticCase(f"math.{name}", (element,), element)
    here = computed(case, [np.array([bits for bits, _ in rows], f"u{WIDTHS[element] // 8}")]).tolist()
    with mpmath.workprec(600):
        for seen, (_, x) in zip(here, rows, strict=True):
            if name in ("exp", "exp2") and abs(x) > 2000:
                continue
            value = REAL[name](mpmath.mpf(x.numerator) / x.denominator)
            expected = nearest(as_fraction(value), element)
            assert expected is not None
            if name == "exp2" and element == "f32" and expected < 1 << 23:
                expected = 0
            assert abs(seen - expected) <= (element == "f64") * 2, f"{name} of {float(x)!r}"


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
