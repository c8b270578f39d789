"""Every operation is that of its definition; scalars, arrays and their mixtures agree in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from statecheck.kernels.arithmetic import DTYPES, atomic, operation
from tests.unit.kernels import reference
from tests.unit.kernels.cases import ATOMICS, SIMPLE, ArithmeticCase, cases
from tests.unit.kernels.comparing import computed, known
from tests.unit.kernels.reference import ANY
from tests.unit.kernels.values import Array, decode, encode, is_nan, operands, scalar

pytestmark = pytest.mark.filterwarnings("error")

CASES = [*cases(), *(ArithmeticCase("arith.divf", (t, t), t) for t in ("f16", "bf16"))]
DEFINED = [
    case for case in CASES if case.name[:5] != "math." or case.name in ("math.absi", "math.absf", "math.fma")
]
ROWS = 1000


def rows_of(elements: tuple[str, ...]) -> list[Array]:
    """Columns of operands: all combinations of edges, and random ones, or every n-th where these are many."""
    columns = operands(elements)
    return [column[:: 1 + len(column) // ROWS] for column in columns]


def agree_with(expected: list[Any], case: object, element: str, columns: list[Array], here: Array) -> None:
    nan = is_nan(here, element)
    for row, seen, seen_nan, wanted in zip(
        zip(*columns, strict=True), here.tolist(), nan, expected, strict=True
    ):
        agrees = wanted is ANY or (bool(seen_nan) if wanted is None else seen == wanted)
        assert agrees, f"{case} of {[hex(pattern) for pattern in row]} = {seen:#x}, but should be {wanted}"


@pytest.mark.parametrize("name", sorted({case.name for case in DEFINED} - {"tt.precise_sqrt"}))
def test_an_operation_is_that_of_its_definition(name: str) -> None:
    for case in DEFINED:
        if case.name == name:
            columns = rows_of(case.operands)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            expected = [
                reference.result(name, case.operands, case.result, case.attributes, row) for row in rows
            ]
            agree_with(expected, case, case.result, columns, computed(case, columns))


@pytest.mark.parametrize("name", SIMPLE)
def test_a_bool_may_be_0_or_1(name: str) -> None:
    compute = known(ArithmeticCase(f"arith.{name}", ("i1", "i1"), "i1"))
    for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert bool(compute(a, b)) == compute(bool(a), bool(b)) == compute(np.array([a != 0]), b)[0]


ATOMIC_NAMES = {
    "max": "maxsi", "min": "minsi", "umax": "maxui", "umin": "minui", "and": "andi", "or": "ori", "xor": "xori",
    "add": "addi", "fadd": "addf",
}  # fmt: skip


@pytest.mark.parametrize(("op", "element"), ATOMICS)
def test_atomics_store_what_the_operation_gives(op: str, element: str) -> None:
    compute, columns = atomic(op, element), rows_of((element, element))
    assert compute is not None
    with np.errstate(all="ignore"):
        here = encode(compute(*(decode(bits, element) for bits in columns)), element)
    if op == "exch":
        assert here.tolist() == columns[1].tolist()
        return
    case = ArithmeticCase(f"arith.{ATOMIC_NAMES[op]}", (element, element), element)
    expected: list[Any] = computed(case, columns).tolist()
    if (op, element) == ("fadd", "f32"):
        flushed = [
            any(0 < pattern & 0x7FFFFFFF < 1 << 23 for pattern in row)
            for row in zip(*(c.tolist() for c in columns), expected, strict=True)
        ]
        expected = [ANY if flush else wanted for flush, wanted in zip(flushed, expected, strict=True)]
    agree_with(
        [None if w is not ANY and is_nan(np.array([w], here.dtype), element)[0] else w for w in expected],
        case,
        element,
        columns,
        here,
    )


def test_an_atomic_addition_of_f32_flushes_subnormal_numbers() -> None:
    compute, smallest = atomic("fadd", "f32"), np.float32(2.0**-126)
    assert compute is not None
    assert compute(smallest / 2, smallest / 2) == 0
    assert compute(smallest * np.float32(1.5), -smallest) == 0
    assert compute(smallest / 2, smallest) == compute(smallest, smallest / 2) == smallest
    assert compute(np.array([1, 2], np.float32), smallest / 2).tolist() == [1, 2]


@pytest.mark.parametrize("name", sorted({case.name for case in CASES}))
def test_a_scalar_is_an_array_of_one(name: str) -> None:
    """Alone, and beside arrays."""
    for case in CASES:
        if case.name == name:
            for row in zip(
                *(column[:: 1 + len(column) // 12] for column in operands(case.operands)), strict=True
            ):
                check_scalars(
                    case, [decode(bits.reshape(1), e) for bits, e in zip(row, case.operands, strict=True)]
                )


def check_scalars(case: ArithmeticCase, arrays: list[Array]) -> None:
    compute, n = known(case), len(arrays)
    scalars = [scalar(array, 0, element) for array, element in zip(arrays, case.operands, strict=True)]
    with np.errstate(all="ignore"):
        together, alone = compute(*arrays), compute(*scalars)
        mixed = [compute(*scalars[:at], arrays[at], *scalars[at + 1 :]) for at in range(n)]
    assert type(alone) is type(scalar(together, 0, case.result))
    assert {(value.dtype, value.shape) for value in (together, *mixed)} == {
        (np.dtype(DTYPES[case.result]), (1,))
    }
    found = [encode(value, case.result) for value in (together, *mixed, np.array([alone], together.dtype))]
    nan = [bool(is_nan(bits, case.result)[0]) for bits in found]
    assert all(nan) or len({int(bits[0]) for bits in found}) == 1, f"{case} of {scalars}: {found}"


@pytest.mark.parametrize(
    ("name", "types", "result", "attributes"),
    [
        ("arith.addi", ("f32", "f32"), "f32", {}),
        ("arith.addf", ("f8E5M2", "f8E5M2"), "f8E5M2", {}),
        ("arith.extf", ("f8E5M2",), "f16", {}),
        ("arith.fptosi", ("f32",), "i1", {}),
        ("arith.sitofp", ("i1",), "f32", {}),
        ("arith.floordivsi", ("i32", "i32"), "i32", {}),
        ("arith.remf", ("f8E5M2", "f8E5M2"), "f8E5M2", {}),
        ("arith.cmpf", ("f32", "f32"), "i1", {"predicate": "uno"}),
        ("math.fma", ("f64", "f64", "f64"), "f64", {}),
        ("tt.extern_elementwise", ("f32",), "f32", {"symbol": "__nv_nothingf"}),
        ("tt.extern_elementwise", ("f32", "i32"), "f32", {"symbol": "__nv_powif"}),
        ("tt.fp_to_fp", ("f64",), "bf16", {"rounding": "rtz"}),
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
def test_operations_that_are_not_executed_are_not_known(
    name: str, types: tuple[str, ...], result: str, attributes: dict[str, str]
) -> None:
    assert operation(name, types, result, attributes) is None


def test_unknown_atomics_are_not_known() -> None:
    assert atomic("max", "f32") is None
    assert atomic("inc", "i32") is None
    assert atomic("fadd", "i32") is None


def test_an_integer_is_rounded_once_to_bf16() -> None:
    # f32 has no bit for the last one, and would leave a tie.
    number = 2**30 + 2**22 + 1
    convert = operation("arith.sitofp", ("i32",), "bf16", {})
    assert convert is not None
    assert convert(np.array([number], np.int32)).tolist() == [2**30 + 2**23]
