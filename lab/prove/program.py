"""A kernel's IR, executed on a path: one program after the other, on numbers of which only terms are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from lab.prove.memory import OVERFLOW, Data, SymbolicMemory, joined
from lab.prove.operations import SymbolicArithmetic
from lab.prove.paths import Term, concrete, is_symbolic
from statecheck.kernels.source import tiles
from statecheck.kernels.source.flow import yielded
from statecheck.kernels.source.generate import attributes_of, pointee
from statecheck.kernels.source.ir import Block, FuncOp, NotUnderstoodError, Operation, Value, number, size_of

_SILENT = {"ttg.barrier", "gpu.barrier", "llvm.intr.assume", "tt.assert", "tt.print"}
_MOST_STEPS = 10_000
_SAME = {
    "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int", "tt.unsplat", "tt.reshape", "tt.expand_dims",
}  # fmt: skip


@dataclass
class Tile:
    """Lanes in row-major order, each computed when it is asked for: what no lane needs is never a term."""

    count: int
    compute: Callable[[int], Any]
    known: dict[int, Any] = field(default_factory=dict)

    def __getitem__(self, lane: int) -> Any:
        if lane not in self.known:
            self.known[lane] = self.compute(lane)
        return self.known[lane]


class Executor:
    """Executes the programs of one launch.

    Args:
        arguments: of the kernel, as `Launched.values`.
    """

    def __init__(self, function: FuncOp, memory: SymbolicMemory, grid: tuple[int, int, int]) -> None:
        self._function, self._memory, self._path = function, memory, memory.path
        self._grid, self._program = grid, (0, 0, 0)
        self._values: dict[Value, Any] = {}
        self._here = ""
        self._arithmetic = SymbolicArithmetic(memory.path, self._overflows)

    def run(self, arguments: Sequence[Any]) -> None:
        """All programs, in row-major order."""
        x, y, z = self._grid
        # Integers wrap around without a word.
        with np.errstate(all="ignore"):
            for index in np.ndindex(x, y, z):
                self._program = (index[0], index[1], index[2])
                self._values = dict(zip(self._function.arguments, arguments, strict=True))
                self._body(self._function.blocks)

    def _overflows(self, condition: Term) -> None:
        self._memory.violated(OVERFLOW, condition, f"{self._here} overflows")

    def _body(self, blocks: list[Block]) -> None:
        by_label, block = {block.label: block for block in blocks}, blocks[0]
        for _ in range(_MOST_STEPS):
            target = self._block(block.operations)
            if target is None:
                return
            label, passed = target
            block = by_label[label]
            self._assign(block.arguments, passed)
        raise NotUnderstoodError(f"a loop of more than {_MOST_STEPS} steps")

    def _block(self, operations: list[Operation]) -> tuple[str, list[Value]] | None:
        """Execute operations up to the end, or to a jump."""
        for op in operations:
            self._here = f"{op.place.file.rpartition('/')[2]}:{op.place.line}"
            if op.successors:
                taken = len(op.successors) == 1 or self._decide(op.operands[0])
                return op.successors[0 if taken else 1]
            if op.name in ("scf.yield", "scf.condition", "tt.return") or op.name in _SILENT:
                continue
            own = getattr(self, "_" + op.name.replace(".", "_"), None)
            if own is not None:
                own(op)
            elif op.name in _SAME:
                self._values[op.result] = self._values[op.operands[0]]
            else:
                self._elementwise(op)
        return None

    def _assign(self, targets: Sequence[Value], sources: Sequence[Value]) -> None:
        self._values.update(zip(targets, [self._values[source] for source in sources], strict=True))

    def _decide(self, value: Value) -> bool:
        return self._path.decide(self._values[value])

    def _elementwise(self, op: Operation) -> None:
        elements = [operand.type.element for operand in op.operands]
        attributes, operands = attributes_of(op), [self._values[operand] for operand in op.operands]
        here, kind = self._here, op.result.type

        def compute(lane: int) -> Any:
            values = [value[lane] if isinstance(value, Tile) else value for value in operands]
            if any(isinstance(value, Data) for value in values):
                raise NotUnderstoodError(f"{op.name} of a state's bytes")
            self._here = here
            return self._arithmetic.compute(op.name, elements, kind.element, attributes, values)

        self._values[op.result] = compute(0) if kind.shape is None else Tile(prod(kind.shape), compute)

    # What tiles are made of.

    def _arith_constant(self, op: Operation) -> None:
        text, kind = op.text.strip(), op.result.type
        if text.startswith("dense<["):
            raise NotUnderstoodError("a tile of several constants")
        value = number(text.removeprefix("dense<").removesuffix(">"), kind.element)
        self._values[op.result] = value if kind.shape is None else Tile(prod(kind.shape), lambda lane: value)

    def _tt_make_range(self, op: Operation) -> None:
        match = re.search(r"end = (\d+) : i32, start = (\d+)", op.text)
        assert match is not None
        first, end = int(match[2]), int(match[1])
        self._values[op.result] = Tile(end - first, lambda lane: first + lane)

    def _tt_splat(self, op: Operation) -> None:
        value = self._values[op.operands[0]]
        if is_symbolic(value):
            # Lanes that are numbers cost nothing.
            value = self._path.only(value)
        self._values[op.result] = Tile(prod(op.result.type.shape or ()), lambda lane: value)

    def _tt_reduce(self, op: Operation) -> None:
        axis, shape = tiles.integer(op.text, "axis"), op.operands[0].type.shape or ()
        block = op.regions[0][0]
        lanes = np.moveaxis(np.arange(prod(shape)).reshape(shape), axis, -1).reshape(-1, shape[axis])
        reduced = [self._reduced(op, block, row) for row in lanes.tolist()]
        for at, result in enumerate(op.results):
            column = [row[at] for row in reduced]
            self._values[result] = (
                column[0] if result.type.shape is None else Tile(len(column), column.__getitem__)
            )

    def _reduced(self, op: Operation, block: Block, lanes: Sequence[int]) -> list[Any]:
        found = [self._values[operand][lanes[0]] for operand in op.operands]
        for lane in lanes[1:]:
            new = [self._values[operand][lane] for operand in op.operands]
            self._values.update(zip(block.arguments, [*found, *new], strict=True))
            self._block(block.operations[:-1])
            found = [self._values[value] for value in block.operations[-1].operands]
        return found

    # Where programs are, and where they go.

    def _tt_get_program_id(self, op: Operation) -> None:
        self._values[op.result] = self._program["xyz".index(op.text.strip())]

    def _tt_get_num_programs(self, op: Operation) -> None:
        self._values[op.result] = self._grid["xyz".index(op.text.strip())]

    def _scf_if(self, op: Operation) -> None:
        chosen = 0 if self._decide(op.operands[0]) else 1
        if chosen < len(op.regions):
            self._block(op.regions[chosen][0].operations)
            self._assign(op.results, yielded(op.regions[chosen]) if op.results else [])

    def _scf_for(self, op: Operation) -> None:
        (counter, *carried), operations = op.regions[0][0].arguments, op.regions[0][0].operations
        start, end, step = (self._path.only(self._values[operand]) for operand in op.operands[:3])
        self._assign(carried, op.operands[3:])
        for _ in range(_MOST_STEPS):
            if not self._path.decide(concrete(start < end)):
                break
            self._values[counter] = start
            self._block(operations)
            self._assign(carried, yielded(op.regions[0]))
            start = concrete(start + step)
        else:
            raise NotUnderstoodError(f"a loop of more than {_MOST_STEPS} steps")
        self._assign(op.results, carried)

    def _scf_while(self, op: Operation) -> None:
        before, after = op.regions[0][0], op.regions[1][0]
        condition, *forwarded = yielded(op.regions[0])
        self._assign(before.arguments, op.operands)
        for _ in range(_MOST_STEPS):
            self._block(before.operations)
            if not self._decide(condition):
                self._assign(op.results, forwarded)
                return
            self._assign(after.arguments, forwarded)
            self._block(after.operations)
            self._assign(before.arguments, yielded(op.regions[1]))
        raise NotUnderstoodError(f"a loop of more than {_MOST_STEPS} steps")

    # SymbolicMemory.

    def _tt_addptr(self, op: Operation) -> None:
        pointer, steps = (self._values[operand] for operand in op.operands)
        size = size_of(pointee(op.operands[0].type))

        def moved(lane: int) -> Any:
            base, step = (one[lane] if isinstance(one, Tile) else one for one in (pointer, steps))
            return concrete(base + step * size)

        shape = op.result.type.shape
        self._values[op.result] = moved(0) if shape is None else Tile(prod(shape), moved)

    def _lanes(self, op: Operation, mask_at: int) -> list[int]:
        """The lanes that are active; 0 alone for a scalar."""
        shape = op.operands[0].type.shape
        mask = self._values[op.operands[mask_at]] if mask_at < len(op.operands) else True
        lanes = range(1 if shape is None else prod(shape))
        here = self._here
        chosen = [lane for lane in lanes if self._path.decide(_lane(mask, lane))]
        self._here = here
        return chosen

    def _tt_load(self, op: Operation) -> None:
        pointer, size = self._values[op.operands[0]], size_of(pointee(op.operands[0].type))
        other = self._values[op.operands[2]] if len(op.operands) > 2 else 0
        addresses = {lane: _lane(pointer, lane) for lane in self._lanes(op, 1)}
        loaded = {lane: self._memory.load(at, size, self._here) for lane, at in addresses.items()}
        read = [
            (addresses[lane], addresses[lane], size) for lane, one in loaded.items() if isinstance(one, Data)
        ]
        self._memory.reads(((run.source, run.count) for run in joined(read)), self._here)
        if op.result.type.shape is None:
            self._values[op.result] = loaded.get(0, other)
            return
        self._values[op.result] = Tile(
            prod(op.result.type.shape), lambda lane: _lane(other, lane), dict(loaded)
        )

    def _tt_store(self, op: Operation) -> None:
        pointer, value = (self._values[operand] for operand in op.operands[:2])
        size, moved = size_of(pointee(op.operands[0].type)), []
        for lane in self._lanes(op, 2):
            address, stored = _lane(pointer, lane), _lane(value, lane)
            self._memory.store(address, size, stored, self._here)
            if isinstance(stored, Data):
                moved.append((stored.source, address, size))
        self._memory.moved += joined(moved)

    def _tt_atomic_rmw(self, op: Operation) -> None:
        change = op.text.split(",")[0].strip()
        if op.operands[0].type.shape is not None or change not in ("add", "exch"):
            raise NotUnderstoodError(f"tt.atomic_rmw {change}")
        address, value = (self._values[operand] for operand in op.operands[:2])
        kind = pointee(op.operands[0].type)
        size = size_of(kind)
        if not self._lanes(op, 2):
            self._values[op.result] = 0
            return
        found = self._memory.load(address, size, self._here)
        if change == "add":
            value = self._arithmetic.compute("arith.addi", (kind, kind), kind, {}, (found, value))
        self._memory.store(address, size, value, self._here)
        self._values[op.result] = found


def _lane(value: Any, lane: int) -> Any:
    return value[lane] if isinstance(value, Tile) else value
