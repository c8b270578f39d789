"""The arithmetic of Triton's intermediate language, as its CUDA backend compiles it for sm_90.

    >>> add = operation("arith.addi", ("i32", "i32"), "i32", {})
    >>> add(2**31 - 1, 1)
    -2147483648

`elements` says how values are represented. Functions neither raise nor, under np.errstate(all="ignore"), warn.

What the compiler makes of several operations together is not covered: it contracts a product and a sum to one fma. Results
that LLVM leaves undefined are those of a lone operation. Not known are remainders and clamps of floating-point numbers,
roundings toward zero, and the fma of f64.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic import conversions, floats, functions, integers, rounding
from statecheck.kernels.arithmetic.elements import DTYPES, FLOATS, INTEGERS, WIDTHS, plain

Function = Callable[..., Any]

_FLOAT: dict[str, Callable[[str], Function]] = {
    "addf": floats.add,
    "subf": floats.subtract,
    "mulf": floats.multiply,
    "divf": floats.divide,
    "negf": lambda element: operator.neg,
    "minimumf": lambda element: floats.minimum,
    "maximumf": lambda element: floats.maximum,
    "minnumf": lambda element: floats.minimum_number,
    "maxnumf": lambda element: floats.maximum_number,
}

_CAST: dict[str, tuple[Mapping[str, int], Mapping[str, int], Callable[[str, str], Function | None]]] = {
    "extsi": (INTEGERS, INTEGERS, conversions.extend_signed),
    "extui": (INTEGERS, INTEGERS, conversions.extend_unsigned),
    "trunci": (INTEGERS, INTEGERS, conversions.truncate),
    "index_cast": (INTEGERS, INTEGERS, partial(conversions.index_cast, extend=conversions.extend_signed)),
    "index_castui": (INTEGERS, INTEGERS, partial(conversions.index_cast, extend=conversions.extend_unsigned)),
    "sitofp": (INTEGERS, FLOATS, conversions.signed_to_float),
    "uitofp": (INTEGERS, FLOATS, conversions.unsigned_to_float),
    "fptosi": (FLOATS, INTEGERS, partial(conversions.float_to_integer, is_signed=True)),
    "fptoui": (FLOATS, INTEGERS, partial(conversions.float_to_integer, is_signed=False)),
    "extf": (FLOATS, FLOATS, conversions.extend_float),
    "truncf": (FLOATS, FLOATS, conversions.truncate_float),
    "bitcast": (WIDTHS, WIDTHS, conversions.bitcast),
}

_ATOMIC_INTEGER = {
    **{name: f"{name}i" for name in ("and", "or", "xor", "add")},
    "max": "maxsi",
    "min": "minsi",
    "umax": "maxui",
    "umin": "minui",
}


def operation(
    name: str, operands: tuple[str, ...], result: str, attributes: Mapping[str, str]
) -> Function | None:
    """What computes an operation on elements of these types; None where there is no such operation.

    Comparisons name their "predicate" among the attributes, and tt.fp_to_fp its "rounding".
    """
    dialect, _, name = name.partition(".")
    if dialect == "arith":
        compute = _arith(name, operands, result, attributes)
    elif dialect == "math":
        compute = _math(name, operands[0])
    else:
        compute = _triton(name, operands, result, attributes) if dialect == "tt" else None
    return None if compute is None else _of_scalars_too(compute, operands)


def _of_scalars_too(compute: Function, operands: tuple[str, ...]) -> Function:
    """What computes on NumPy's numbers and arrays, of Python's integers as well."""
    dtypes = [DTYPES[element] for element in operands]

    def call(*values: Any) -> Any:
        found = compute(
            *(
                dtype(value) if type(value) is int or type(value) is bool else value
                for dtype, value in zip(dtypes, values, strict=True)
            )
        )
        return plain(found)

    return call


def _arith(
    name: str, operands: tuple[str, ...], result: str, attributes: Mapping[str, str]
) -> Function | None:
    element = operands[-1]
    if name in _CAST:
        sources, results, convert = _CAST[name]
        return convert(element, result) if element in sources and result in results else None
    if name == "select":
        return np.where if element in DTYPES else None
    if name == "cmpi":
        return integers.comparison(element, attributes["predicate"]) if element in INTEGERS else None
    if name == "cmpf":
        return floats.COMPARISONS.get(attributes["predicate"]) if element in FLOATS else None
    if element == "i1":
        return integers.OF_TRUTH_VALUES.get(name)
    if element in INTEGERS:
        return integers.OPERATIONS.get(name)
    return _FLOAT[name](element) if name in _FLOAT and element in FLOATS else None


def _math(name: str, element: str) -> Function | None:
    if name == "absi" and INTEGERS.get(element, 0) > 1:
        return np.abs
    if name == "absf" and element in FLOATS:
        return np.abs
    if name == "fma":
        return floats.FMA.get(element)
    return {"f32": functions.OF_F32, "f64": functions.OF_F64}.get(element, {}).get(name)


def _triton(
    name: str, operands: tuple[str, ...], result: str, attributes: Mapping[str, str]
) -> Function | None:
    source = operands[0]
    if name == "bitcast" and source in WIDTHS and result in WIDTHS:
        return conversions.bitcast(source, result)
    if name in ("int_to_ptr", "ptr_to_int"):
        return conversions.same
    if name == "fp_to_fp":
        return rounding.FP_TO_FP.get((source, result), {}).get(attributes.get("rounding"))
    if name == "mulhiui" and INTEGERS.get(source, 0) > 1:
        return integers.multiply_high_unsigned
    if name == "precise_sqrt" and source == "f32":
        return np.sqrt
    return operator.truediv if name == "precise_divf" and source == "f32" else None


def atomic(op: str, element: str) -> Function | None:
    """What a read-modify-write stores, of the value before and the operand; None where there is no such operation.

    On the GPU's global memory, an addition of f32 takes and leaves subnormal numbers as zero.
    """
    if op == "exch":
        return lambda old, new: new
    compute: Function | None = None
    if op == "fadd" and element in FLOATS:
        compute = _add_flushed if element == "f32" else floats.add(element)
    elif op in _ATOMIC_INTEGER and INTEGERS.get(element, 0) > 1:
        compute = integers.OPERATIONS[_ATOMIC_INTEGER[op]]
    return None if compute is None else _of_scalars_too(compute, (element, element))


def _add_flushed(old: Any, new: Any) -> Any:
    return functions.flushed(functions.flushed(old) + functions.flushed(new))
