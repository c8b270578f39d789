"""A kernel's IR written out as C: one function that runs all programs of a launch, one after the other, in row-major order.

For launches that nothing watches. Only integers are computed with: floating-point numbers are moved, as their bits. Branches have the
numbers that `generate` gives them. A tile is an array of its elements in row-major order, or one number where all are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from statecheck.kernels.source import tiles
from statecheck.kernels.source.flow import yielded
from statecheck.kernels.source.generate import attributes_of, pointee
from statecheck.kernels.source.ir import Block, FuncOp, NotUnderstoodError, Operation, Value, number, size_of

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


_SAME = {"tt.splat", "tt.unsplat", "tt.expand_dims", "tt.reshape", "tt.int_to_ptr", "tt.ptr_to_int"}


def native(functions: Sequence[FuncOp]) -> str:
    """C for the functions of a module, whose entry is `run`; "" where it has something that only generated Python does."""
    try:
        (function,) = functions
        return _Writer(function).text()
    except (NotUnderstoodError, ValueError):
        return ""


_RUN = """
void run(const s64 *a, s64 n0, s64 n1, s64 n2) {
for (s64 x = 0; x < n0; x++) for (s64 y = 0; y < n1; y++) for (s64 z = 0; z < n2; z++)
program(a, x, y, z, n0, n1, n2);
}
"""


class _Writer:
    """Writes one function. Values of which all elements are the same are one variable, others are arrays.

    A tile that is computed from others is no array, but an expression of element `i` of those. Where it is used, they still hold what they
    held: a variable of theirs changes only where its operation comes again, and the tile's does then, too, before it is used.
    """

    def __init__(self, function: FuncOp) -> None:
        self._function = function
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

    def text(self) -> str:
        for at, value in enumerate(self._function.arguments):
            if value.type.shape is not None or value.type.element not in {*BITS, "i1", "ptr"}:
                raise NotUnderstoodError(f"a parameter of {value.type.element}")
            self._names[value] = self._declare(value)
            self._line(f"{value.name} = a[{at}];")
        blocks = self._function.blocks
        if len(blocks) == 1:
            self._operations(blocks[0].operations)
        else:
            self._unstructured(blocks)
        head = ["static void program(const s64 *a, s32 p0, s32 p1, s32 p2, s32 n0, s32 n1, s32 n2) {"]
        return TYPES + "\n".join([*head, *self._declared, *self._lines, "}", _RUN])

    def _operations(self, operations: Iterable[Operation]) -> None:
        for op in operations:
            self._operation(op)

    def _operation(self, op: Operation) -> None:
        own: Callable[[Operation], None] | None = getattr(self, "_" + op.name.replace(".", "_"), None)
        if own is not None:
            own(op)
        elif op.name in _SAME or (op.name == "tt.bitcast" and op.result.type.element == "ptr"):
            self._same(op.result, op.operands[0])
        elif len(op.results) != 1:
            raise NotUnderstoodError(op.name)
        else:
            operands = [self._lane(operand) for operand in op.operands]
            self._set(op.result, expression(op, operands), op.operands)

    def _llvm_intr_assume(self, op: Operation) -> None:
        """It has no effect."""

    _ttg_barrier = _gpu_barrier = _llvm_intr_assume
    _tt_grid_dependency_wait = _tt_grid_dependency_launch_dependents = _llvm_intr_assume

    def _arith_constant(self, op: Operation) -> None:
        text, kind = op.text.strip(), op.result.type
        text = text[len("dense<") : -1] if text.startswith("dense<") else text
        if not text.startswith("["):
            bits = bits_of(number(text, kind.element), kind.element)
            self._constants[op.result], self._names[op.result] = bits, literal(bits)
            return
        elements = [bits_of(each, kind.element) for each in tiles.array(text, kind).reshape(-1)]
        name = self._own(op.result, array=True)
        for at, bits in enumerate(elements):
            self._line(f"{name}[{at}] = {literal(bits)};")

    def _tt_make_range(self, op: Operation) -> None:
        self._elements[op.result] = f"({tiles.integer(op.text, 'start')} + i)"

    def _tt_get_program_id(self, op: Operation) -> None:
        self._names[op.result] = f"p{'xyz'.index(op.text.strip())}"

    def _tt_get_num_programs(self, op: Operation) -> None:
        self._names[op.result] = f"n{'xyz'.index(op.text.strip())}"

    def _tt_addptr(self, op: Operation) -> None:
        pointer, offset = op.operands
        size = size_of(pointee(pointer.type))
        text = f"(s64)((u64){self._lane(pointer)} + (u64)(s64){self._lane(offset)} * {size})"
        self._set(op.result, text, op.operands)

    def _tt_broadcast(self, op: Operation) -> None:
        source = op.operands[0]
        if source not in self._arrays and source not in self._elements:
            self._same(op.result, source)
            return
        shape, have = op.result.type.shape or (), source.type.shape or ()
        at = " + ".join(
            f"i / {prod(shape[axis + 1 :])} % {size} * {prod(have[axis + 1 :])}"
            for axis, size in enumerate(shape)
            if have[axis] > 1
        )
        self._elements[op.result] = self._lane(source, f"({at or 0})")

    def _tt_load(self, op: Operation) -> None:
        pointer, element = op.operands[0], op.result.type.element
        read = f"*(const m_{type_of(op.result)} *){self._lane(pointer)}"
        read = f"({read} != 0)" if element == "i1" else read
        if len(op.operands) > 1:
            other = self._lane(op.operands[2]) if len(op.operands) > 2 else "0"
            read = f"{self._lane(op.operands[1])} ? {read} : {other}"
        self._set(op.result, read, op.operands, now=True)

    def _tt_store(self, op: Operation) -> None:
        pointer, value = op.operands[:2]
        written = f"*(m_{type_of(value)} *){self._lane(pointer)} = {self._lane(value)};"
        if len(op.operands) > 2:
            written = f"if ({self._lane(op.operands[2])}) {written}"
        if pointer.type.shape is None:
            self._line(written)
            return
        with self._each_lane(pointer):
            self._line(written)

    def _tt_reduce(self, op: Operation) -> None:
        """Of all elements, by an operation that may take them in any order."""
        (source,), (combine, *rest) = op.operands, op.regions[0][0].operations
        arguments = op.regions[0][0].arguments
        if len(rest) != 1 or combine.name not in IN_ANY_ORDER or rest[0].operands != [combine.result]:
            raise NotUnderstoodError("tt.reduce by several operations")
        if op.result.type.shape is not None or set(combine.operands) != set(arguments):
            raise NotUnderstoodError("tt.reduce to a tile")
        name = self._own(op.result, array=False)
        self._line(f"{name} = {self._lane(source, '0')};")
        text = expression(combine, [name, self._lane(source)])
        with self._braces(f"for (int i = 1; i < {prod(source.type.shape or ())}; i++)"):
            self._line(f"{name} = {text};")

    def _unstructured(self, blocks: list[Block]) -> None:
        labels = {block.label: (f"l{at}", block) for at, block in enumerate(blocks)}
        for value in (argument for block in blocks for argument in block.arguments):
            self._own(value, array=value.type.shape is not None)
        for label, block in labels.values():
            self._line(f"{label}:;")
            for op in block.operations:
                self._in_block(op, labels)

    def _in_block(self, op: Operation, labels: dict[str, tuple[str, Block]]) -> None:
        if not op.successors:
            self._operation(op)
            return
        headers = ("",) if len(op.successors) == 1 else (f"if ({self._names[op.operands[0]]})", "else")
        for header, (name, passed) in zip(headers, op.successors, strict=True):
            label, block = labels[name]
            with self._braces(header):
                self._assign(list(zip(block.arguments, passed, strict=True)))
                self._line(f"goto {label};")

    def _scf_if(self, op: Operation) -> None:
        for at, header in enumerate((f"if ({self._names[op.operands[0]]})", "else")):
            region = op.regions[at] if at < len(op.regions) else []
            with self._braces(header):
                self._operations(region[0].operations if region else [])
                self._assign(list(zip(op.results, yielded(region) if op.results else [], strict=True)))

    def _scf_for(self, op: Operation) -> None:
        (counter, *carried), operations = op.regions[0][0].arguments, op.regions[0][0].operations
        if op.text == "unsigned" or self._constants.get(op.operands[2], 0) <= 0:
            raise NotUnderstoodError("a loop of unsigned integers, or by a step that is not constant")
        self._assign(list(zip(carried, op.operands[3:], strict=True)))
        first, end, step = (self._names[value] for value in op.operands[:3])
        name = self._own(counter, array=False)
        # Wider than any counter: the last step may pass the end.
        with self._braces(f"for (__int128 k = {first}, e = {end}; k < e; k += {step})"):
            self._line(f"{name} = k;")
            self._operations(operations)
            self._assign(list(zip(carried, yielded(op.regions[0]), strict=True)))
        self._assign(list(zip(op.results, carried, strict=True)))

    def _scf_yield(self, op: Operation) -> None:
        """What follows hands its operands on."""

    def _tt_return(self, op: Operation) -> None:
        if op.operands:
            raise NotUnderstoodError("a function that returns something")
        self._line("return;")
