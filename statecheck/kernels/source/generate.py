"""A kernel's IR written out as Python: one generator for each function, over numbers and NumPy arrays.

A generator yields the number of a site before each memory operation, and carries it out when it is resumed. Values have the forms that `flow` finds; pointers have a second variable where they come from.

What generated code and `memory.Memory` expect of each other:

- A function takes `m` (the memory), the program's three ids, the grid's three sizes and the kernel's arguments. One that is
  called by a kernel also takes the origins of its pointers.
- It calls `load`, `store`, `rmw` and `cas` with a site, addresses as int64 (a scalar: `load1` and `store1`, an int), values, a mask or
  None for all lanes, and the origin of the pointers: a number that `m.argument` or `m.origin_of` gave, a tile of such numbers, or None.
- Behind `tt.addptr` it calls `check_offset`, where that is not None, with the pointer, the offset, and the same offset by arithmetic that does not
  overflow; it goes on with the pointer that it gets.
- It yields before, never after: what runs the program may switch to another one between the yield and the access.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from statecheck.kernels.arithmetic import atomic
from statecheck.kernels.arithmetic import operation as arithmetic_of
from statecheck.kernels.source import tiles
from statecheck.kernels.source.flow import DYNAMIC, FULL, SCALAR, Flow, finds_addresses, yielded
from statecheck.kernels.source.ir import (
    FuncOp,
    NotUnderstoodError,
    Operation,
    SourcePlace,
    Type,
    Value,
    dtype_of,
    number,
    size_of,
    type_of,
)
from statecheck.kernels.source.ptx import assembly
from statecheck.kernels.source.sites import Arithmetic, KernelModule, Module, python_name

# Expressions for what kernels do most: integers, comparisons and selections, written out instead of called.


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
    if element in _HELD_AS_THEMSELVES or op.name == "arith.extf":
        return _of_floats(op, element, names)
    return _of_integers(op, element, names, scalar=scalar) if element in _BITS else None


_FLOATING = {"arith.addf": "+", "arith.subf": "-", "arith.mulf": "*", "arith.divf": "/"}
_HELD_AS_THEMSELVES = {"f16": "float16", "f32": "float32", "f64": "float64"}
"""Floating-point numbers that NumPy has, too: its operators round as a GPU does."""


def _of_floats(op: Operation, element: str, names: list[str]) -> str | None:
    target = op.result.type.element if op.results else ""
    if op.name in _FLOATING:
        return f"{names[0]} {_FLOATING[op.name]} {names[1]}"
    if op.name == "arith.negf":
        return f"-{names[0]}"
    if op.name == "arith.extf" and (element, target) == ("bf16", "f32"):
        # The one is held as the other.
        return names[0]
    if op.name in ("arith.extf", "arith.truncf") and target in _HELD_AS_THEMSELVES:
        return f"{_HELD_AS_THEMSELVES[target]}({names[0]})"
    return None


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


def pointee(kind: Type) -> str:
    return type_of(kind.pointee).element


def _without_yield(operations: list[Operation]) -> list[Operation]:
    last = operations[-1].name if operations else ""
    return operations[:-1] if last in ("scf.yield", "scf.condition") else operations


def written(functions: Iterable[FuncOp]) -> KernelModule:
    """Python source for the functions of a module.

    Raises:
        NotUnderstoodError: it has something that is not known.
    """
    module, entries = Module(), list[FuncOp]()
    for function in functions:
        if function.public:
            entries.append(function)
        _Writer(module, function).write()
    return KernelModule(
        "\n".join(module.lines) + "\n",
        python_name(entries[0].name),
        tuple(value.type for value in entries[0].arguments),
        tuple(module.sites),
        tuple(module.branches),
        module.constants,
    )


_LOADED = (
    "load",
    "load1",
    "store",
    "store1",
    "rmw",
    "cas",
    "barrier",
    "origin_of",
    "origins_of",
    "check_offset",
)
_NO_EFFECT = {
    "llvm.intr.assume",
    "ub.poison",
    # One launch after the other is complete before the next one begins.
    "tt.grid_dependency_wait",
    "tt.grid_dependency_launch_dependents",
}


_PREDICATE = re.compile(r"^([a-z]+),")


def attributes_of(op: Operation) -> dict[str, str]:
    """What an operation's text says beside its operands, as `arithmetic.operation` takes it."""
    if op.name in ("arith.cmpi", "arith.cmpf"):
        match = _PREDICATE.match(op.text.strip())
        assert match is not None
        return {"predicate": match.group(1)}
    return dict(re.findall(r'(rounding|propagateNan|symbol) = "?(\w+)', op.text))


_EXACT = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*"}
_MOST_OPERATIONS = 40


class _ExactOffset:
    """An offset of a pointer once more, without overflows: sums, differences and products of 32 bits are made of 64 bits.

    What is neither of these, nor a change of shape, is taken as it is.
    """

    def __init__(self, writer: _Writer, offset: Value) -> None:
        self._writer = writer
        self.is_narrow = False
        """Whether there is such an operation."""
        self.place = SourcePlace("", 0)
        """Of the last one."""
        self._operations = 0
        self.text = self._expression(offset)

    def _expression(self, value: Value) -> str:
        writer = self._writer
        op = writer.defined.get(value)
        if op is None or value in writer.constants or self._operations == _MOST_OPERATIONS:
            return self._leaf(value)
        if op.name in _EXACT and value.type.element in ("i32", "i64"):
            self._operations += 1
            if value.type.element == "i32" and not self.is_narrow:
                self.is_narrow, self.place = True, op.place
            sides = [self._side(operand, writer.form(value)) for operand in op.operands]
            return f"({sides[0]} {_EXACT[op.name]} {sides[1]})"
        if op.name in ("arith.extsi", "tt.splat", "tt.broadcast", "tt.unsplat"):
            return self._expression(op.operands[0])
        if op.name == "tt.expand_dims":
            inner = self._expression(op.operands[0])
            return inner if writer.form(value) == SCALAR else f"{inner}[{index_of_axis(op)}]"
        return self._leaf(value)

    def _side(self, value: Value, form: int) -> str:
        text = self._expression(value)
        # Python's integers are of any size, but those that meet an array have 64 bits.
        return f"wrap64({text})" if form != SCALAR and self._writer.form(value) == SCALAR else text

    def _leaf(self, value: Value) -> str:
        name = self._writer.name(value)
        return name if self._writer.form(value) == SCALAR else f"int64({name})"


def index_of_axis(op: Operation) -> str:
    """Of `tt.expand_dims`, the index that gives an array its new axis."""
    axis = tiles.integer(op.text, "axis")
    return ", ".join("None" if at == axis else ":" for at in range(len(op.result.type.shape or ())))


_ADDITIONS = {
    *(("arith.addf", element) for element in _HELD_AS_THEMSELVES),
    *(("arith.addi", element) for element in _BITS),
}


class _Writer:
    """Writes one function into a module: lines of Python, in the order of its operations."""

    # Names, forms and origins of values.

    def __init__(self, module: Module, function: FuncOp) -> None:
        self._module, self._function = module, function
        self._flow = Flow(function, entry=function.public)
        self._depth = 1
        self.constants: dict[Value, Any] = {}
        self._names: dict[Value, str] = {}
        self._origins: dict[Value, str] = {}
        self.defined: dict[Value, Operation] = {}
        """The operations that values are results of."""

    def _line(self, text: str) -> None:
        self._module.lines.append("    " * self._depth + text)

    @contextmanager
    def _under(self, header: str) -> Iterator[None]:
        """Lines that belong to a compound statement."""
        self._line(header)
        self._depth += 1
        lines = self._module.lines
        begin = len(lines)
        yield
        if all(line.lstrip().startswith("#") for line in lines[begin:]):
            self._line("pass")
        self._depth -= 1

    def name(self, value: Value) -> str:
        return self._names.get(value, value.name)

    def form(self, value: Value) -> int:
        return self._flow.form(value)

    def _own_origin(self, value: Value) -> str:
        return "o" + value.name[1:]

    def _origin(self, value: Value) -> str:
        """An expression of where the pointers of a value come from."""
        origin = self._flow.origin(value)
        if origin == DYNAMIC:
            return self._origins.get(value, self._own_origin(value))
        return "None" if origin is None else f"O{origin}"

    def _full(self, value: Value) -> str:
        """The value as an array of its shape."""
        return self._as(value, FULL, value.type)

    def _as(self, value: Value, form: int, kind: Type) -> str:
        name, have = self.name(value), self.form(value)
        if have >= form:
            return name
        if value in self.constants:
            array = tiles.full(self.constants[value], kind.shape or (), dtype_of(kind.element))
            return self._module.constant(array, ("full", kind, name))
        if have == SCALAR:
            dtype = self._module.constant(dtype_of(kind.element), ("dtype", kind.element), "t")
            return f"full({name}, {kind.shape}, {dtype})"
        return f"broadcast_to({name}, {kind.shape})" if form == FULL else name

    def _assign(self, pairs: list[tuple[Value, Value]]) -> None:
        """Give targets the sources' values, all at once."""
        left, right = list[str](), list[str]()
        for target, source in pairs:
            left.append(target.name)
            right.append(self._as(source, self.form(target), target.type))
            if self._flow.carries(target):
                left.append(self._own_origin(target))
                right.append(self._origin(source))
        if left and left != right:
            self._line(f"{', '.join(left)} = {', '.join(right)}")

    def _block(self, operations: list[Operation]) -> None:
        for op in operations:
            self._operation(op)

    def _constant(self, value: Value, constant: Any) -> None:
        self.constants[value] = constant
        if type(constant) in (int, bool):
            self._names[value] = f"({constant!r})" if constant < 0 else repr(constant)
        else:
            self._names[value] = self._module.constant(constant, ("value", value))

    # Whole tiles: their shapes, and what their lanes do together.

    def _same(self, op: Operation) -> None:
        """What the result is, the operand is already."""
        source = op.operands[0]
        if source in self.constants:
            self.constants[op.result] = self.constants[source]
        self._names[op.result] = self.name(source)

    _tt_splat = _same
    _tt_unsplat = _same

    def _tt_broadcast(self, op: Operation) -> None:
        self._same(op)

    def _shaped(self, op: Operation, text: str) -> None:
        if self.form(op.operands[0]) == SCALAR:
            self._same(op)
            return
        self._line(f"{op.result.name} = {text}")

    def _tt_expand_dims(self, op: Operation) -> None:
        axis = tiles.integer(op.text, "axis")
        source = op.operands[0]
        if source in self.constants and self.form(source):
            self._constant(op.result, np.expand_dims(self.constants[source], axis))
            return
        self._shaped(op, f"{self.name(source)}[{index_of_axis(op)}]")

    def _tt_reshape(self, op: Operation) -> None:
        if op.result.type.shape == op.operands[0].type.shape:
            self._same(op)
            return
        self._shaped(op, f"{self._full(op.operands[0])}.reshape({op.result.type.shape})")

    def _tt_trans(self, op: Operation) -> None:
        order = tiles.integers(op.text, "order")
        self._shaped(op, f"{self._full(op.operands[0])}.transpose({order})")

    def _tt_gather(self, op: Operation) -> None:
        source, indices = (self._full(value) for value in op.operands)
        axis = tiles.integer(op.text, "axis")
        self._line(f"{op.result.name} = gather({source}, {indices}, {axis}, {self._place(op)}, (p0, p1, p2))")

    def _tt_histogram(self, op: Operation) -> None:
        values, *masks = (self._full(value) for value in op.operands)
        (bins,) = op.result.type.shape or ()
        rest = f"{masks[0] if masks else None}, {bins}, {self._place(op)}, (p0, p1, p2)"
        self._line(f"{op.result.name} = histogram({values}, {rest})")

    def _tt_split(self, op: Operation) -> None:
        first, second = (value.name for value in op.results)
        self._line(f"{first}, {second} = split_tile({self._full(op.operands[0])})")

    def _tt_join(self, op: Operation) -> None:
        self._line(f"{op.result.name} = join_tiles({', '.join(map(self._full, op.operands))})")

    def _tt_cat(self, op: Operation) -> None:
        self._line(f"{op.result.name} = concatenate({', '.join(map(self._full, op.operands))})")

    def _tt_elementwise_inline_asm(self, op: Operation) -> None:
        quoted = re.match(r'"((?:[^"\\]|\\.)*)"', op.text)
        constraints = re.search(r'constraints = "([^"]*)"', op.text)
        assert quoted is not None
        assert constraints is not None
        # MLIR writes what is not printed as two hexadecimal digits.
        text = re.sub(r"\\([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), quoted[1])
        elements = tuple(value.type.element for value in op.operands)
        results = tuple(value.type.element for value in op.results)
        assembly(text, constraints[1], elements, results)
        attributes = (("text", text), ("constraints", constraints[1]), ("results", ",".join(results)))
        function = self._module.constant(
            Arithmetic("asm", elements, "", attributes), ("asm", text, elements), "a"
        )
        operands = ", ".join(self.name(value) for value in op.operands)
        self._line(f"{', '.join(value.name for value in op.results)} = {function}({operands})")

    def _tt_reduce(self, op: Operation) -> None:
        if all(value.type.shape is None for value in op.results):
            # Every lane gets the one result, and has waited for the others.
            self._line("barrier()")
        axis = tiles.integer(op.text, "axis")
        operands = [self._full(value) for value in op.operands]
        block = op.regions[0][0].operations
        adds = len(block) == 2 and (block[0].name, op.operands[0].type.element) in _ADDITIONS
        if adds:
            text = f"total({operands[0]}, {axis})"
        else:
            text = f"reduce({self._combiner(op)}, ({', '.join(operands)},), {axis})"
        self._line(f"{', '.join(value.name for value in op.results)} = {text}")

    def _tt_scan(self, op: Operation) -> None:
        axis, backwards = tiles.integer(op.text, "axis"), "reverse = true" in op.text
        operands = [self._full(value) for value in op.operands]
        text = f"scan({self._combiner(op)}, ({', '.join(operands)},), {axis}, {backwards})"
        self._line(f"{', '.join(value.name for value in op.results)} = {text}")

    def _combiner(self, op: Operation) -> str:
        block = op.regions[0][0]
        name = f"combine_{len(self._module.lines)}"
        if any(
            each.regions or each.name.startswith(("tt.load", "tt.store", "tt.atomic", "tt.call"))
            for each in block.operations
        ):
            raise NotUnderstoodError(f"{op.name} by more than arithmetic")
        with self._under(f"def {name}({', '.join(value.name for value in block.arguments)}):"):
            self._block(block.operations[:-1])
            results = [self.name(value) for value in block.operations[-1].operands]
            self._line(f"return ({', '.join(results)},)")
        return name

    def _tt_dot(self, op: Operation) -> None:
        elements = tuple(value.type.element for value in op.operands)
        stated = re.search(r"inputPrecision = (\w+)", op.text)
        precision = stated[1] if stated and elements[0] == "f32" else "ieee"
        operands = ", ".join(self._full(value) for value in op.operands)
        self._line(f"{op.result.name} = dot({operands}, {elements!r}, {precision!r})")

    # Memory: each access has a site, and is made behind the stop at it.

    def _site(self, kind: str, op: Operation, pointer: Value, **rest: Any) -> str:
        site = self._module.site(kind, op.place, element=pointee(pointer.type), **rest)
        self._line(f"yield {site.number}")
        return self._module.constant(site, ("site", site.number), "s")

    def _mask(self, op: Operation, at: int) -> Value | None:
        """The mask among the operands, unless all lanes are active."""
        if at >= len(op.operands):
            return None
        mask = op.operands[at]
        return None if mask in self.constants and self.constants[mask] is True else mask

    def _where(self, mask: Value | None) -> AbstractContextManager[None]:
        """For an access of one element."""
        return nullcontext() if mask is None else self._under(f"if {self.name(mask)}:")

    def _tt_load(self, op: Operation) -> None:
        pointer, mask = op.operands[0], self._mask(op, 1)
        other = op.operands[2] if len(op.operands) > 2 else None
        name = op.result.name
        if pointer.type.shape is None:
            with self._where(mask):
                site = self._site("load", op, pointer)
                self._line(f"{name} = load1({site}, {self.name(pointer)}, {self._origin(pointer)})")
            if mask is not None:
                with self._under("else:"):
                    self._line(
                        f"{name} = {self.name(other) if other else self._zero(op.result.type.element)}"
                    )
            return
        site = self._site("load", op, pointer)
        masked = self._mask_of(mask, pointer)
        rest = self.name(other) if other else "None"
        self._line(f"{name} = load({site}, {self._full(pointer)}, {masked}, {rest}, {self._origin(pointer)})")

    def _mask_of(self, mask: Value | None, pointer: Value) -> str:
        if mask is None:
            return "None"
        return self._as(mask, FULL, Type(pointer.type.shape, "i1"))

    def _zero(self, element: str) -> str:
        zero = number("0.0" if element[0] in "fb" else "0", element)
        return repr(zero) if type(zero) is int else self._module.constant(zero, ("zero", element))

    def _tt_store(self, op: Operation) -> None:
        pointer, value, mask = op.operands[0], op.operands[1], self._mask(op, 2)
        if pointer.type.shape is None:
            with self._where(mask):
                site = self._site("store", op, pointer)
                self._line(
                    f"store1({site}, {self.name(pointer)}, {self.name(value)}, {self._origin(pointer)})"
                )
            return
        site = self._site("store", op, pointer)
        masked = self._mask_of(mask, pointer)
        stored = self._as(value, FULL, Type(pointer.type.shape, value.type.element))
        self._line(f"store({site}, {self._full(pointer)}, {stored}, {masked}, {self._origin(pointer)})")

    def _tt_atomic_rmw(self, op: Operation) -> None:
        operation, sem, *_ = (part.strip() for part in op.text.split(","))
        pointer, value = op.operands[:2]
        if atomic(operation, pointee(pointer.type)) is None:
            raise NotUnderstoodError(f"tt.atomic_rmw {operation} of {pointee(pointer.type)}")
        stored = self._as(value, SCALAR if pointer.type.shape is None else FULL, value.type)
        self._line(f"{op.result.name} = {self._changed(op, operation, sem, stored, self._mask(op, 2))}")

    def _changed(self, op: Operation, operation: str, sem: str, value: str, mask: Value | None = None) -> str:
        """What an atomic operation finds, as an expression, behind the stop before it."""
        pointer = op.operands[0]
        site = self._site("atomic", op, pointer, operation=operation, sem=sem)
        scalar = pointer.type.shape is None
        masked = "None" if mask is None else self.name(mask) if scalar else self._mask_of(mask, pointer)
        where = self.name(pointer) if scalar else self._full(pointer)
        return f"rmw({site}, {where}, {value}, {masked}, {self._origin(pointer)})"

    def _tt_atomic_load(self, op: Operation) -> None:
        kind, sem = op.result.type, op.text.split(",")[0].strip()
        nothing = self._zero(kind.element)
        if kind.shape is not None:
            dtype = self._module.constant(dtype_of(kind.element), ("dtype", kind.element), "t")
            nothing = f"full({nothing}, {kind.shape}, {dtype})"
        self._line(f"{op.result.name} = {self._changed(op, 'load', sem, nothing, self._mask(op, 1))}")

    def _tt_atomic_store(self, op: Operation) -> None:
        pointer, value = op.operands[:2]
        stored = self._as(value, SCALAR if pointer.type.shape is None else FULL, value.type)
        self._line(self._changed(op, "store", op.text.split(",")[0].strip(), stored, self._mask(op, 2)))

    def _tt_atomic_poll(self, op: Operation) -> None:
        if len(op.operands) > 2:
            raise NotUnderstoodError("tt.atomic_poll with a time limit")
        pointer, expected = op.operands
        wanted = self._as(expected, SCALAR if pointer.type.shape is None else FULL, expected.type)
        with self._under("while True:"):
            value = self._changed(op, "poll", op.text.split(",")[0].strip(), wanted)
            self._line(f"{op.result.name} = {value} == {wanted}")
            with self._under(f"if {op.result.name}{'' if pointer.type.shape is None else '.all()'}:"):
                self._line("break")

    def _tt_atomic_cas(self, op: Operation) -> None:
        sem = op.text.split(",")[0].strip()
        pointer, expected, value = op.operands
        site = self._site("atomic", op, pointer, operation="cas", sem=sem)
        whole = FULL if pointer.type.shape is not None else SCALAR
        passed = [self._as(each, whole, each.type) for each in (pointer, expected, value)]
        self._line(f"{op.result.name} = cas({site}, {', '.join(passed)}, {self._origin(pointer)})")

    def _ttg_barrier(self, op: Operation) -> None:  # noqa: ARG002 - as all others
        self._line("barrier()")

    _gpu_barrier = _ttg_barrier

    # Control flow: branches, loops, blocks that jump to each other, calls.

    def _branch_begins(self, place: SourcePlace) -> None:
        """A comment that says where the following lines are in the kernel's code."""
        self._line(f"# branch {self._module.branch(place)}")

    def _unstructured(self) -> None:
        blocks = self._function.blocks
        numbers = {block.label: at for at, block in enumerate(blocks)}
        # Python cannot jump: a loop goes on with the block whose number is in `at`.
        self._line("at = 0")
        with self._under("while True:"):
            for at, block in enumerate(blocks):
                with self._under(f"{'if' if at == 0 else 'elif'} at == {at}:"):
                    self._branch_begins(block.operations[0].place)
                    for op in block.operations:
                        self._in_block(op, numbers)

    def _in_block(self, op: Operation, numbers: dict[str, int]) -> None:
        if not op.successors:
            self._operation(op)
        elif len(op.successors) == 1:
            self._jump(*op.successors[0], numbers)
        else:
            for header, successor in zip(
                (f"if {self.name(op.operands[0])}:", "else:"), op.successors, strict=True
            ):
                with self._under(header):
                    self._jump(*successor, numbers)

    def _jump(self, label: str, passed: list[Value], numbers: dict[str, int]) -> None:
        target = self._function.blocks[numbers[label]]
        self._assign(list(zip(target.arguments, passed, strict=True)))
        self._line(f"at = {numbers[label]}")

    def _scf_if(self, op: Operation) -> None:
        condition = op.operands[0]
        if self.form(condition) != SCALAR:
            raise NotUnderstoodError("scf.if on a tile")
        for at, header in enumerate((f"if {self.name(condition)}:", "else:")):
            region = op.regions[at] if at < len(op.regions) else []
            with self._under(header):
                self._branch_begins(op.place)
                self._block(_without_yield(region[0].operations if region else []))
                self._assign(list(zip(op.results, yielded(region) if op.results else [], strict=True)))

    def _scf_for(self, op: Operation) -> None:
        (counter, *carried), operations = op.regions[0][0].arguments, op.regions[0][0].operations
        self._assign(list(zip(carried, op.operands[3:], strict=True)))
        bounds = [self.name(value) for value in op.operands[:3]]
        # Generated code holds every integer as a signed one.
        if op.text == "unsigned":
            bits = 8 * size_of(counter.type.element)
            bounds = [f"{bound} & {(1 << bits) - 1:#x}" for bound in bounds]
        with self._under(f"for {counter.name} in range({', '.join(bounds)}):"):
            self._branch_begins(op.place)
            self._block(_without_yield(operations))
            self._assign(list(zip(carried, yielded(op.regions[0]), strict=True)))
        self._assign(list(zip(op.results, carried, strict=True)))

    def _scf_while(self, op: Operation) -> None:
        before, after = op.regions[0][0], op.regions[1][0]
        condition, *forwarded = yielded(op.regions[0])
        self._assign(list(zip(before.arguments, op.operands, strict=True)))
        with self._under("while True:"):
            self._block(_without_yield(before.operations))
            with self._under(f"if not {self.name(condition)}:"):
                self._assign(list(zip(op.results, forwarded, strict=True)))
                self._line("break")
            self._branch_begins(op.place)
            self._assign(list(zip(after.arguments, forwarded, strict=True)))
            self._block(_without_yield(after.operations))
            self._assign(list(zip(before.arguments, yielded(op.regions[1]), strict=True)))

    def _tt_return(self, op: Operation) -> None:
        values = [self.name(value) for value in op.operands]
        origins = [self._origin(value) for value in op.operands if value in self._flow.addresses]
        self._line(f"return ({''.join(each + ', ' for each in values + origins)})" if values else "return ()")

    def _tt_call(self, op: Operation) -> None:
        match = re.match(r'@("[^"]*"|[\w$.]+)\(', op.text)
        assert match is not None
        passed = [
            self._as(value, SCALAR if value.type.shape is None else FULL, value.type) for value in op.operands
        ]
        origins = [self._origin(value) for value in op.operands if value.type.element == "ptr"]
        if any(value.type.element == "ptr" for value in op.results):
            raise NotUnderstoodError("a function of its own that returns pointers")
        call = f"{python_name(match.group(1))}({', '.join(['m', 'p0', 'p1', 'p2', 'n0', 'n1', 'n2', *passed, *origins])})"
        left = "".join(f"{value.name}, " for value in op.results)
        self._line(f"{left + '= ' if left else ''}yield from {call}")

    # Functions and all other operations.

    def write(self) -> None:
        function = self._function
        names = [value.name for value in function.arguments]
        carried = [
            self._own_origin(v) for v in function.arguments if self._flow.carries(v) and not function.public
        ]
        head = ", ".join(["m", "p0", "p1", "p2", "n0", "n1", "n2", *names, *carried])
        self._module.lines += ["", "", f"def {python_name(function.name)}({head}):"]
        self._line("; ".join(f"{name} = m.{name}" for name in _LOADED))
        for number_, value in enumerate(function.arguments):
            if not function.public:
                continue
            if self._flow.origin(value) == number_:
                self._line(f"O{number_} = m.argument({number_})")
            elif self._flow.carries(value):
                self._line(f"{self._own_origin(value)} = origin_of({value.name})")
        if len(function.blocks) == 1:
            self._block(function.blocks[0].operations)
        else:
            self._unstructured()
        # So that it is a generator whatever it does.
        self._line("return")
        self._line("yield")

    def _operation(self, op: Operation) -> None:
        self.defined.update(dict.fromkeys(op.results, op))
        own = getattr(self, "_" + op.name.replace(".", "_"), None)
        if own is not None:
            own(op)
        elif op.name not in _NO_EFFECT:
            self._elementwise(op)
        for value in op.results:
            self._give_origin(op, value)

    def _give_origin(self, op: Operation, value: Value) -> None:
        """Variables of origins that are no other value's."""
        if not self._flow.carries(value) or op.name.startswith("scf."):
            return
        if finds_addresses(op.name):
            asked = "origins_of" if self.form(value) else "origin_of"
            self._line(f"{self._own_origin(value)} = {asked}({value.name})")
            return
        text = self._origin_text(op)
        if text is None:
            self._origins[value] = self._kept_origin(op)
        else:
            self._line(f"{self._own_origin(value)} = {text}")

    def _kept_origin(self, op: Operation) -> str:
        """The origin of an operand, where the result's pointers come from the same place."""
        if op.name not in ("arith.addi", "arith.subi"):
            return self._origin(op.operands[0])
        known = [each for each in op.operands if self._flow.origin(each) is not None]
        kept = len(known) == 1 and (op.name == "arith.addi" or known[0] is op.operands[0])
        return self._origin(known[0]) if kept else "None"

    def _origin_text(self, op: Operation) -> str | None:
        """An expression of where the result's pointers come from; None where that is where an operand's do."""
        if op.name == "arith.select":
            condition, *either = op.operands
            first, second = (self._origin(each) for each in either)
            chosen = self.name(condition)
            if self.form(condition):
                return f"select_origins({chosen}, {first}, {second})"
            return f"({first} if {chosen} else {second})"
        if op.name in ("tt.cat", "tt.join", "tt.split"):
            return "None"
        if op.name in ("tt.expand_dims", "tt.reshape", "tt.trans", "tt.broadcast"):
            source = op.operands[0]
            order = tiles.integers(op.text, "order") if op.name == "tt.trans" else None
            return (
                f"moved_origins({self._origin(source)}, {source.type.shape}, {op.result.type.shape}, {order})"
            )
        return None

    def _elementwise(self, op: Operation) -> None:
        forms = [self.form(value) for value in op.operands]
        attributes = attributes_of(op)
        if all(value in self.constants for value in op.operands) and len(op.results) == 1 and op.operands:
            self._fold(op, attributes)
            return
        text = inline(op, [self.name(value) for value in op.operands], forms, attributes)
        if text is None:
            text = (
                f"{self._function_of(op, attributes)}({', '.join(self.name(value) for value in op.operands)})"
            )
        self._line(f"{', '.join(value.name for value in op.results)} = {text}")

    def _fold(self, op: Operation, attributes: dict[str, str]) -> None:
        self._function_of(op, attributes)
        elements = tuple(value.type.element for value in op.operands)
        function = arithmetic_of(op.name, elements, op.result.type.element, attributes)
        assert function is not None
        with np.errstate(all="ignore"):
            self._constant(op.result, function(*(self.constants[value] for value in op.operands)))

    def _function_of(self, op: Operation, attributes: dict[str, str]) -> str:
        elements = tuple(value.type.element for value in op.operands)
        if not op.results:
            raise NotUnderstoodError(op.name)
        result = op.result.type.element
        function = Arithmetic(op.name, elements, result, tuple(sorted(attributes.items())))
        if arithmetic_of(op.name, elements, result, attributes) is None:
            raise NotUnderstoodError(f"{op.name} of {', '.join(elements)}")
        return self._module.constant(function, function, "a")

    def _arith_constant(self, op: Operation) -> None:
        text = op.text.strip()
        kind = op.result.type
        if text.startswith("dense<"):
            text = text[len("dense<") : -1]
            if text.startswith("["):
                self._constant(op.result, tiles.array(text, kind))
                return
        self._constant(op.result, number(text, kind.element))

    def _tt_make_range(self, op: Operation) -> None:
        match = re.search(r"end = (\d+) : i32, start = (\d+)", op.text)
        assert match is not None
        self._constant(op.result, np.arange(int(match.group(2)), int(match.group(1)), dtype=np.int32))

    def _tt_get_program_id(self, op: Operation) -> None:
        self._names[op.result] = f"p{'xyz'.index(op.text.strip())}"

    def _tt_get_num_programs(self, op: Operation) -> None:
        self._names[op.result] = f"n{'xyz'.index(op.text.strip())}"

    def _tt_addptr(self, op: Operation) -> None:
        pointer, offset = op.operands
        size = size_of(pointee(pointer.type))
        base, step = self.name(pointer), self.name(offset)
        if offset in self.constants:
            self.constants.pop(op.result, None)
            steps = self.constants[offset]
            if self.form(offset) == SCALAR:
                step = repr(steps * size)
            else:
                array = np.multiply(steps, size, dtype=np.int64)
                step = self._module.constant(array, ("steps", offset, size))
        elif self.form(offset) == SCALAR:
            step = f"{step} * {size}" if size != 1 else step
        else:
            step = f"multiply({step}, {size}, dtype=int64)"
        form = max(self.form(pointer), self.form(offset))
        # Arrays of int64 wrap around on their own, Python's numbers do not.
        wrapped = f"{base} + {step}" if form else f"wrap64({base} + {step})"
        if form and self.form(offset) == SCALAR:
            wrapped = f"{base} + wrap64({step})"
        self._line(f"{op.result.name} = {wrapped}")
        exact = _ExactOffset(self, offset)
        if exact.is_narrow:
            place = (exact.place.file, exact.place.line)
            checked = f"check_offset({op.result.name}, {self.name(offset)}, {exact.text}, {place!r})"
            with self._under("if check_offset:"):
                self._line(f"{op.result.name} = {checked}")

    def _tt_assert(self, op: Operation) -> None:
        message = op.text[op.text.index('"') :]
        self._line(f"asserted({self.name(op.operands[0])}, {message}, {self._place(op)}, (p0, p1, p2))")

    def _tt_print(self, op: Operation) -> None:
        prefix = re.match(r'"((?:[^"\\]|\\.)*)"', op.text)
        values = ", ".join(
            self._full(value) if value.type.shape is not None else self.name(value) for value in op.operands
        )
        self._line(
            f"printed({prefix.group() if prefix else repr('')}, (p0, p1, p2), ({values}{',' if values else ''}))"
        )

    def _place(self, op: Operation) -> str:
        return repr(f"{op.place.file}:{op.place.line}")
