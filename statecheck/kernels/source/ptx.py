"""Inline assembly of kernels: instructions of PTX on 32-bit registers, element by element, as the PTX manual describes them.

Not known are branches, memory, several elements in one register (`pack` above 1 of short types), and what `_INSTRUCTIONS` has not.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic import (
    COMPARISONS,
    DTYPES,
    OF_F32,
    Function,
    flushed,
    fma_f32,
    maximum,
    maximum_number,
    minimum,
    minimum_number,
    plain,
)
from statecheck.kernels.source.ir import NotUnderstoodError, size_of


@dataclass(frozen=True)
class _Statement:
    guard: str
    """The predicate that it depends on, with "!" for its opposite; "" if it is always carried out."""
    name: str
    """Without the modifiers of `_MODIFIERS`."""
    flushes: bool
    operands: tuple[str, ...]


def assembly(text: str, constraints: str, operands: tuple[str, ...], results: tuple[str, ...]) -> Function:
    """What computes the results of inline assembly; a tuple of them if there are several.

    Args:
        operands: elements of the operands, and `results` those of the results.

    Raises:
        NotUnderstoodError: with the instruction, the type or the constraint that is not known.
    """
    for element in (*operands, *results):
        if size_of(element) != 4:
            raise NotUnderstoodError(f"inline assembly of {element}")
    for constraint in constraints.split(","):
        if constraint.strip() not in ("=r", "=f", "r", "f"):
            raise NotUnderstoodError(f"inline assembly with the constraint {constraint}")
    statements = [*_statements(text)]
    outputs = [f"${at}" for at in range(len(results))]
    inputs = [f"${at}" for at in range(len(results), len(results) + len(operands))]

    def compute(*values: Any) -> Any:
        registers = {
            name: np.asarray(value, DTYPES[element]).view(np.uint32)
            for name, value, element in zip(inputs, values, operands, strict=True)
        }
        for statement in statements:
            _execute(statement, registers)
        # An instruction without a result, such as griddepcontrol, leaves its dummy output as it was.
        bits = [registers.get(name, np.zeros((), np.uint32)) for name in outputs]
        found = [
            plain(np.asarray(each).view(DTYPES[element])) for each, element in zip(bits, results, strict=True)
        ]
        return found[0] if len(found) == 1 else tuple(found)

    return compute


def _statements(text: str) -> Iterator[_Statement]:
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    for part in re.split(r"[;{}]", text):
        match = re.match(r"\s*(?:@(!?\w+)\s+)?([\w.:]+)\s*(.*?)\s*$", part, re.DOTALL)
        if match is None or match[2] == ".reg" or match[2].startswith("griddepcontrol."):
            continue
        name, *modifiers = match[2].split(".")
        kept = [each for each in modifiers if each not in _MODIFIERS]
        statement = _Statement(
            match[1] or "",
            ".".join([name, *kept]),
            "ftz" in modifiers,
            tuple(operand.strip() for operand in match[3].split(",")),
        )
        if _instruction(statement.name) is None:
            raise NotUnderstoodError(f"inline assembly with {match[2]}")
        yield statement


_MODIFIERS = ("rn", "ftz", "approx", "full")
"""The nearest result, which all operations give here; zero in place of subnormal numbers; less precision."""


def _execute(statement: _Statement, registers: dict[str, Any]) -> None:
    instruction = _instruction(statement.name)
    assert instruction is not None
    target, *sources = statement.operands
    values = [_value(source, registers, statement.name) for source in sources]
    if statement.flushes:
        values = [flushed(value.view(np.float32)).view(np.uint32) for value in values]
    result = np.asarray(instruction(*values))
    if statement.flushes:
        result = np.asarray(flushed(result.view(np.float32))).view(np.uint32)
    if statement.guard:
        guard = registers[statement.guard.lstrip("!")]
        guard = ~guard if statement.guard[0] == "!" else guard
        result = np.where(guard, result, registers.get(target, np.zeros((), result.dtype)))
    registers[target] = result


def _value(text: str, registers: dict[str, Any], instruction: str) -> Any:
    if text in registers:
        return registers[text]
    try:
        if text[:2] in ("0f", "0F"):
            return np.asarray(int(f"0x{text[2:]}", 0), np.uint32)
        if instruction.endswith(".f32"):
            return np.asarray(float(text), np.float32).view(np.uint32)
        return np.asarray(int(text, 0) & 0xFFFFFFFF, np.uint32)
    except ValueError:
        raise NotUnderstoodError(f"inline assembly with the operand {text}") from None


def _of_floats(compute: Function) -> Function:
    return lambda *values: np.asarray(
        compute(*(value.view(np.float32) for value in values)), np.float32
    ).view(np.uint32)


def _of_signed(compute: Function) -> Function:
    return lambda *values: np.asarray(compute(*(value.view(np.int32) for value in values)), np.int32).view(
        np.uint32
    )


def _xorsign(choose: Function) -> Function:
    """The chosen magnitude, negative where the signs of the operands differ."""

    def compute(a: Any, b: Any) -> Any:
        magnitude = choose(np.abs(a), np.abs(b))
        return np.where(np.signbit(a) != np.signbit(b), -magnitude, magnitude)

    return compute


def _shifted(shift: Function, *, keeps_sign: bool = False) -> Function:
    """By at most 32 bits: more shift everything out."""

    def compute(a: Any, b: Any) -> Any:
        amount = np.minimum(b, np.uint32(31 if keeps_sign else 32))
        wide = a.view(np.int32).astype(np.int64) if keeps_sign else a.astype(np.uint64)
        return shift(wide, amount.astype(wide.dtype)).astype(np.uint32)

    return compute


_ON_FLOATS: dict[str, Function] = {
    "mov": lambda a: a,
    "neg": operator.neg,
    "abs": np.abs,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "fma": fma_f32,
    "min": minimum_number,
    "max": maximum_number,
    "min.NaN": minimum,
    "max.NaN": maximum,
    "min.NaN.xorsign.abs": _xorsign(minimum),
    "max.NaN.xorsign.abs": _xorsign(maximum),
    "rcp": lambda a: np.float32(1) / a,
    "ex2": OF_F32["exp2"],
    "lg2": OF_F32["log2"],
    "sqrt": OF_F32["sqrt"],
    "rsqrt": OF_F32["rsqrt"],
    "sin": OF_F32["sin"],
    "cos": OF_F32["cos"],
    "tanh": lambda a: np.tanh(a.astype(np.float64)),
}
_ON_BITS: dict[str, Function] = {
    "mov": lambda a: a,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
    "add": operator.add,
    "sub": operator.sub,
    "mul.lo": operator.mul,
    "shl": _shifted(np.left_shift),
}
_INSTRUCTIONS: dict[str, Function] = {
    **{f"{name}.f32": _of_floats(compute) for name, compute in _ON_FLOATS.items()},
    **{f"{name}.{kind}": compute for kind in ("b32", "u32", "s32") for name, compute in _ON_BITS.items()},
    "shr.u32": _shifted(np.right_shift),
    "shr.b32": _shifted(np.right_shift),
    "shr.s32": _shifted(np.right_shift, keeps_sign=True),
    "min.s32": _of_signed(np.minimum),
    "max.s32": _of_signed(np.maximum),
    "min.u32": np.minimum,
    "max.u32": np.maximum,
    **{f"selp.{kind}": lambda a, b, p: np.where(p, a, b) for kind in ("b32", "u32", "s32", "f32")},
}


def _instruction(name: str) -> Function | None:
    first, _, rest = name.partition(".")
    if first != "setp":
        return _INSTRUCTIONS.get(name)
    predicate, _, element = rest.partition(".")
    if element == "f32":
        # Those with a "u" hold for NaNs, too; `ne` does not hold for NaNs, `neu` does.
        named = predicate if predicate[-1:] == "u" else f"{predicate}o"
        ordered = COMPARISONS.get(named[-1] + named[:-1])
        return None if ordered is None else lambda a, b: ordered(a.view(np.float32), b.view(np.float32))
    compare: Callable[[Any, Any], Any] | None = getattr(operator, predicate, None)
    if predicate not in ("eq", "ne", "lt", "le", "gt", "ge") or compare is None:
        return None
    if element == "s32":
        return lambda a, b: compare(a.view(np.int32), b.view(np.int32))
    return compare if element in ("u32", "b32") else None
