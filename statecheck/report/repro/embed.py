"""The runtime in a script's text, whole modules that are the same in every script.

These modules import the standard library, torch, and each other by `from module import name`. Here they are read and not imported:
a case of sequences takes no torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_RUNTIME, _OBJECTS = f"{__package__}.runtime", "statecheck.execution.objects"
BEFORE_TORCH = ("statecheck.util.text", f"{_RUNTIME}.process", "statecheck.subject.source_files")
WITH_TORCH = (f"{_OBJECTS}.embedded", f"{_OBJECTS}.fakes", f"{_RUNTIME}.checks", f"{_RUNTIME}.subject")
WATCHED = f"{_RUNTIME}.watched"
_NOT_FOR_READERS = re.compile(r"\s+# (?:noqa|type: ignore|mypy:|pragma:).*")


@cache
def runtime_names() -> frozenset[str]:
    """Names that stand for something in a script already."""
    own = (
        name for module in (*BEFORE_TORCH, *WITH_TORCH) for name in _names(ast.parse(text_of(module)).body)
    )
    return frozenset(own) | {"check", "adapter", "MODULES"}


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Names that these statements bind."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((name.asname or name.name).partition(".")[0] for name in node.names)
        else:
            bound = (one for one in ast.walk(node) if isinstance(one, ast.Name))
            yield from (one.id for one in bound if isinstance(one.ctx, ast.Store))


def text_of(module: str) -> str:
    """The module's text."""
    spec = find_spec(module)
    assert spec is not None, module
    return Path(spec.origin or "").read_text(encoding="utf-8")


@cache
def source_of_module(module: str) -> str:
    """The module, without what a script has elsewhere; its docstring becomes a comment."""
    text = text_of(module)
    lines = [_NOT_FOR_READERS.sub("", line) for line in text.splitlines()]
    tree = ast.parse(text)
    title = (ast.get_docstring(tree) or "").splitlines()[0]
    for node in reversed(tree.body):
        if node is tree.body[0] or _is_in_script(node):
            del lines[node.lineno - 1 : node.end_lineno]
    return f"# {title}\n" + "\n".join(lines).strip("\n")


def _is_in_script(node: ast.stmt) -> bool:
    """Whether it imports from another module that is embedded, or from `__future__`."""
    ours = __name__.partition(".")[0]
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in (ours, "__future__")
