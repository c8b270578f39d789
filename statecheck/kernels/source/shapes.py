"""Operations on whole tiles: their shapes, and what their lanes do together."""

from __future__ import annotations

import numpy as np

from statecheck.kernels.source import tiles
from statecheck.kernels.source.flow import SCALAR
from statecheck.kernels.source.ir import NotUnderstoodError, Operation
from statecheck.kernels.source.lines import Lines


class Shapes(Lines):
    """Writes reshapes, reductions, scans, products and the like."""

    def _same(self, op: Operation) -> None:
        """What the result is, the operand is already."""
        source = op.operands[0]
        if source in self._constants:
            self._constants[op.result] = self._constants[source]
        self._names[op.result] = self._name(source)

    _tt_splat = _same
    _tt_unsplat = _same

    def _tt_broadcast(self, op: Operation) -> None:
        self._same(op)

    def _shaped(self, op: Operation, text: str) -> None:
        if self._form(op.operands[0]) == SCALAR:
            self._same(op)
            return
        self._line(f"{op.result.name} = {text}")

    def _tt_expand_dims(self, op: Operation) -> None:
        axis = tiles.integer(op.text, "axis")
        rank = len(op.result.type.shape or ())
        index = ", ".join("None" if at == axis else ":" for at in range(rank))
        source = op.operands[0]
        if source in self._constants and self._form(source):
            self._constant(op.result, np.expand_dims(self._constants[source], axis))
            return
        self._shaped(op, f"{self._name(source)}[{index}]")

    def _tt_reshape(self, op: Operation) -> None:
        if op.result.type.shape == op.operands[0].type.shape:
            self._same(op)
            return
        self._shaped(op, f"{self._full(op.operands[0])}.reshape({op.result.type.shape})")

    def _tt_trans(self, op: Operation) -> None:
        order = tiles.integers(op.text, "order")
        self._shaped(op, f"{self._full(op.operands[0])}.transpose({order})")

    def _tt_reduce(self, op: Operation) -> None:
        if all(value.type.shape is None for value in op.results):
            # Every lane gets the one result, and has waited for the others.
            self._line("barrier()")
        axis = tiles.integer(op.text, "axis")
        operands = [self._full(value) for value in op.operands]
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
            results = [self._name(value) for value in block.operations[-1].operands]
            self._line(f"return ({', '.join(results)},)")
        return name

    def _tt_dot(self, op: Operation) -> None:
        elements = tuple(value.type.element for value in op.operands)
        tf32 = "inputPrecision = tf32" in op.text and elements[0] == "f32"
        operands = ", ".join(self._full(value) for value in op.operands)
        self._line(f"{op.result.name} = dot({operands}, {elements!r}, {tf32})")
