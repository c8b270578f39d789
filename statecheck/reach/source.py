"""The lines and branches of a file's functions, as Python compiles them; those of Triton kernels are the kernels' own IR.

A branch is a condition and the way that it went: `kind is None` was true, a loop was entered. Its place is the condition's in the
source, so that code that Python compiles twice counts once.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from inspect import CO_NEWLOCALS
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import NamedTuple

_NO_LINE = frozenset({"RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "POP_TOP", "NOP", "CACHE"})
_BETWEEN = frozenset({"COPY", "TO_BOOL", "EXTENDED_ARG"})
_WAYS = {
    "IF_NOT_NONE": ("is not None", "is None"),
    "IF_NONE": ("is None", "is not None"),
    "IF_FALSE": ("false", "true"),
    "IF_TRUE": ("true", "false"),
}
"""By the end of a jump's name: what holds where it jumps, and where it goes on."""


class Point(NamedTuple):
    """A line of a file, or a branch at a column of it: which way a condition goes, "" for the line itself."""

    file: str
    line: int
    column: int = 0
    way: str = ""


class Jump(NamedTuple):
    """A conditional jump: the offset to which it goes, and the points of either way."""

    target: int
    taken: Point
    passed: Point


@dataclass
class Instructions:
    """The points of a code object: of each instruction its line, of each conditional jump its branches, both by offset."""

    lines: dict[int, Point] = field(default_factory=dict)
    jumps: dict[int, Jump] = field(default_factory=dict)

    @property
    def points(self) -> set[Point]:
        ways = {way for jump in self.jumps.values() for way in (jump.taken, jump.passed)}
        return {*self.lines.values(), *ways}


@dataclass(frozen=True)
class TracedFile:
    """A file of Python: `text` by line, and where its loops and kernels are."""

    file: str
    text: tuple[str, ...]
    loops: dict[tuple[int, int], tuple[int, int]]
    """By the place of a loop, or of what it iterates over, the loop's."""
    kernels: tuple[range, ...]

    def of(self, code: CodeType) -> Instructions:
        """The points of one function; none for modules, for bodies of classes, and for kernels, which Python never runs."""
        found = Instructions()
        if not code.co_flags & CO_NEWLOCALS or any(code.co_firstlineno in one for one in self.kernels):
            return found
        instructions = [*dis.get_instructions(code)]
        for one in instructions:
            line = one.positions.lineno if one.positions is not None else None
            if one.opname not in _NO_LINE and line is not None:
                found.lines[one.offset] = Point(self.file, line)
        failing = {one.offset for one in instructions if one.opname in ("LOAD_ASSERTION_ERROR", "RERAISE")}
        tests = [one for one in instructions if one.opname not in _BETWEEN]
        tested = {after.offset: before for before, after in pairwise(tests)}
        for one, after in pairwise(instructions):
            jump = self._jump(tested.get(one.offset, one), one)
            # Of an assertion, and of what `except` names, the other way is no choice.
            if jump is not None and failing.isdisjoint({jump.target, after.offset}):
                found.jumps[one.offset] = jump
        return found

    def _jump(self, tested: dis.Instruction, one: dis.Instruction) -> Jump | None:
        """The ways of a conditional jump, whose condition is what the instruction before it leaves."""
        if one.opname == "FOR_ITER":
            loop = self.loops.get(_place(one))
            if loop is None:
                return None
            return Jump(one.argval, Point(self.file, *loop, "ends"), Point(self.file, *loop, "goes on"))
        ways = next((ways for name, ways in _WAYS.items() if name in one.opname), None)
        if ways is None or tested.opname == "WITH_EXCEPT_START":
            return None
        taken, passed = (Point(self.file, *_place(tested), way) for way in ways)
        return Jump(one.argval, taken, passed)

    def points(self) -> set[Point]:
        """All of the file."""
        whole = compile("\n".join(self.text), self.file, "exec")
        return {point for code in _codes(whole) for point in self.of(code).points}


def _place(instruction: dis.Instruction) -> tuple[int, int]:
    found = instruction.positions
    assert found is not None
    return found.lineno or 0, found.col_offset or 0


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


@cache
def source(file: str) -> TracedFile:
    """Read a file.

    Raises:
        OSError: it cannot be read.
        SyntaxError: it is no Python.
    """
    text = Path(file).read_text(encoding="utf-8")
    loops, kernels = {}, []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.For):
            place = node.lineno, node.col_offset
            loops[place] = loops[node.iter.lineno, node.iter.col_offset] = place
        elif isinstance(node, ast.FunctionDef) and any(
            "jit" in ast.unparse(one) for one in node.decorator_list
        ):
            first = min(one.lineno for one in node.decorator_list)
            kernels.append(range(first, (node.end_lineno or node.lineno) + 1))
    return TracedFile(file, tuple(text.splitlines()), loops, tuple(kernels))
