"""What is known of values before anything runs: whether a tile is one number, and where its pointers come from.

Both are least solutions over a function: joins of what reaches a value, through branches, loops and blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from statecheck.kernels.source.ir import Block, FuncOp, Operation, Value

SCALAR, LAZY, FULL = 0, 1, 2
"""How a value is held: as one number, as an array that broadcasts to its shape, as an array of its shape."""

Origin = str | int | None
"""Of a pointer: a parameter's number, DYNAMIC for a variable of its own, None for nothing known."""
DYNAMIC = "dynamic"

_PASSED_ON = {
    "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast",
    "tt.int_to_ptr", "tt.ptr_to_int",
}  # fmt: skip
_SELECT = "arith.select"
_SHAPED = {"tt.expand_dims", "tt.broadcast", "tt.splat"}
_WHOLE = {
    "tt.make_range", "tt.dot", "tt.load", "tt.atomic_rmw", "tt.atomic_cas",
    "tt.atomic_load", "tt.atomic_poll", "tt.scan", "tt.gather", "tt.join", "tt.split", "tt.cat", "tt.histogram",
}  # fmt: skip


def finds_addresses(name: str) -> bool:
    """Whether an operation has its pointers from memory, or from another function."""
    return name in ("tt.load", "tt.call") or name.startswith("tt.atomic")


def edges(function: FuncOp) -> Iterable[tuple[Value, Value]]:
    """Which value becomes which other one where control passes on."""
    blocks = {block.label: block for block in function.blocks}
    for operation in function.walk():
        for label, passed in operation.successors:
            yield from zip(passed, blocks[label].arguments, strict=True)
        yield from _region_edges(operation)


def _region_edges(operation: Operation) -> Iterable[tuple[Value, Value]]:
    if operation.name == "scf.if":
        for region in operation.regions:
            yield from zip(yielded(region), operation.results, strict=True)
    elif operation.name == "scf.for":
        carried = operation.regions[0][0].arguments[1:]
        for sources in (operation.operands[3:], yielded(operation.regions[0])):
            yield from zip(sources, carried, strict=True)
            yield from zip(sources, operation.results, strict=True)
    elif operation.name == "scf.while":
        before, after = (region[0].arguments for region in operation.regions)
        condition = yielded(operation.regions[0])[1:]
        yield from zip(operation.operands, before, strict=True)
        yield from zip(yielded(operation.regions[1]), before, strict=True)
        yield from zip(condition, after, strict=True)
        yield from zip(condition, operation.results, strict=True)


def yielded(region: list[Block]) -> list[Value]:
    """What a region hands on at its end; what hands on nothing is not printed."""
    last = region[-1].operations[-1] if region[-1].operations else None
    return last.operands if last and last.name in ("scf.yield", "scf.condition") else []


class Flow:
    """Forms and origins of all values of a function.

    Args:
        entry: the function is a launch's own, whose parameters are the launch's arguments.
    """

    def __init__(self, function: FuncOp, *, entry: bool) -> None:
        self._operations = list(function.walk())
        self._edges = list(edges(function))
        self._form: dict[Value, int] = {}
        self._origin: dict[Value, Origin] = {}
        self.addresses = _addresses(function, self._operations, self._edges)
        for at, value in enumerate(function.arguments):
            self._form[value] = SCALAR if value.type.shape is None else FULL
            if value in self.addresses:
                self._origin[value] = at if entry and value.type.element == "ptr" else DYNAMIC
        self._solve()

    def form(self, value: Value) -> int:
        return self._form.get(value, SCALAR)

    def origin(self, value: Value) -> Origin:
        return self._origin.get(value)

    def carries(self, value: Value) -> bool:
        """Whether a variable of its own says where the value's pointers come from."""
        return self._origin.get(value) == DYNAMIC

    def _solve(self) -> None:
        changed = True
        while changed:
            changed = False
            for operation in self._operations:
                changed |= self._step(operation)
            for source, target in self._edges:
                changed |= self._raise(target, self.form(source))
                if source in self._origin or target in self._origin:
                    changed |= self._join(target, self._origin.get(source))

    def _step(self, operation: Operation) -> bool:
        changed = False
        if operation.name in ("tt.reduce", "tt.scan"):
            for value in operation.regions[0][0].arguments:
                changed |= self._raise(value, FULL)
        form = self._formed(operation)
        for value in operation.results:
            changed |= self._raise(value, form(value))
            if value in self.addresses:
                changed |= self._derive(operation, value)
        return changed

    def _formed(self, operation: Operation) -> Callable[[Value], int]:
        name = operation.name
        if name in ("scf.if", "scf.for", "scf.while", "arith.constant"):
            return self.form
        if name in _WHOLE or name in ("tt.reduce", "tt.call"):
            return lambda value: SCALAR if value.type.shape is None else FULL
        highest = max((self.form(operand) for operand in operation.operands), default=SCALAR)
        if name in _SHAPED and highest:
            return lambda value: (
                LAZY
                if value.type.shape != operation.operands[0].type.shape and name == "tt.broadcast"
                else highest
            )
        return lambda value: highest

    def _raise(self, value: Value, form: int) -> bool:
        if form <= self._form.get(value, SCALAR):
            return False
        self._form[value] = form
        return True

    def _derive(self, operation: Operation, value: Value) -> bool:
        name, operands = operation.name, operation.operands
        if finds_addresses(name) or name == "tt.split":
            return self._join(value, DYNAMIC)
        if name in _PASSED_ON or name == "tt.addptr":
            return operands[0] in self._origin and self._join(value, self._origin[operands[0]])
        if name in ("arith.addi", "arith.subi"):
            known = [self._origin[operand] for operand in operands if operand in self._origin]
            if not known:
                return False
            return self._join(value, known[0] if len(known) == 1 else DYNAMIC)
        if name == _SELECT:
            changed = False
            for operand in operands[1:]:
                changed |= operand in self._origin and self._join(value, self._origin[operand])
            missing = [operand for operand in operands[1:] if operand not in self._origin]
            if missing and value in self._origin:
                changed |= self._join(value, DYNAMIC)
            return changed
        return False

    def _join(self, value: Value, origin: Origin) -> bool:
        before = self._origin.get(value, "")
        after = origin if before == "" else before if before == origin else DYNAMIC
        if after == before:
            return False
        self._origin[value] = after
        return True


def _addresses(
    function: FuncOp, operations: list[Operation], passed: list[tuple[Value, Value]]
) -> set[Value]:
    """Pointers, and the 64-bit integers that pointers are made of."""
    addresses = {value for value in _values(function, operations) if value.type.element == "ptr"}
    sources: dict[Value, list[Value]] = {}
    for source, target in passed:
        sources.setdefault(target, []).append(source)
    made_of = _PASSED_ON | {_SELECT, "arith.addi", "arith.subi"}
    for operation in operations:
        if operation.name in made_of:
            for value in operation.results:
                sources.setdefault(value, []).extend(operation.operands)
    waiting = list(addresses)
    while waiting:
        for source in sources.get(waiting.pop(), []):
            if source not in addresses and source.type.element in ("i64", "ptr"):
                addresses.add(source)
                waiting.append(source)
    return addresses


def _values(function: FuncOp, operations: list[Operation]) -> Iterable[Value]:
    blocks = itertools.chain(
        function.blocks,
        (block for operation in operations for region in operation.regions for block in region),
    )
    yield from function.arguments
    yield from (value for block in blocks for value in block.arguments)
    yield from (value for operation in operations for value in operation.results)
