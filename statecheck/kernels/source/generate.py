"""A kernel's IR written out as Python: one generator for each function, over numbers and NumPy arrays.

A generator yields the number of a site before each memory operation, barrier and exchange between lanes, and carries it
out when it is resumed. Values have the forms that `flow` finds; pointers have a second variable where they come from.

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
from statecheck.kernels.source.flow import SCALAR
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
    module = Module()
    entry = ""
    for function in functions:
        if function.public:
            entry = python_name(function.name)
        _Writer(module, function).write()
    return KernelModule(
        "\n".join(module.lines) + "\n", entry, tuple(module.sites), tuple(module.branches), module.constants
    )


_LOADED = (
    "load",
    "load1",
    "store",
    "store1",
    "rmw",
    "cas",
    "barrier",
    "exchange",
    "origin_of",
    "origins_of",
    "took",
)
_NO_EFFECT = {"llvm.intr.assume", "ub.poison", "gpu.barrier"}


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

    def _operation(self, one: Operation) -> None:
        own = getattr(self, "_" + one.name.replace(".", "_"), None)
        if own is not None:
            own(one)
        elif one.name not in _NO_EFFECT:
            self._elementwise(one)
        for value in one.results:
            self._give_origin(one, value)

    def _give_origin(self, one: Operation, value: Value) -> None:
        """Variables of origins that are no other value's."""
        if not self._flow.carries(value) or one.name.startswith("scf."):
            return
        if one.name in ("tt.load", "tt.call") or one.name.startswith("tt.atomic"):
            asked = "origins_of" if self._form(value) else "origin_of"
            self._line(f"{self._own_origin(value)} = {asked}({value.name})")
            return
        source = one.operands[0]
        if one.name in ("arith.addi", "arith.subi"):
            known = [each for each in one.operands if self._flow.origin(each) is not None]
            kept = (
                known[0]
                if len(known) == 1 and (one.name == "arith.addi" or known[0] is one.operands[0])
                else None
            )
            self._origins[value] = self._origin(kept) if kept else "None"
        elif one.name == "arith.select":
            condition, *either = one.operands
            function = "select_origins" if self._form(condition) else ""
            first, second = (self._origin(each) for each in either)
            plain = f"({first} if {self._name(condition)} else {second})"
            text = f"{function}({self._name(condition)}, {first}, {second})" if function else plain
            self._line(f"{self._own_origin(value)} = {text}")
        elif one.name in ("tt.cat", "tt.join", "tt.split"):
            self._line(f"{self._own_origin(value)} = None")
        elif one.name in ("tt.expand_dims", "tt.reshape", "tt.trans", "tt.broadcast"):
            shape = one.result.type.shape
            order = tiles.integers(one.text, "order") if one.name == "tt.trans" else None
            text = f"moved_origins({self._origin(source)}, {source.type.shape}, {shape}, {order})"
            self._line(f"{self._own_origin(value)} = {text}")
        else:
            self._origins[value] = self._origin(source)

    def _elementwise(self, one: Operation) -> None:
        forms = [self._form(value) for value in one.operands]
        attributes = _attributes(one)
        if all(value in self._constants for value in one.operands) and len(one.results) == 1 and one.operands:
            self._fold(one, attributes)
            return
        text = inline(one, [self._name(value) for value in one.operands], forms, attributes)
        if text is None:
            text = f"{self._function_of(one, attributes)}({', '.join(self._name(value) for value in one.operands)})"
        self._line(f"{', '.join(value.name for value in one.results)} = {text}")

    def _fold(self, one: Operation, attributes: dict[str, str]) -> None:
        self._function_of(one, attributes)
        elements = tuple(value.type.element for value in one.operands)
        function = arithmetic_of(one.name, elements, one.result.type.element, attributes)
        assert function is not None
        with np.errstate(all="ignore"):
            self._constant(one.result, function(*(self._constants[value] for value in one.operands)))

    def _function_of(self, one: Operation, attributes: dict[str, str]) -> str:
        elements = tuple(value.type.element for value in one.operands)
        if not one.results:
            raise NotUnderstoodError(one.name)
        result = one.result.type.element
        function = Arithmetic(one.name, elements, result, tuple(sorted(attributes.items())))
        if arithmetic_of(one.name, elements, result, attributes) is None:
            raise NotUnderstoodError(f"{one.name} of {', '.join(elements)}")
        return self._module.constant(function, function, "a")

    def _arith_constant(self, one: Operation) -> None:
        text = one.text.strip()
        kind = one.result.type
        if text.startswith("dense<"):
            text = text[len("dense<") : -1]
            if text.startswith("["):
                self._constant(one.result, tiles.array(text, kind))
                return
        self._constant(one.result, number(text, kind.element))

    def _tt_make_range(self, one: Operation) -> None:
        found = re.search(r"end = (\d+) : i32, start = (\d+)", one.text)
        assert found is not None
        self._constant(one.result, np.arange(int(found.group(2)), int(found.group(1)), dtype=np.int32))

    def _tt_get_program_id(self, one: Operation) -> None:
        self._names[one.result] = f"p{'xyz'.index(one.text.strip())}"

    def _tt_get_num_programs(self, one: Operation) -> None:
        self._names[one.result] = f"n{'xyz'.index(one.text.strip())}"

    def _tt_addptr(self, one: Operation) -> None:
        pointer, offset = one.operands
        size = size_of(pointee(pointer.type))
        base, step = self._name(pointer), self._name(offset)
        if offset in self._constants:
            self._constants.pop(one.result, None)
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
        self._line(f"{one.result.name} = {wrapped}")

    def _tt_assert(self, one: Operation) -> None:
        message = one.text[one.text.index('"') :]
        self._line(f"asserted({self._name(one.operands[0])}, {message}, {self._place(one)}, (p0, p1, p2))")

    def _tt_print(self, one: Operation) -> None:
        prefix = re.match(r'"((?:[^"\\]|\\.)*)"', one.text)
        values = ", ".join(
            self._full(value) if value.type.shape is not None else self._name(value) for value in one.operands
        )
        self._line(
            f"printed({prefix.group() if prefix else repr('')}, (p0, p1, p2), ({values}{',' if values else ''}))"
        )

    def _place(self, one: Operation) -> str:
        return repr(f"{one.place.file}:{one.place.line}")


_PREDICATE = re.compile(r"^([a-z]+),")


def _attributes(one: Operation) -> dict[str, str]:
    if one.name in ("arith.cmpi", "arith.cmpf"):
        found = _PREDICATE.match(one.text.strip())
        assert found is not None
        return {"predicate": found.group(1)}
    return dict(re.findall(r"(rounding|propagateNan) = (\w+)", one.text))
