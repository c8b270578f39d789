"""Values of a kernel as those of C: variables, arrays of a tile's elements, and expressions of integers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from statecheck.kernels.source.generate import attributes_of
from statecheck.kernels.source.ir import NotUnderstoodError, Operation, Value
from statecheck.kernels.source.values import size_of

BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
_TYPES = {
    "i1": "u8", "i8": "s8", "i16": "s16", "i32": "s32", "i64": "s64", "ptr": "s64",
    "f16": "u16", "bf16": "u16", "f32": "u32", "f64": "u64",
}  # fmt: skip
"""Of floating-point numbers, unsigned integers with their bits."""
TYPES = "".join(
    f"typedef {sign} {name} {letter}{bits};\n"
    f"typedef {letter}{bits} __attribute__((aligned(1), may_alias)) m_{letter}{bits};\n"
    for bits, name in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
    for letter, sign in (("s", "signed"), ("u", "unsigned"))
)
"""Types of values, and of the same in memory."""
_ARITHMETIC = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*"}
_BITWISE = {"arith.andi": "&", "arith.ori": "|", "arith.xori": "^"}
_CHOICES = {"arith.minsi": "<", "arith.maxsi": ">"}
_DIVISIONS = {"arith.divsi": "/", "arith.remsi": "%"}
IN_ANY_ORDER = frozenset({*_ARITHMETIC, *_BITWISE, *_CHOICES} - {"arith.subi"})
"""Operations that may take the elements of a tile one after the other in any order."""
_ORDERS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LONGEST = 400
"""Letters of an expression that is written out wherever it is used."""
_MOST_BYTES = 1 << 20
"""Of the tiles of a program, which stand on the stack."""


class Values:
    """Writes lines of one function: values of which all elements are the same are one variable, others are arrays.

    A tile that is computed from others is no array, but an expression of element `i` of those. Where it is used, they still hold what they
    held: a variable of theirs changes only where its operation comes again, and the tile's does then, too, before it is used.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._declared: list[str] = []
        self._names: dict[Value, str] = {}
        """Of values that are the same in all elements, an expression; of tiles, an array."""
        self._arrays: set[Value] = set()
        self._elements: dict[Value, str] = {}
        """Of tiles that are no arrays, an expression of element `i`."""
        self._constants: dict[Value, int] = {}
        self._temporaries = self._bytes = 0

    def _line(self, text: str) -> None:
        self._lines.append(text)

    @contextmanager
    def _braces(self, header: str) -> Iterator[None]:
        self._line(f"{header} {{")
        yield
        self._line("}")

    def _declare(self, value: Value, *, array: bool = False, name: str = "") -> str:
        name = name or value.name
        size = prod(value.type.shape or ())
        self._bytes += 8 * size if array else 0
        if self._bytes > _MOST_BYTES:
            raise NotUnderstoodError("large tiles")
        self._declared.append(f"{type_of(value)} {name}{f'[{size}]' if array else ''};")
        return name

    def _own(self, value: Value, *, array: bool) -> str:
        """A variable of the value's own, to be assigned."""
        if value not in self._names:
            self._names[value] = self._declare(value, array=array)
            if array:
                self._arrays.add(value)
        return self._names[value]

    def _lane(self, value: Value, at: str = "i") -> str:
        if value in self._elements:
            return re.sub(r"\bi\b", at, self._elements[value])
        return f"{self._names[value]}[{at}]" if value in self._arrays else self._names[value]

    @contextmanager
    def _each_lane(self, value: Value) -> Iterator[None]:
        with self._braces(f"for (int i = 0; i < {prod(value.type.shape or ())}; i++)"):
            yield

    def _set(self, value: Value, text: str, operands: Iterable[Value], *, now: bool = False) -> None:
        """Give a value an expression of elements `i` of operands; `now` if it depends on when it is computed."""
        array = any(operand in self._arrays or operand in self._elements for operand in operands)
        if array and not now and len(text) < _LONGEST:
            self._elements[value] = f"(({type_of(value)})({text}))"
            return
        name = self._own(value, array=array)
        if array:
            with self._each_lane(value):
                self._line(f"{name}[i] = {text};")
        else:
            self._line(f"{name} = {text};")

    def _assign(self, pairs: list[tuple[Value, Value]]) -> None:
        """Give targets the sources' values, all at once."""
        temporaries: list[tuple[Value, str]] = []
        for target, source in pairs:
            self._temporaries += 1
            array = target.type.shape is not None
            name = self._declare(target, array=array, name=f"t{self._temporaries}")
            self._copy(target, name, self._lane(source), array=array)
            temporaries.append((target, name))
        for target, name in temporaries:
            array = target.type.shape is not None
            own = self._own(target, array=array)
            self._copy(target, own, f"{name}[i]" if array else name, array=array)

    def _copy(self, value: Value, name: str, text: str, *, array: bool) -> None:
        if array:
            with self._each_lane(value):
                self._line(f"{name}[i] = {text};")
        else:
            self._line(f"{name} = {text};")

    def _same(self, value: Value, source: Value) -> None:
        if source in self._elements:
            self._elements[value] = self._elements[source]
            return
        self._names[value] = self._names[source]
        if source in self._arrays:
            self._arrays.add(value)
        if source in self._constants:
            self._constants[value] = self._constants[source]


def type_of(value: Value) -> str:
    """The C type of an element."""
    found = _TYPES.get(value.type.element)
    if found is None:
        raise NotUnderstoodError(f"the type {value.type.element}")
    return found


def expression(op: Operation, lanes: list[str]) -> str:
    """The result of an operation, by expressions of its operands.

    Raises:
        NotUnderstoodError: it is not one of integers, or not known.
    """
    element = op.operands[0].type.element if op.operands else ""
    if op.name == "arith.select":
        return f"{lanes[0]} ? {lanes[1]} : {lanes[2]}"
    if element == "i1":
        return _of_bool(op, lanes)
    if element not in BITS:
        raise NotUnderstoodError(f"{op.name} of {element}")
    target = type_of(op.result)
    if op.name in _ARITHMETIC:
        unsigned = f"u{BITS[element]}"
        return f"({target})(({unsigned}){lanes[0]} {_ARITHMETIC[op.name]} ({unsigned}){lanes[1]})"
    if op.name in _BITWISE:
        return f"{lanes[0]} {_BITWISE[op.name]} {lanes[1]}"
    if op.name in _CHOICES:
        return f"{lanes[0]} {_CHOICES[op.name]} {lanes[1]} ? {lanes[0]} : {lanes[1]}"
    if op.name in _DIVISIONS:
        return _division(op.name, element, *lanes)
    if op.name == "arith.cmpi":
        return _comparison(attributes_of(op)["predicate"], element, *lanes)
    if op.name in ("arith.extsi", "arith.index_cast"):
        return lanes[0]
    if op.name == "arith.trunci" and op.result.type.element in BITS:
        return f"({target}){lanes[0]}"
    if op.name == "arith.extui":
        return f"(u{BITS[element]}){lanes[0]}"
    raise NotUnderstoodError(op.name)


def _of_bool(op: Operation, lanes: list[str]) -> str:
    if op.name in _BITWISE:
        return f"{lanes[0]} {_BITWISE[op.name]} {lanes[1]}"
    if op.name == "arith.cmpi" and attributes_of(op)["predicate"] in ("eq", "ne"):
        return f"{lanes[0]} {_ORDERS[attributes_of(op)['predicate']]} {lanes[1]}"
    if op.name == "arith.extui" and op.result.type.element in BITS:
        return lanes[0]
    raise NotUnderstoodError(f"{op.name} of i1")


def _comparison(predicate: str, element: str, first: str, second: str) -> str:
    order = _ORDERS.get(predicate) or _ORDERS[predicate[1:]]
    cast = f"(u{BITS[element]})" if predicate[0] == "u" else ""
    return f"{cast}{first} {order} {cast}{second}"


def _division(name: str, element: str, first: str, second: str) -> str:
    """Toward zero; by zero, and of the lowest number by -1, what `arithmetic.integers` says."""
    by_zero = "-1"
    if element == "i64":
        by_zero = f"({first} >= 0 && {first} <= 0xFFFFFFFFLL ? 0xFFFFFFFFLL : -1LL)"
    by_minus_one = f"(s{BITS[element]})(0 - (u{BITS[element]}){first})" if name == "arith.divsi" else "0"
    return (
        f"{second} == 0 ? {by_zero} : {second} == -1 ? {by_minus_one} : {first} {_DIVISIONS[name]} {second}"
    )


def bits_of(constant: Any, element: str) -> int:
    """A constant as an integer: of a floating-point number, its bits."""
    if element == "bf16":
        return int(np.float32(constant).view(np.uint32)) >> 16
    if element[0] == "f":
        size = size_of(element)
        return int(np.frombuffer(np.asarray(constant).tobytes(), f"u{size}")[0])
    return int(constant)


def literal(bits: int) -> str:
    """An integer in C."""
    # C has no literal of the lowest number.
    return f"(s64){bits & 0xFFFFFFFFFFFFFFFF:#x}ULL" if bits < 0 else f"{bits}LL"
