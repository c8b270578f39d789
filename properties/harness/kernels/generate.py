"""A kernel's IR written out as Python: one generator for each function, over numbers and NumPy arrays.

A generator yields the number of a site before each memory operation, barrier and exchange between lanes, and carries it
out when it is resumed. Values have the forms that `flow` finds; pointers have a second variable where they come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from properties.harness.kernels import tiles
from properties.harness.kernels.arithmetic import operation as arithmetic_of
from properties.harness.kernels.expressions import inline
from properties.harness.kernels.flow import DYNAMIC, FULL, LAZY, SCALAR, Flow, yielded
from properties.harness.kernels.ir import Function, NotUnderstoodError, Operation, Place, Type, Value, type_of
from properties.harness.kernels.values import dtype_of, number, size_of, stored_dtype


@dataclass(frozen=True)
class Site:
    """Where a kernel touches memory, or where its lanes meet."""

    number: int
    kind: str
    """ "load", "store", "atomic", "barrier" or "exchange"."""
    place: Place
    element: str = ""
    shape: tuple[int, ...] | None = None
    operation: str = ""
    """Of an atomic: and, or, xor, add, fadd, max, min, umax, umin, exch; cas, load, store, poll."""
    sem: str = ""
    step: int = 0
    """Bytes between the pointers of neighbouring lanes, unless a number has wrapped around; 0 where nobody knows."""
    everybody: bool = False
    """Of an exchange: every lane has the one result."""

    @cached_property
    def nbytes(self) -> int:
        return size_of(self.element)

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """Of an element in memory."""
        return stored_dtype(self.element)

    @cached_property
    def line(self) -> tuple[str, int]:
        """File and line of the kernel's code."""
        return self.place.file, self.place.line


@dataclass(frozen=True)
class Written:
    """A module of kernels as Python source, and what that source refers to."""

    source: str
    entry: str
    sites: tuple[Site, ...]
    branches: tuple[Branch, ...]
    constants: dict[str, Any]


@dataclass(frozen=True)
class Arithmetic:
    """Stands for a function of `arithmetic` among the constants."""

    name: str
    elements: tuple[str, ...]
    result: str
    attributes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Branch:
    """A way that control can take: behind a condition, or into a loop."""

    number: int
    place: Place
    taken: str
    """ "then", "else", "loop" or "block"."""


def written(functions: Iterable[Function]) -> Written:
    """Python source for the functions of a module.

    Raises:
        NotUnderstoodError: it has something that is not known.
    """
    module = _Module()
    entry = ""
    for function in functions:
        if function.public:
            entry = python_name(function.name)
        _Writer(module, function).write()
    return Written("\n".join(module.lines) + "\n", entry, tuple(module.sites), tuple(module.branches), module.constants)


def python_name(name: str) -> str:
    return "f_" + re.sub(r"\W", "_", name)


class _Module:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.sites: list[Site] = []
        self.branches: list[Branch] = []
        self.constants: dict[str, Any] = {}
        self._known: dict[Any, str] = {}

    def constant(self, value: Any, key: Any, prefix: str = "c") -> str:
        """A name for a value that the source refers to."""
        if key not in self._known:
            self._known[key] = f"{prefix}_{len(self._known)}"
            self.constants[self._known[key]] = value
        return self._known[key]

    def site(self, kind: str, place: Place, **rest: Any) -> Site:
        site = Site(len(self.sites), kind, place, **rest)
        self.sites.append(site)
        return site

    def branch(self, place: Place, taken: str) -> int:
        self.branches.append(Branch(len(self.branches), place, taken))
        return len(self.branches) - 1


_LOADED = ("load", "load1", "store", "store1", "rmw", "cas", "barrier", "exchange", "origin_of", "origins_of", "took")
_NO_EFFECT = {"llvm.intr.assume", "ub.poison", "gpu.barrier"}


class _Writer:
    """Writes one function."""

    def __init__(self, module: _Module, function: Function) -> None:
        self._module, self._function = module, function
        self._flow = Flow(function, entry=function.public)
        self._depth = 1
        self._constants: dict[Value, Any] = {}
        self._names: dict[Value, str] = {}
        self._origins: dict[Value, str] = {}
        self._inner: list[Value] = []

    def write(self) -> None:
        function = self._function
        names = [value.name for value in function.arguments]
        carried = [self._own_origin(v) for v in function.arguments if self._flow.carries(v) and not function.public]
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

    # -- lines and names

    def _line(self, text: str) -> None:
        self._module.lines.append("    " * self._depth + text)

    def _name(self, value: Value) -> str:
        return self._names.get(value, value.name)

    def _form(self, value: Value) -> int:
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
        name, have = self._name(value), self._form(value)
        if have >= form:
            return name
        if value in self._constants:
            array = tiles.full(self._constants[value], kind.shape or (), dtype_of(kind.element))
            return self._module.constant(array, ("full", kind, repr(self._constants[value])))
        if have == SCALAR:
            dtype = self._module.constant(dtype_of(kind.element), ("dtype", kind.element), "t")
            return f"full({name}, {kind.shape}, {dtype})"
        return f"broadcast_to({name}, {kind.shape})" if form == FULL else name

    def _assign(self, pairs: list[tuple[Value, Value]]) -> None:
        """Give targets the sources' values, all at once."""
        left, right = list[str](), list[str]()
        for target, source in pairs:
            left.append(target.name)
            right.append(self._as(source, self._form(target), target.type))
            if self._flow.carries(target):
                left.append(self._own_origin(target))
                right.append(self._origin(source))
        if left and left != right:
            self._line(f"{', '.join(left)} = {', '.join(right)}")

    # -- control

    def _block(self, operations: list[Operation]) -> None:
        for one in operations:
            self._operation(one)

    def _body(self, operations: list[Operation], place: Place, taken: str, before: str = "") -> None:
        self._depth += 1
        self._line(f"took({self._module.branch(place, taken)})")
        if before:
            self._line(before)
        self._block(operations)
        self._depth -= 1

    def _unstructured(self) -> None:
        blocks = self._function.blocks
        numbers = {block.label: at for at, block in enumerate(blocks)}
        self._line("at = 0")
        self._line("while True:")
        self._depth += 1
        for at, block in enumerate(blocks):
            self._line(f"{'if' if at == 0 else 'elif'} at == {at}:")
            self._depth += 1
            place = block.operations[0].place
            self._line(f"took({self._module.branch(place, 'block')})")
            for one in block.operations:
                if not one.successors:
                    self._operation(one)
                    continue
                if len(one.successors) == 1:
                    self._jump(*one.successors[0], numbers)
                    continue
                self._line(f"if {self._name(one.operands[0])}:")
                self._depth += 1
                self._jump(*one.successors[0], numbers)
                self._depth -= 1
                self._line("else:")
                self._depth += 1
                self._jump(*one.successors[1], numbers)
                self._depth -= 1
            self._depth -= 1
        self._depth -= 1

    def _jump(self, label: str, passed: list[Value], numbers: dict[str, int]) -> None:
        target = self._function.blocks[numbers[label]]
        self._assign(list(zip(target.arguments, passed, strict=True)))
        self._line(f"at = {numbers[label]}")

    def _scf_if(self, one: Operation) -> None:
        condition = one.operands[0]
        if self._form(condition) != SCALAR:
            raise NotUnderstoodError("scf.if on a tile")
        self._line(f"if {self._name(condition)}:")
        self._branch(one, 0, "then")
        self._line("else:")
        self._branch(one, 1, "else")

    def _branch(self, one: Operation, at: int, taken: str) -> None:
        region = one.regions[at] if at < len(one.regions) else None
        operations = region[0].operations if region else []
        self._depth += 1
        self._line(f"took({self._module.branch(one.place, taken)})")
        self._block(_without_yield(operations))
        self._assign(list(zip(one.results, yielded(region or []) if one.results else [], strict=True)))
        self._depth -= 1

    def _scf_for(self, one: Operation) -> None:
        (counter, *carried), operations = one.regions[0][0].arguments, one.regions[0][0].operations
        self._assign(list(zip(carried, one.operands[3:], strict=True)))
        bounds = [self._name(value) for value in one.operands[:3]]
        if one.text == "unsigned":
            bits = 8 * size_of(counter.type.element)
            bounds = [f"{bound} & {(1 << bits) - 1:#x}" for bound in bounds]
        self._line(f"for {counter.name} in range({', '.join(bounds)}):")
        self._body(_without_yield(operations), one.place, "loop")
        self._depth += 1
        self._assign(list(zip(carried, yielded(one.regions[0]), strict=True)))
        self._depth -= 1
        self._assign(list(zip(one.results, carried, strict=True)))

    def _scf_while(self, one: Operation) -> None:
        before, after = one.regions[0][0], one.regions[1][0]
        condition, *forwarded = yielded(one.regions[0])
        self._assign(list(zip(before.arguments, one.operands, strict=True)))
        self._line("while True:")
        self._depth += 1
        self._block(_without_yield(before.operations))
        self._line(f"if not {self._name(condition)}:")
        self._depth += 1
        self._assign(list(zip(one.results, forwarded, strict=True)))
        self._line("break")
        self._depth -= 1
        self._line(f"took({self._module.branch(one.place, 'loop')})")
        self._assign(list(zip(after.arguments, forwarded, strict=True)))
        self._block(_without_yield(after.operations))
        self._assign(list(zip(before.arguments, yielded(one.regions[1]), strict=True)))
        self._depth -= 1

    def _tt_return(self, one: Operation) -> None:
        values = [self._name(value) for value in one.operands]
        origins = [self._origin(value) for value in one.operands if value in self._flow.addresses]
        self._line(f"return ({''.join(each + ', ' for each in values + origins)})" if values else "return ()")

    def _tt_call(self, one: Operation) -> None:
        found = re.match(r'@([\w$."]+)\(', one.text)
        assert found is not None
        passed = [self._as(value, SCALAR if value.type.shape is None else FULL, value.type) for value in one.operands]
        origins = [self._origin(value) for value in one.operands if value.type.element == "ptr"]
        if any(value.type.element == "ptr" for value in one.results):
            raise NotUnderstoodError("a function of its own that returns pointers")
        call = f"{python_name(found.group(1))}({', '.join(['m', 'p0', 'p1', 'p2', 'n0', 'n1', 'n2', *passed, *origins])})"
        left = "".join(f"{value.name}, " for value in one.results)
        self._line(f"{left + '= ' if left else ''}yield from {call}")

    # -- operations

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
            kept = known[0] if len(known) == 1 and (one.name == "arith.addi" or known[0] is one.operands[0]) else None
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

    def _constant(self, value: Value, constant: Any) -> None:
        self._constants[value] = constant
        if type(constant) in (int, bool):
            self._names[value] = f"({constant!r})" if constant < 0 else repr(constant)
        else:
            self._names[value] = self._module.constant(constant, ("value", value))

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

    def _same(self, one: Operation) -> None:
        """What the result is, the operand is already."""
        source = one.operands[0]
        if source in self._constants:
            self._constants[one.result] = self._constants[source]
        self._names[one.result] = self._name(source)

    _tt_splat = _same
    _tt_unsplat = _same

    def _tt_broadcast(self, one: Operation) -> None:
        self._same(one)

    def _shaped(self, one: Operation, text: str) -> None:
        if self._form(one.operands[0]) == SCALAR:
            self._same(one)
            return
        self._line(f"{one.result.name} = {text}")

    def _tt_expand_dims(self, one: Operation) -> None:
        axis = tiles.integer(one.text, "axis")
        rank = len(one.result.type.shape or ())
        index = ", ".join("None" if at == axis else ":" for at in range(rank))
        source = one.operands[0]
        if source in self._constants and self._form(source):
            self._constant(one.result, np.expand_dims(self._constants[source], axis))
            return
        self._shaped(one, f"{self._name(source)}[{index}]")

    def _tt_reshape(self, one: Operation) -> None:
        if one.result.type.shape == one.operands[0].type.shape:
            self._same(one)
            return
        self._shaped(one, f"{self._full(one.operands[0])}.reshape({one.result.type.shape})")

    def _tt_trans(self, one: Operation) -> None:
        order = tiles.integers(one.text, "order")
        self._shaped(one, f"{self._full(one.operands[0])}.transpose({order})")

    def _tt_addptr(self, one: Operation) -> None:
        pointer, offset = one.operands
        size = size_of(_pointee(pointer.type))
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
        wrapped = f"{base} + {step}" if form else f"wrap64({base} + {step})"
        if form and self._form(offset) == SCALAR:
            wrapped = f"{base} + wrap64({step})"
        self._line(f"{one.result.name} = {wrapped}")

    # -- memory

    def _site(self, kind: str, one: Operation, pointer: Value, **rest: Any) -> str:
        shape = pointer.type.shape
        step = max(self._flow.step(pointer) or 0, 0) if shape is not None else 0
        site = self._module.site(kind, one.place, element=_pointee(pointer.type), shape=shape, step=step, **rest)
        self._line(f"yield {site.number}")
        return self._module.constant(site, ("site", site.number), "s")

    def _mask(self, one: Operation, at: int) -> Value | None:
        """The mask among the operands, unless all lanes are active."""
        if at >= len(one.operands):
            return None
        mask = one.operands[at]
        return None if mask in self._constants and self._constants[mask] is True else mask

    def _tt_load(self, one: Operation) -> None:
        pointer, mask = one.operands[0], self._mask(one, 1)
        other = one.operands[2] if len(one.operands) > 2 else None
        name = one.result.name
        if pointer.type.shape is None:
            if mask is not None:
                self._line(f"if {self._name(mask)}:")
                self._depth += 1
            site = self._site("load", one, pointer)
            self._line(f"{name} = load1({site}, {self._name(pointer)}, {self._origin(pointer)})")
            if mask is not None:
                self._depth -= 1
                zero = self._name(other) if other else self._zero(one.result.type.element)
                self._line("else:")
                self._line(f"    {name} = {zero}")
            return
        site = self._site("load", one, pointer)
        masked = self._mask_of(mask, pointer)
        rest = self._name(other) if other else "None"
        self._line(f"{name} = load({site}, {self._full(pointer)}, {masked}, {rest}, {self._origin(pointer)})")

    def _mask_of(self, mask: Value | None, pointer: Value) -> str:
        if mask is None:
            return "None"
        return self._as(mask, FULL, Type(pointer.type.shape, "i1"))

    def _zero(self, element: str) -> str:
        zero = number("0.0" if element[0] in "fb" else "0", element)
        return repr(zero) if type(zero) is int else self._module.constant(zero, ("zero", element))

    def _tt_store(self, one: Operation) -> None:
        pointer, value, mask = one.operands[0], one.operands[1], self._mask(one, 2)
        if pointer.type.shape is None:
            if mask is not None:
                self._line(f"if {self._name(mask)}:")
                self._depth += 1
            site = self._site("store", one, pointer)
            self._line(f"store1({site}, {self._name(pointer)}, {self._name(value)}, {self._origin(pointer)})")
            self._depth -= mask is not None
            return
        site = self._site("store", one, pointer)
        masked = self._mask_of(mask, pointer)
        stored = self._as(value, FULL, Type(pointer.type.shape, value.type.element))
        self._line(f"store({site}, {self._full(pointer)}, {stored}, {masked}, {self._origin(pointer)})")

    def _tt_atomic_rmw(self, one: Operation) -> None:
        operation, sem, *_ = (part.strip() for part in one.text.split(","))
        pointer, value = one.operands[:2]
        stored = self._as(value, SCALAR if pointer.type.shape is None else FULL, value.type)
        self._line(f"{one.result.name} = {self._changed(one, operation, sem, stored, self._mask(one, 2))}")

    def _changed(self, one: Operation, operation: str, sem: str, value: str, mask: Value | None = None) -> str:
        """What an atomic operation finds, as an expression, behind the stop before it."""
        pointer = one.operands[0]
        site = self._site("atomic", one, pointer, operation=operation, sem=sem)
        scalar = pointer.type.shape is None
        masked = "None" if mask is None else self._name(mask) if scalar else self._mask_of(mask, pointer)
        where = self._name(pointer) if scalar else self._full(pointer)
        return f"rmw({site}, {where}, {value}, {masked}, {self._origin(pointer)})"

    def _tt_atomic_load(self, one: Operation) -> None:
        kind, sem = one.result.type, one.text.split(",")[0].strip()
        nothing = self._zero(kind.element)
        if kind.shape is not None:
            dtype = self._module.constant(dtype_of(kind.element), ("dtype", kind.element), "t")
            nothing = f"full({nothing}, {kind.shape}, {dtype})"
        self._line(f"{one.result.name} = {self._changed(one, 'load', sem, nothing, self._mask(one, 1))}")

    def _tt_atomic_store(self, one: Operation) -> None:
        pointer, value = one.operands[:2]
        stored = self._as(value, SCALAR if pointer.type.shape is None else FULL, value.type)
        self._line(self._changed(one, "store", one.text.split(",")[0].strip(), stored, self._mask(one, 2)))

    def _tt_atomic_poll(self, one: Operation) -> None:
        if len(one.operands) > 2:
            raise NotUnderstoodError("tt.atomic_poll with a time limit")
        pointer, expected = one.operands
        wanted = self._as(expected, SCALAR if pointer.type.shape is None else FULL, expected.type)
        self._line("while True:")
        self._depth += 1
        found = self._changed(one, "poll", one.text.split(",")[0].strip(), wanted)
        self._line(f"{one.result.name} = {found} == {wanted}")
        self._line(f"if {one.result.name}{'' if pointer.type.shape is None else '.all()'}:")
        self._line("    break")
        self._depth -= 1

    def _tt_atomic_cas(self, one: Operation) -> None:
        sem = one.text.split(",")[0].strip()
        pointer, expected, value = one.operands
        site = self._site("atomic", one, pointer, operation="cas", sem=sem)
        whole = FULL if pointer.type.shape is not None else SCALAR
        passed = [self._as(each, whole, each.type) for each in (pointer, expected, value)]
        self._line(f"{one.result.name} = cas({site}, {', '.join(passed)}, {self._origin(pointer)})")

    def _ttg_barrier(self, one: Operation) -> None:
        site = self._module.site("barrier", one.place)
        self._line(f"yield {site.number}")
        self._line("barrier()")

    def _gpu_barrier(self, one: Operation) -> None:
        self._ttg_barrier(one)

    def _exchange(self, one: Operation, *, everybody: bool = False) -> None:
        """Lanes of the program have to meet here."""
        site = self._module.site("exchange", one.place, everybody=everybody)
        self._line(f"yield {site.number}")
        if everybody:
            self._line("exchange()")

    # -- tiles

    def _tt_reduce(self, one: Operation) -> None:
        self._exchange(one, everybody=all(value.type.shape is None for value in one.results))
        axis = tiles.integer(one.text, "axis")
        operands = [self._full(value) for value in one.operands]
        if (simple := self._simple(one)) is not None:
            text = f"reduce({simple}, {operands[0]}, {axis})"
        else:
            combine = self._combiner(one)
            text = f"reduce_by({combine}, ({', '.join(operands)},), {axis})"
        self._line(f"{', '.join(value.name for value in one.results)} = {text}")

    def _tt_scan(self, one: Operation) -> None:
        self._exchange(one)
        axis, backwards = tiles.integer(one.text, "axis"), "reverse = true" in one.text
        operands = [self._full(value) for value in one.operands]
        if (simple := self._simple(one)) is not None:
            text = f"scan({simple}, {operands[0]}, {axis}, {backwards})"
        else:
            combine = self._combiner(one)
            text = f"scan_by({combine}, ({', '.join(operands)},), {axis}, {backwards})"
        self._line(f"{', '.join(value.name for value in one.results)} = {text}")

    def _simple(self, one: Operation) -> str | None:
        """The NumPy function that a region of one operation on integers is."""
        operations = one.regions[0][0].operations
        arguments = one.regions[0][0].arguments
        if len(operations) != 2 or len(one.operands) != 1 or operations[0].operands != arguments:
            return None
        if one.operands[0].type.element in ("i1", "f16", "bf16", "f32", "f64"):
            return None
        return tiles.UFUNCS.get(operations[0].name)

    def _combiner(self, one: Operation) -> str:
        block = one.regions[0][0]
        name = f"combine_{len(self._module.lines)}"
        self._line(f"def {name}({', '.join(value.name for value in block.arguments)}):")
        self._depth += 1
        if any(each.regions or each.name.startswith(("tt.load", "tt.store", "tt.atomic", "tt.call")) for each in block.operations):
            raise NotUnderstoodError(f"{one.name} by more than arithmetic")
        self._block(block.operations[:-1])
        results = [self._name(value) for value in block.operations[-1].operands]
        self._line(f"return ({', '.join(results)},)")
        self._depth -= 1
        return name

    def _tt_dot(self, one: Operation) -> None:
        self._exchange(one)
        elements = tuple(value.type.element for value in one.operands)
        tf32 = "inputPrecision = tf32" in one.text and elements[0] == "f32"
        operands = ", ".join(self._full(value) for value in one.operands)
        self._line(f"{one.result.name} = dot({operands}, {elements!r}, {tf32})")

    def _tt_gather(self, one: Operation) -> None:
        self._exchange(one)
        source, index = (self._full(value) for value in one.operands)
        self._line(f"{one.result.name} = gather({source}, {index}, {tiles.integer(one.text, 'axis')})")

    def _tt_histogram(self, one: Operation) -> None:
        self._exchange(one)
        assert one.result.type.shape is not None
        masked = f", {self._full(one.operands[1])}" if len(one.operands) > 1 else ""
        self._line(f"{one.result.name} = histogram({self._full(one.operands[0])}, {one.result.type.shape[0]}{masked})")

    def _tt_cat(self, one: Operation) -> None:
        self._line(f"{one.result.name} = concatenate(({', '.join(self._full(value) for value in one.operands)}))")

    def _tt_join(self, one: Operation) -> None:
        self._line(f"{one.result.name} = stack(({', '.join(self._full(value) for value in one.operands)}), -1)")

    def _tt_split(self, one: Operation) -> None:
        first, second = one.results
        if self._form(one.operands[0]) == SCALAR:
            self._names[first] = self._names[second] = self._name(one.operands[0])
            return
        whole = self._full(one.operands[0])
        self._line(f"{first.name}, {second.name} = {whole}[..., 0], {whole}[..., 1]")

    # -- what is said

    def _tt_assert(self, one: Operation) -> None:
        message = one.text[one.text.index('"') :]
        self._line(f"asserted({self._name(one.operands[0])}, {message}, {self._place(one)}, (p0, p1, p2))")

    def _tt_print(self, one: Operation) -> None:
        prefix = re.match(r'"((?:[^"\\]|\\.)*)"', one.text)
        values = ", ".join(self._full(value) if value.type.shape is not None else self._name(value) for value in one.operands)
        self._line(f"printed({prefix.group() if prefix else repr('')}, (p0, p1, p2), ({values}{',' if values else ''}))")

    def _place(self, one: Operation) -> str:
        return repr(f"{one.place.file}:{one.place.line}")


def _without_yield(operations: list[Operation]) -> list[Operation]:
    last = operations[-1].name if operations else ""
    return operations[:-1] if last in ("scf.yield", "scf.condition") else operations


def _pointee(kind: Type) -> str:
    return type_of(kind.pointee).element


_PREDICATE = re.compile(r"^([a-z]+),")


def _attributes(one: Operation) -> dict[str, str]:
    if one.name in ("arith.cmpi", "arith.cmpf"):
        found = _PREDICATE.match(one.text.strip())
        assert found is not None
        return {"predicate": found.group(1)}
    return {name: value for name, value in re.findall(r"(rounding|propagateNan) = (\w+)", one.text)}


__all__ = ["LAZY", "Branch", "Site", "Written", "written"]
