"""A kernel's IR written out as Python: one generator for each function, over numbers and NumPy arrays.

A generator yields the number of a site before each memory operation, and carries it out when it is resumed. Values have the forms that `flow` finds; pointers have a second variable where they come from.

What generated code and `memory.Memory` expect of each other:

- A function takes `m` (the memory), the program's three ids, the grid's three sizes and the kernel's arguments. One that is
  called by a kernel also takes the origins of its pointers.
- It calls `load`, `store`, `rmw` and `cas` with a site, addresses as int64 (a scalar: `load1` and `store1`, an int), values, a mask or
  None for all lanes, and the origin of the pointers: a number that `m.argument` or `m.origin_of` gave, a tile of such numbers, or None.
- It yields before, never after: what runs the program may switch to another one between the yield and the access.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from statecheck.kernels.arithmetic import operation as arithmetic_of
from statecheck.kernels.source import tiles
from statecheck.kernels.source.accesses import Accesses
from statecheck.kernels.source.control import Control
from statecheck.kernels.source.expressions import inline
from statecheck.kernels.source.flow import SCALAR, finds_addresses
from statecheck.kernels.source.ir import FuncOp, NotUnderstoodError, Operation, Value
from statecheck.kernels.source.lines import pointee
from statecheck.kernels.source.shapes import Shapes
from statecheck.kernels.source.sites import Arithmetic, KernelModule, Module, python_name
from statecheck.kernels.source.values import number, size_of


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
)
_NO_EFFECT = {"llvm.intr.assume", "ub.poison"}


class _Writer(Control, Accesses, Shapes):
    """Writes one function."""

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
            asked = "origins_of" if self._form(value) else "origin_of"
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
            chosen = self._name(condition)
            if self._form(condition):
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
        forms = [self._form(value) for value in op.operands]
        attributes = attributes_of(op)
        if all(value in self._constants for value in op.operands) and len(op.results) == 1 and op.operands:
            self._fold(op, attributes)
            return
        text = inline(op, [self._name(value) for value in op.operands], forms, attributes)
        if text is None:
            text = f"{self._function_of(op, attributes)}({', '.join(self._name(value) for value in op.operands)})"
        self._line(f"{', '.join(value.name for value in op.results)} = {text}")

    def _fold(self, op: Operation, attributes: dict[str, str]) -> None:
        self._function_of(op, attributes)
        elements = tuple(value.type.element for value in op.operands)
        function = arithmetic_of(op.name, elements, op.result.type.element, attributes)
        assert function is not None
        with np.errstate(all="ignore"):
            self._constant(op.result, function(*(self._constants[value] for value in op.operands)))

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
        base, step = self._name(pointer), self._name(offset)
        if offset in self._constants:
            self._constants.pop(op.result, None)
            steps = self._constants[offset]
            if self._form(offset) == SCALAR:
                step = repr(steps * size)
            else:
                array = np.multiply(steps, size, dtype=np.int64)
                step = self._module.constant(array, ("steps", offset, size))
        elif self._form(offset) == SCALAR:
            step = f"{step} * {size}" if size != 1 else step
        else:
            step = f"multiply({step}, {size}, dtype=int64)"
        form = max(self._form(pointer), self._form(offset))
        # Arrays of int64 wrap around on their own, Python's numbers do not.
        wrapped = f"{base} + {step}" if form else f"wrap64({base} + {step})"
        if form and self._form(offset) == SCALAR:
            wrapped = f"{base} + wrap64({step})"
        self._line(f"{op.result.name} = {wrapped}")

    def _tt_assert(self, op: Operation) -> None:
        message = op.text[op.text.index('"') :]
        self._line(f"asserted({self._name(op.operands[0])}, {message}, {self._place(op)}, (p0, p1, p2))")

    def _tt_print(self, op: Operation) -> None:
        prefix = re.match(r'"((?:[^"\\]|\\.)*)"', op.text)
        values = ", ".join(
            self._full(value) if value.type.shape is not None else self._name(value) for value in op.operands
        )
        self._line(
            f"printed({prefix.group() if prefix else repr('')}, (p0, p1, p2), ({values}{',' if values else ''}))"
        )

    def _place(self, op: Operation) -> str:
        return repr(f"{op.place.file}:{op.place.line}")


_PREDICATE = re.compile(r"^([a-z]+),")


def attributes_of(op: Operation) -> dict[str, str]:
    """What an operation's text says beside its operands, as `arithmetic.operation` takes it."""
    if op.name in ("arith.cmpi", "arith.cmpf"):
        match = _PREDICATE.match(op.text.strip())
        assert match is not None
        return {"predicate": match.group(1)}
    return dict(re.findall(r"(rounding|propagateNan) = (\w+)", op.text))
