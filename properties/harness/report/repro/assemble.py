"""A script's parts as one text, with the code of `runtime` that they use."""

from __future__ import annotations

import ast
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from properties.harness import text as texts
from properties.harness.report.repro import runtime
from properties.harness.report.repro.carried import Carried

_TEXT, _CHILD = texts.__name__, f"{runtime.__name__}.child"
_START, _GIVEN = f"{runtime.__name__}.start", f"{runtime.__name__}.given"
_ENDING, _SKIPPING = f"{runtime.__name__}.ending", f"{runtime.__name__}.skipping"
_LICENCE = "# SPDX-License-Identifier: Apache-2.0"
"""Of the code that is carried; a project's own checks ask for the line in each of its test files."""


@dataclass(frozen=True)
class Script:
    """What is a case's own in its script.

    Args:
        docstring: its paragraphs.
        statements: what comes last, and runs everything.
        check: the function of the case, "" for none.
        adapter: the function that finds the subject's names, "" for none.
        device: the expression that picks the device, "" where the script itself needs no torch.
        test: the function for pytest, "" for a script that is run on its own.
    """

    docstring: tuple[str, ...]
    statements: tuple[str, ...]
    check: str = ""
    adapter: str = ""
    device: str = ""
    test: str = ""


def assembled(script: Script) -> str:
    """The whole text."""
    begin = _beginning(script)
    # What is wanted differs from script to script; reading the modules again would take most of a script's time.
    carried = deepcopy(_runtime(for_pytest=bool(script.test)))
    for name in sorted(_names("\n".join([script.check, script.test, *begin, *script.statements]))):
        carried.want(name)
    sources = carried.sources(with_imports=False)
    # The arguments and the device come before torch is imported, which the rest needs.
    first = [sources.pop(one) for one in (_TEXT, _CHILD, _ENDING, _START) if one in sources]
    start = [*first, "\n".join(begin)]
    own = [script.check, script.test, script.adapter]
    docstring = "\n\n".join(script.docstring)
    head = [f'"""{docstring}\n"""', "from __future__ import annotations", "\n".join(carried.imports())]
    parts = ["\n\n".join(head), *filter(None, own), *start, *sources.values(), "\n".join(script.statements)]
    text = "\n\n\n".join(part.strip("\n") for part in parts) + "\n"
    return f"{_LICENCE}\n{text}" if script.test else text


def _beginning(script: Script) -> list[str]:
    """What runs before torch is imported, and imports it."""
    begin = [] if script.test else ["begin(__doc__)"]
    if script.device:
        device = f"before_triton({script.device})" if script.test else script.device
        begin += [f"DEVICE = checked_device({device})", "torch = import_torch()"]
    return begin


@cache
def runtime_names() -> frozenset[str]:
    """Names that stand for something in a script already."""
    return _runtime().defined | _runtime(for_pytest=True).defined | {"check", "adapter"}


@cache
def _runtime(*, for_pytest: bool = False) -> Carried:
    folder = Path(runtime.__path__[0])
    modules = {f"{runtime.__name__}.{path.stem}": path for path in sorted(folder.glob("*.py"))}
    modules[_TEXT] = Path(texts.__file__ or "")
    del modules[f"{runtime.__name__}.__init__"]
    skipping = modules.pop(_SKIPPING)
    if for_pytest:
        # Whatever ends without a verdict does it by that module's name.
        modules[_ENDING] = skipping
    return Carried(modules, runtime.__name__, frozenset({"DEVICE", "subject", "torch"}))


def _names(source: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
