"""Operations on whole tiles: their shapes, and what their lanes do together."""

from __future__ import annotations

import numpy as np

from statecheck.kernels.source import tiles
from statecheck.kernels.source.flow import SCALAR
from statecheck.kernels.source.ir import NotUnderstoodError, Operation
from statecheck.kernels.source.lines import Lines


class Shapes(Lines):
    """Writes reshapes, reductions, scans, products and the like."""

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

    def _tt_reduce(self, one: Operation) -> None:
        self._exchange(one, one_result=all(value.type.shape is None for value in one.results))
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
        if any(
            each.regions or each.name.startswith(("tt.load", "tt.store", "tt.atomic", "tt.call"))
            for each in block.operations
        ):
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
        self._line(
            f"{one.result.name} = histogram({self._full(one.operands[0])}, {one.result.type.shape[0]}{masked})"
        )

    def _tt_cat(self, one: Operation) -> None:
        self._line(
            f"{one.result.name} = concatenate(({', '.join(self._full(value) for value in one.operands)}))"
        )

    def _tt_join(self, one: Operation) -> None:
        self._line(
            f"{one.result.name} = stack(({', '.join(self._full(value) for value in one.operands)}), -1)"
        )

    def _tt_split(self, one: Operation) -> None:
        first, second = one.results
        if self._form(one.operands[0]) == SCALAR:
            self._names[first] = self._names[second] = self._name(one.operands[0])
            return
        whole = self._full(one.operands[0])
        self._line(f"{first.name}, {second.name} = {whole}[..., 0], {whole}[..., 1]")
