"""Lines of Python for one function of a kernel: names of values, their forms, and where pointers come from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from statecheck.kernels.source import tiles
from statecheck.kernels.source.flow import DYNAMIC, FULL, SCALAR, Flow
from statecheck.kernels.source.ir import FuncOp, Operation, Type, Value, type_of
from statecheck.kernels.source.sites import Module
from statecheck.kernels.source.values import dtype_of


class Lines:
    """Writes lines into a module. Operations are the concern of classes that are made of it."""

    def __init__(self, module: Module, function: FuncOp) -> None:
        self._module, self._function = module, function
        self._flow = Flow(function, entry=function.public)
        self._depth = 1
        self._constants: dict[Value, Any] = {}
        self._names: dict[Value, str] = {}
        self._origins: dict[Value, str] = {}
        self._inner: list[Value] = []

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
            right.append(self._as(source, self._form(target), target.type))
            if self._flow.carries(target):
                left.append(self._own_origin(target))
                right.append(self._origin(source))
        if left and left != right:
            self._line(f"{', '.join(left)} = {', '.join(right)}")

    def _block(self, operations: list[Operation]) -> None:
        for op in operations:
            self._operation(op)

    def _constant(self, value: Value, constant: Any) -> None:
        self._constants[value] = constant
        if type(constant) in (int, bool):
            self._names[value] = f"({constant!r})" if constant < 0 else repr(constant)
        else:
            self._names[value] = self._module.constant(constant, ("value", value))

    def _operation(self, op: Operation) -> None:
        raise NotImplementedError


def pointee(kind: Type) -> str:
    return type_of(kind.pointee).element
