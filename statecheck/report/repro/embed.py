"""A script's text: what is its case's own, and below it the runtime, whole modules that are the same in every script.

These modules import the standard library, torch, and each other by `from module import name`.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from statecheck import text as texts
from statecheck.execution.objects import embedded, fakes
from statecheck.report.repro.runtime import checks, process, subject, watched
from statecheck.subject import source_files

BEFORE_TORCH = (texts, process, source_files)
WITH_TORCH = (embedded, fakes, checks, subject)
_LICENCE = "# SPDX-License-Identifier: Apache-2.0"
"""Of the code that is embedded; a project's own checks ask for the line in each of its test files."""
_RULE = "# " + "-" * 98
_RUNTIME = f"{_RULE}\n# The rest is the same in every script: it imports the subject, runs `check`, and compares.\n{_RULE}"
_NOT_FOR_READERS = re.compile(r"\s+# (?:noqa|type: ignore|mypy:|pragma:).*")


@dataclass(frozen=True)
class Script:
    """What is a case's own in its script.

    Args:
        docstring: its paragraphs.
        check: the function of the case.
        device: the device that the case failed on.
        statements: what comes last, and runs everything.
        adapter: the function that finds the subject's names, "" for none.
        test: the function for pytest, "" for a script that is run on its own.
    """

    docstring: tuple[str, ...]
    check: str
    device: str
    statements: tuple[str, ...]
    adapter: str = ""
    test: str = ""


def script_text(script: Script) -> str:
    begin = [] if script.test else ["begin(__doc__)"]
    begin += [f'DEVICE = checked_device(os.environ.get("DEVICE", "{script.device}"))', "require_torch()"]
    parts = [
        _head(script.docstring),
        *filter(None, (script.check, script.test, script.adapter)),
        _RUNTIME,
        *map(_source, BEFORE_TORCH),
        "\n".join(begin),
        *map(_source, WITH_TORCH),
        "\n".join(script.statements),
    ]
    text = "\n\n\n".join(parts) + "\n"
    return f"{_LICENCE}\n{text}" if script.test else text


def watched_text(docstring: tuple[str, ...], statement: str) -> str:
    """The text of a script that has statecheck replay the case."""
    return "\n\n\n".join([_head(docstring), _source(watched), statement]) + "\n"


@cache
def runtime_names() -> frozenset[str]:
    """Names that stand for something in a script already."""
    modules = (*BEFORE_TORCH, *WITH_TORCH)
    own = (name for module in modules for name in vars(module) if not name.startswith("__"))
    return frozenset(own) | {"check", "adapter", "MODULES"}


def _head(docstring: tuple[str, ...]) -> str:
    paragraphs = "\n\n".join(docstring)
    return f'"""{paragraphs}\n"""\n\nfrom __future__ import annotations'


@cache
def _source(module: ModuleType) -> str:
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
