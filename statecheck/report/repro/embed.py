"""The runtime in a script's text, whole modules that are the same in every script.

These modules import the standard library, torch, and each other by `from module import name`.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from types import ModuleType

from statecheck import text as texts
from statecheck.execution.objects import embedded, fakes
from statecheck.report.repro.runtime import checks, process, subject
from statecheck.subject import source_files

BEFORE_TORCH = (texts, process, source_files)
WITH_TORCH = (embedded, fakes, checks, subject)
_NOT_FOR_READERS = re.compile(r"\s+# (?:noqa|type: ignore|mypy:|pragma:).*")


@cache
def runtime_names() -> frozenset[str]:
    """Names that stand for something in a script already."""
    modules = (*BEFORE_TORCH, *WITH_TORCH)
    own = (name for module in modules for name in vars(module) if not name.startswith("__"))
    return frozenset(own) | {"check", "adapter", "MODULES"}


@cache
def source_of_module(module: ModuleType) -> str:
    """The module, without what a script has elsewhere; its docstring becomes a comment."""
    text = inspect.getsource(module)
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
