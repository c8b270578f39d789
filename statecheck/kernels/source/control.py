"""Control flow of kernels as that of Python: branches, loops, blocks that jump to each other, calls."""

from __future__ import annotations

import re

from statecheck.kernels.source.flow import FULL, SCALAR, yielded
from statecheck.kernels.source.ir import NotUnderstoodError, Operation, SourcePlace, Value
from statecheck.kernels.source.lines import Lines
from statecheck.kernels.source.sites import python_name
from statecheck.kernels.source.values import size_of


class Control(Lines):
    """Writes operations of scf and cf, and calls."""

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
                (f"if {self._name(op.operands[0])}:", "else:"), op.successors, strict=True
            ):
                with self._under(header):
                    self._jump(*successor, numbers)

    def _jump(self, label: str, passed: list[Value], numbers: dict[str, int]) -> None:
        target = self._function.blocks[numbers[label]]
        self._assign(list(zip(target.arguments, passed, strict=True)))
        self._line(f"at = {numbers[label]}")

    def _scf_if(self, op: Operation) -> None:
        condition = op.operands[0]
        if self._form(condition) != SCALAR:
            raise NotUnderstoodError("scf.if on a tile")
        for at, header in enumerate((f"if {self._name(condition)}:", "else:")):
            region = op.regions[at] if at < len(op.regions) else []
            with self._under(header):
                self._branch_begins(op.place)
                self._block(_without_yield(region[0].operations if region else []))
                self._assign(list(zip(op.results, yielded(region) if op.results else [], strict=True)))

    def _scf_for(self, op: Operation) -> None:
        (counter, *carried), operations = op.regions[0][0].arguments, op.regions[0][0].operations
        self._assign(list(zip(carried, op.operands[3:], strict=True)))
        bounds = [self._name(value) for value in op.operands[:3]]
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
            with self._under(f"if not {self._name(condition)}:"):
                self._assign(list(zip(op.results, forwarded, strict=True)))
                self._line("break")
            self._branch_begins(op.place)
            self._assign(list(zip(after.arguments, forwarded, strict=True)))
            self._block(_without_yield(after.operations))
            self._assign(list(zip(before.arguments, yielded(op.regions[1]), strict=True)))

    def _tt_return(self, op: Operation) -> None:
        values = [self._name(value) for value in op.operands]
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


def _without_yield(operations: list[Operation]) -> list[Operation]:
    last = operations[-1].name if operations else ""
    return operations[:-1] if last in ("scf.yield", "scf.condition") else operations
