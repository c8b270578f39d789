"""Conversions between element types are those of their definitions, bit by bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from properties.harness.kernels.arithmetic.elements import DTYPES
from properties.meta.kernels import reference
from properties.meta.kernels.cases import FLOATS, INTEGERS, ArithmeticCase, cases
from properties.meta.kernels.comparing import bits_to_convert, found, known, same
from properties.meta.kernels.reference import nearest, number, signed
from properties.meta.kernels.values import WIDTHS, decode, encode, operands, scalar

pytestmark = pytest.mark.filterwarnings("error")


NARROWING = (
    *(("arith.truncf", a, b, "") for a, b in (("f64", "f32"), ("f64", "f16"), ("f64", "bf16"), ("f32", "f16"), ("f32", "bf16"))),
    *(("tt.fp_to_fp", a, b, "rtne") for a, b in (("f32", "f16"), ("f32", "bf16"), ("f16", "bf16"), ("bf16", "f16"))),
    *(("tt.fp_to_fp", a, b, "rtz") for a, b in (("f32", "f16"), ("f32", "bf16"), ("f16", "bf16"), ("bf16", "f16"))),
    *(("tt.fp_to_fp", a, b, "rtne") for a in ("f16", "bf16", "f32") for b in ("f8E5M2", "f8E4M3FN")),
)  # fmt: skip


@pytest.mark.parametrize(("name", "source", "result", "rounding"), NARROWING)
def test_a_shorter_format_gets_the_nearest_number(name: str, source: str, result: str, rounding: str) -> None:
    bits = bits_to_convert(source)
    attributes = {"rounding": rounding} if rounding else {}
    rows = [number(one, source) for one in bits.tolist()]
    if result.startswith("f8"):
        expected = [reference.saturated(row, result) for row in rows]
    else:
        expected = [nearest(row, result, toward_zero=rounding == "rtz") for row in rows]
    same(f"{name} {rounding}", result, rows, found(name, (source,), result, bits, **attributes), expected)


def test_f8e5m2_toward_zero_is_the_upper_half_of_an_f16() -> None:
    bits = bits_to_convert("f32")
    here = found("tt.fp_to_fp", ("f32",), "f8E5M2", bits, rounding="rtz")
    halves = [nearest(number(one, "f32"), "f16", toward_zero=True) for one in bits.tolist()]
    same("rtz", "f8E5M2", bits.tolist(), here, [None if one is None else one >> 8 for one in halves])


@pytest.mark.parametrize("result", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("source", ["f8E5M2", "f8E4M3FN"])
def test_bytes_are_the_numbers_that_their_bits_say(source: str, result: str) -> None:
    bits = np.arange(256, dtype=np.uint8)
    expected: list[int | None] = []
    for one in range(256):
        value = number(one, source)
        if (source, result) == ("f8E5M2", "bf16") and one & 0x7C == 0x7C:
            # Triton multiplies the bits by a power of two, as if the highest exponent were like any other.
            value = (-1) ** (one >> 7) * Fraction(4 + (one & 3)) * 2**14
        expected.append(nearest(value, result))
    same("fp_to_fp", result, bits.tolist(), found("tt.fp_to_fp", (source,), result, bits), expected)


@pytest.mark.parametrize("result", FLOATS)
@pytest.mark.parametrize("source", INTEGERS)
def test_an_integer_becomes_the_nearest_float(source: str, result: str) -> None:
    bits = bits_to_convert(source)
    for name, of in (("sitofp", lambda one: signed(one, WIDTHS[source])), ("uitofp", lambda one: one)):
        rows = [of(one) for one in bits.tolist()]
        expected = [nearest(Fraction(row) if row else 0.0, result) for row in rows]
        same(name, result, rows, found(f"arith.{name}", (source,), result, bits), expected)


@pytest.mark.parametrize("result", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
def test_a_float_becomes_the_integer_toward_zero_that_is_in_range(source: str, result: str) -> None:
    bits, width = bits_to_convert(source), WIDTHS[result]
    rows = [number(one, source) for one in bits.tolist()]
    for name, is_signed in (("fptosi", True), ("fptoui", False)):
        expected = [reference.to_integer(row, source, width, is_signed) % (1 << width) for row in rows]
        same(name, result, rows, found(f"arith.{name}", (source,), result, bits), list(expected))


@pytest.mark.parametrize("case", [case for case in cases() if case.name == "tt.bitcast"], ids=str)
def test_a_bitcast_keeps_every_bit(case: ArithmeticCase) -> None:
    (source,) = case.operands
    (bits,) = operands((source,))
    assert found(case.name, case.operands, case.result, bits) == bits.tolist()
    values = decode(bits, source)
    compute = known(case)
    for n in range(0, len(bits), 1 + len(bits) // 200):
        result = compute(scalar(values, n, source))
        assert encode(np.array([result], DTYPES[case.result]), case.result)[0] == bits[n]
