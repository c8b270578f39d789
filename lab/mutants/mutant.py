"""A mutant: one change of the text of one file, and its identity, which changes elsewhere in the file leave as it is."""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

IMPORT = (0, 0)
"""The lines of what runs when the module is imported."""


@dataclass(frozen=True)
class Edit:
    """Bytes start..end of the source replaced by `new`.

    Args:
        function: the qualified name of the function, "" at the level of the module.
        lines: first and last line of the statement, of the whole function for a Triton kernel, or `IMPORT`.
        kernel: whether it is in a Triton kernel.
    """

    operator: str
    start: int
    end: int
    new: str
    function: str
    lines: tuple[int, int]
    kernel: bool


@dataclass(frozen=True)
class Mutant:
    """An edit of a file that is named by its path below the folder of its package, with "/" between the parts."""

    id: str
    path: str
    line: int
    edit: Edit

    @property
    def operator(self) -> str:
        return self.edit.operator


class Source:
    """The text of a file, with the places of its syntax tree's nodes in bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.tree = ast.parse(content)
        self._starts = [0]
        for line in content.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    @cached_property
    def lines(self) -> list[str]:
        return self.content.decode().splitlines()

    def span(self, node: ast.AST) -> tuple[int, int]:
        """First byte of a node, and the byte behind it."""
        return (
            self._starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self._starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def text(self, start: int, end: int) -> str:
        return self.content[start:end].decode()

    def of(self, node: ast.AST) -> str:
        return self.text(*self.span(node))

    def line_at(self, offset: int) -> int:
        return self.content.count(b"\n", 0, offset) + 1

    def changed(self, edit: Edit) -> bytes:
        """The text with an edit; every line keeps its number."""
        lost = self.content.count(b"\n", edit.start, edit.end) - edit.new.count("\n")
        new, lines = edit.new.encode(), b"\n" * lost
        # Only in parentheses is a line's end no end of the statement.
        new = new[:-1] + lines + b")" if new.endswith(b")") else new + lines
        return self.content[: edit.start] + new + self.content[edit.end :]


def identified(path: str, source: Source, edits: Iterable[Edit]) -> list[Mutant]:
    """The mutants of a file; equal changes of equal lines of one function are numbered."""
    seen = Counter[tuple[str, ...]]()
    mutants = []
    for edit in edits:
        line = source.line_at(edit.start)
        before = source.content.rfind(b"\n", 0, edit.start) + 1
        place = len(source.text(before, edit.start).lstrip())
        key = (path, edit.function, edit.operator, source.lines[line - 1].strip(), str(place), edit.new)
        seen[key] += 1
        digest = hashlib.sha256("\0".join((*key, str(seen[key]))).encode()).hexdigest()[:12]
        mutants.append(Mutant(digest, path, line, edit))
    return mutants


def difference(source: Source, mutant: Mutant) -> str:
    """The changed lines, as a diff without its head."""
    after = source.changed(mutant.edit).decode().splitlines()
    lines = difflib.unified_diff(source.lines, after, n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
