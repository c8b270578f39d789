"""Integer arithmetic is that of mathematics; scalars, arrays and their mixtures agree in every operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from properties.harness.kernels.arithmetic import atomic, operation
from properties.harness.kernels.arithmetic.elements import DTYPES
from properties.meta.kernels import reference
from properties.meta.kernels.cases import ATOMICS, INTEGERS, PARTIAL, SIMPLE, ArithmeticCase, cases
from properties.meta.kernels.comparing import few, found, known, pairs, same
from properties.meta.kernels.reference import signed
from properties.meta.kernels.values import WIDTHS, Array, decode, edges, encode, is_nan, operands, scalar

pytestmark = pytest.mark.filterwarnings("error")

CASES = cases()
BINARY = (*SIMPLE, *PARTIAL, "remsi", "remui")


@pytest.mark.parametrize("element", INTEGERS)
@pytest.mark.parametrize("name", BINARY)
def test_integer_operations_are_those_of_mathematics(name: str, element: str) -> None:
    width, (a, b) = WIDTHS[element], pairs(edges(element), edges(element))
    rows = [(signed(x, width), signed(y, width)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    expected = [reference.INTEGER[name](x, y, width) % (1 << width) for x, y in rows]
    same(name, element, rows, found(f"arith.{name}", (element, element), element, a, b), list(expected))
    compute = known(ArithmeticCase(f"arith.{name}", (element, element), element))
    for (x, y), one in zip(rows[::7], expected[::7], strict=True):
        assert compute(x, y) == signed(one, width), f"{name} of {x} and {y} as {element}"


@pytest.mark.parametrize("element", ["i32", "i64"])
def test_high_products_are_those_of_unsigned_numbers(element: str) -> None:
    width, (a, b) = WIDTHS[element], pairs(edges(element), edges(element))
    rows = list(zip(a.tolist(), b.tolist(), strict=True))
    expected = [x * y >> width for x, y in rows]
    same("mulhiui", element, rows, found("tt.mulhiui", (element, element), element, a, b), list(expected))


@pytest.mark.parametrize("element", INTEGERS)
def test_extended_products_and_sums_have_all_their_bits(element: str) -> None:
    width, (a, b) = WIDTHS[element], pairs(few(element, 3), few(element, 3))
    mask, types = (1 << width) - 1, (element, element)
    arrays = decode(a, element), decode(b, element)
    for name, is_signed in (("mulsi_extended", True), ("mului_extended", False)):
        compute = known(ArithmeticCase(f"arith.{name}", types, element))
        low, high = (encode(one, element).tolist() for one in compute(*arrays))
        for n, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
            product = signed(x, width) * signed(y, width) if is_signed else x * y
            assert (low[n], high[n]) == (product & mask, product >> width & mask)
            scalars = compute(signed(x, width), signed(y, width))
            assert scalars == (signed(product, width), signed(product >> width, width))
    total, carried = known(ArithmeticCase("arith.addui_extended", types, element))(*arrays)
    assert encode(total, element).tolist() == [
        x + y & mask for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert carried.tolist() == [x + y > mask for x, y in zip(a.tolist(), b.tolist(), strict=True)]


@pytest.mark.parametrize("element", ["i1", *INTEGERS])
def test_integers_are_compared_by_their_values(element: str) -> None:
    width = 1 if element == "i1" else WIDTHS[element]
    bits = np.array([0, 1], np.uint8) if element == "i1" else few(element, 2)
    a, b = pairs(bits, bits)
    orders: dict[str, Callable[[int, int], bool]] = {
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
    }
    rows = list(zip(a.tolist(), b.tolist(), strict=True))
    for word, compare in orders.items():
        of_signed = [int(compare(signed(x, width), signed(y, width))) for x, y in rows]
        assert found("arith.cmpi", (element, element), "i1", a, b, predicate=f"s{word}") == of_signed
        of_unsigned = [int(compare(x, y)) for x, y in rows]
        assert found("arith.cmpi", (element, element), "i1", a, b, predicate=f"u{word}") == of_unsigned
    assert found("arith.cmpi", (element, element), "i1", a, b, predicate="eq") == [
        int(x == y) for x, y in rows
    ]
    assert found("arith.cmpi", (element, element), "i1", a, b, predicate="ne") == [
        int(x != y) for x, y in rows
    ]


@pytest.mark.parametrize("name", SIMPLE)
def test_integers_of_one_bit_wrap_around_like_longer_ones(name: str) -> None:
    compute = known(ArithmeticCase(f"arith.{name}", ("i1", "i1"), "i1"))
    for a in (0, 1):
        for b in (0, 1):
            expected = reference.INTEGER[name](*(a, b) if name.endswith("ui") else (-a, -b), 1) & 1
            for x, y in ((a, b), (bool(a), bool(b)), (np.array([a != 0]), b), (a, np.array([b != 0]))):
                result = compute(x, y)
                assert np.all(result == expected)
                assert np.asarray(result).dtype == np.bool_


@pytest.mark.parametrize(("op", "element"), ATOMICS)
def test_atomics_store_what_the_operation_gives(op: str, element: str) -> None:
    compute = atomic(op, element)
    assert compute is not None
    name = {"max": "maxsi", "min": "minsi", "umax": "maxui", "umin": "minui", "and": "andi", "or": "ori"}.get(
        op, {"xor": "xori", "add": "addi", "fadd": "addf"}.get(op, op)
    )
    a, b = pairs(few(element, 3), few(element, 4))
    values = decode(a, element), decode(b, element)
    with np.errstate(all="ignore"):
        here = compute(*values)
        expected = (
            values[1]
            if op == "exch"
            else known(ArithmeticCase(f"arith.{name}", (element, element), element))(*values)
        )
    plain = np.ones(len(a), bool)
    if (op, element) == ("fadd", "f32"):
        plain = np.all([(np.abs(one) >= 2.0**-126) | (one == 0) for one in (*values, expected)], axis=0)
    assert here[plain].tobytes() == expected[plain].tobytes()


def test_an_atomic_addition_of_f32_flushes_subnormal_numbers() -> None:
    compute, smallest = atomic("fadd", "f32"), np.float32(2.0**-126)
    assert compute is not None
    assert compute(smallest / 2, smallest / 2) == 0
    assert compute(smallest * np.float32(1.5), -smallest) == 0
    assert compute(smallest / 2, smallest) == compute(smallest, smallest / 2) == smallest
    assert compute(np.array([1, 2], np.float32), smallest / 2).tolist() == [1, 2]


def sampled(case: ArithmeticCase) -> list[Array]:
    columns = operands(case.operands)
    chosen = np.random.default_rng(3).integers(0, len(columns[0]), 24)
    return [column[chosen] for column in columns]


@pytest.mark.parametrize("name", sorted({case.name for case in CASES}))
def test_scalars_and_arrays_agree(name: str) -> None:
    for case in CASES:
        if case.name == name:
            check_agreement(case)


def check_agreement(case: ArithmeticCase) -> None:
    compute, columns = known(case), sampled(case)
    arrays = [decode(bits, element) for bits, element in zip(columns, case.operands, strict=True)]
    for array in arrays:
        array.flags.writeable = False
    with np.errstate(all="ignore"):
        together = compute(*arrays)
        assert together.dtype == DTYPES[case.result]
        for n in range(len(columns[0])):
            scalars = [
                scalar(array, n, element) for array, element in zip(arrays, case.operands, strict=True)
            ]
            alone = compute(*scalars)
            assert type(alone) is type(scalar(together, n, case.result))
            agree(case, alone, together[n])
            for place in range(len(scalars) if len(scalars) > 1 else 0):
                mixed = compute(*scalars[:place], arrays[place], *scalars[place + 1 :])
                assert mixed.dtype == together.dtype
                assert mixed.shape == together.shape
                agree(case, mixed[n], together[n])


def agree(case: ArithmeticCase, one: Any, other: Any) -> None:
    bits = [encode(np.array([value], DTYPES[case.result]), case.result) for value in (one, other)]
    nan = all(is_nan(each, case.result)[0] for each in bits)
    assert nan or bits[0] == bits[1], f"{case}: {one} alone, {other} in an array"


@pytest.mark.parametrize(
    ("name", "types", "result", "attributes"),
    [
        ("arith.addi", ("f32", "f32"), "f32", {}),
        ("arith.addf", ("f8E5M2", "f8E5M2"), "f8E5M2", {}),
        ("arith.extf", ("f8E5M2",), "f16", {}),
        ("arith.fptosi", ("f32",), "i1", {}),
        ("arith.sitofp", ("i1",), "f32", {}),
        ("arith.nothing", ("i32",), "i32", {}),
        ("math.exp", ("f16",), "f16", {}),
        ("math.tanh", ("f32",), "f32", {}),
        ("tt.fp_to_fp", ("f8E5M2",), "f8E4M3FN", {}),
        ("tt.fp_to_fp", ("f32",), "f8E4M3FN", {"rounding": "rtz"}),
        ("tt.bitcast", ("i32",), "i64", {}),
        ("tt.precise_sqrt", ("f64",), "f64", {}),
        ("tt.dot", ("f16", "f16"), "f32", {}),
        ("scf.if", ("i1",), "i32", {}),
    ],
)
def test_what_triton_does_not_compile_is_not_known(
    name: str, types: tuple[str, ...], result: str, attributes: dict[str, str]
) -> None:
    assert operation(name, types, result, attributes) is None


def test_unknown_atomics_are_not_known() -> None:
    assert atomic("max", "f32") is None
    assert atomic("inc", "i32") is None
    assert atomic("fadd", "i32") is None
