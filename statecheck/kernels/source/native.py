"""A kernel's IR written out as C: one function that runs all programs of a launch, one after the other, in row-major order.

For launches that nothing watches. Only integers are computed with: floating-point numbers are moved, as their bits. Branches have the
numbers that `generate` gives them. A tile is an array of its elements in row-major order, or one number where all are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from statecheck.kernels.source import tiles
from statecheck.kernels.source.flow import yielded
from statecheck.kernels.source.ir import Block, FuncOp, NotUnderstoodError, Operation
from statecheck.kernels.source.lines import pointee
from statecheck.kernels.source.native_values import (
    BITS,
    IN_ANY_ORDER,
    TYPES,
    Values,
    bits_of,
    expression,
    literal,
    type_of,
)
from statecheck.kernels.source.values import number, size_of

_SAME = {"tt.splat", "tt.unsplat", "tt.expand_dims", "tt.reshape", "tt.int_to_ptr", "tt.ptr_to_int"}


def native(functions: Sequence[FuncOp]) -> str:
    """C for the functions of a module, whose entry is `run`; "" where it has something that only generated Python does."""
    try:
        (function,) = functions
        return _Writer(function).text()
    except (NotUnderstoodError, ValueError):
        return ""


class _Writer(Values):
    """Writes one function."""

    def __init__(self, function: FuncOp) -> None:
        super().__init__()
        self._function = function

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


_RUN = """
void run(const s64 *a, s64 n0, s64 n1, s64 n2) {
for (s64 x = 0; x < n0; x++) for (s64 y = 0; y < n1; y++) for (s64 z = 0; z < n2; z++)
program(a, x, y, z, n0, n1, n2);
}
"""
