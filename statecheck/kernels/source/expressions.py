"""Expressions for what kernels do most: integers, comparisons and selections, written out instead of called."""

from __future__ import annotations

from statecheck.kernels.source.flow import SCALAR
from statecheck.kernels.source.ir import Operation

_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
_SIGNED = {"eq": "==", "ne": "!=", "slt": "<", "sle": "<=", "sgt": ">", "sge": ">="}
_UNSIGNED = {"ult": "<", "ule": "<=", "ugt": ">", "uge": ">="}
_WRAPPING = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*"}
_BITWISE = {"arith.andi": "&", "arith.ori": "|", "arith.xori": "^"}
_CHOICES = {"arith.minsi": ("<", "minimum"), "arith.maxsi": (">", "maximum")}
_DTYPE = {"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"}


def inline(op: Operation, names: list[str], forms: list[int], attributes: dict[str, str]) -> str | None:
    """An expression of the result; None where a function has to be called."""
    scalar = not any(form != SCALAR for form in forms)
    element = op.operands[0].type.element if op.operands else ""
    if op.name == "arith.select":
        return _selected(names, forms, op.result.type.element)
    if op.name == "arith.cmpi":
        return _compared(attributes["predicate"], element, names, scalar=scalar)
    if op.name in ("tt.int_to_ptr", "tt.ptr_to_int"):
        return names[0]
    if op.name in _BITWISE and (element in _BITS or element == "i1"):
        return f"{names[0]} {_BITWISE[op.name]} {names[1]}"
    if element == "i1":
        return _of_bool(op, names, scalar=scalar)
    return _of_integers(op, element, names, scalar=scalar) if element in _BITS else None


def _of_integers(op: Operation, element: str, names: list[str], *, scalar: bool) -> str | None:
    target = op.result.type.element if op.results else ""
    if op.name in _WRAPPING:
        plain = f"{names[0]} {_WRAPPING[op.name]} {names[1]}"
        return _wrapped(plain, _BITS[element]) if scalar else plain
    if op.name in _CHOICES:
        sign, function = _CHOICES[op.name]
        return (
            f"{names[0]} if {names[0]} {sign} {names[1]} else {names[1]}"
            if scalar
            else f"{function}({names[0]}, {names[1]})"
        )
    if op.name == "arith.extui" and scalar:
        return f"{names[0]} & {(1 << _BITS[element]) - 1:#x}"
    if op.name == "arith.extsi" and scalar:
        return names[0]
    if op.name == "arith.trunci" and scalar and target != "i1":
        return _wrapped(names[0], _BITS[target])
    if op.name in ("arith.extsi", "arith.trunci") and target != "i1":
        return f"{names[0]}.astype({_DTYPE[target]})"
    return None


def _wrapped(text: str, bits: int) -> str:
    half = 1 << (bits - 1)
    return f"(({text}) + {half:#x} & {(1 << bits) - 1:#x}) - {half:#x}"


def _selected(names: list[str], forms: list[int], element: str) -> str | None:
    condition, first, second = names
    if forms[0] == SCALAR and forms[1] == forms[2]:
        return f"{first} if {condition} else {second}"
    if forms[0] == SCALAR or (forms[1] == forms[2] == SCALAR and element not in _DTYPE):
        return None
    if forms[1] == forms[2] == SCALAR:
        first = f"{_DTYPE[element]}({first})"
    return f"where({condition}, {first}, {second})"


def _compared(predicate: str, element: str, names: list[str], *, scalar: bool) -> str | None:
    if predicate in _SIGNED and (element != "i1" or predicate in ("eq", "ne")):
        return f"{names[0]} {_SIGNED[predicate]} {names[1]}"
    if predicate in _UNSIGNED and scalar and element in _BITS:
        mask = (1 << _BITS[element]) - 1
        return f"({names[0]} & {mask:#x}) {_UNSIGNED[predicate]} ({names[1]} & {mask:#x})"
    return None


def _of_bool(op: Operation, names: list[str], *, scalar: bool) -> str | None:
    target = op.result.type.element
    if op.name == "arith.extui" and target in _DTYPE:
        return f"int({names[0]})" if scalar else f"{names[0]}.astype({_DTYPE[target]})"
    return None
