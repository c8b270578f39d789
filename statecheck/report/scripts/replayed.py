"""A script that replays its case with the modules of statecheck that it carries: for scenarios of engines, and for what plain calls do not show."""

from __future__ import annotations

import ast
import base64
import json
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import shorten, wrap

from statecheck import rooms
from statecheck.case import Case
from statecheck.report.environment import revision
from statecheck.report.filled import filled
from statecheck.report.scripts.script import TEMPLATES, in_docstring
from statecheck.report.statement import headline, should_hold, titled
from statecheck.subject import Subject

_LONGEST_MESSAGE = 400
_WIDTH = 120
_ENTRY = "statecheck.diagnose.replay"
_CARRIED = ("statecheck", "oracle", "subjects")
_NOT_CARRIED = (
    "statecheck.campaign",
    "statecheck.cli",
    "statecheck.report",
    "statecheck.suite",
    "statecheck.execution.registry",
    "subjects.sequences",
)
"""Imported on demand by what a replay does not do: draw examples, and match declared defects."""


def replaying_script(case: Case, subject: Subject | None, root: str) -> str:
    """The script's text.

    Args:
        root: the folder to import the subject from, relative to the script's; "" where it is installed.
    """
    module = subject.module.__name__ if subject is not None else ""
    files = dict(_files(module))
    if any(_place(path) in files for path in filter(None, [_path_of(module)])) and not case.subject.count(
        "+"
    ):
        # The subject's own adapter is among the files.
        root = ""
    packed = zlib.compress(json.dumps({**files, "case.json": case.to_json()}).encode(), 9)
    takes = f"torch, triton, numpy{'' if case.device == 'cpu' else f', a device {case.device}'} and {titled(case.subject, subject)}"
    other = f"SUBJECT={case.subject} SUBJECT_PATH=some/folder DEVICE={case.device} python repro.py"
    return filled(
        TEMPLATES / "replayed.py.j2",
        {"in_docstring": in_docstring},
        case=case,
        headline=headline(case),
        should_hold=should_hold(case),
        message=shorten(case.message, _LONGEST_MESSAGE),
        needs=f"Needs {takes}. To try another copy of it: {other}",
        root=root,
        many=len(files),
        revision=revision(rooms.home()),
        files="\n".join(wrap(base64.b85encode(packed).decode(), _WIDTH)),
    )


@cache
def _files(subject: str) -> tuple[tuple[str, str], ...]:
    """The text of each module that a replay on the subject may import, and of the data beside them, by its path."""
    found: dict[Path, str] = {}
    # Some modules of these packages are named by texts alone.
    named = ("statecheck.workers", "statecheck.reference", "subjects.impl", "subjects.plain", subject)
    waiting = [_ENTRY, *(module for package in named for module in _modules_in(package))]
    seen = set(_NOT_CARRIED)
    while waiting:
        name = waiting.pop()
        package = name.rpartition(".")[0]
        path = _path_of(name)
        if name in seen or package in _NOT_CARRIED or path is None:
            continue
        seen.add(name)
        waiting += filter(None, [package])
        found[path] = path.read_text(encoding="utf-8")
        for data in path.parent.glob("*.toml"):
            found[data] = data.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(found[path])):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple((_place(path), text) for path, text in sorted(found.items()))


def _path_of(module: str) -> Path | None:
    """The file of a module of these packages, None of another one, and of a name that is no module."""
    root, *names = module.split(".")
    if root not in _CARRIED:
        return None
    folder = rooms.PACKAGE if root == "statecheck" else rooms.FOLDER / root
    path = folder.joinpath(*names)
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def _modules_in(package: str) -> Iterator[str]:
    """The package and its modules, nothing of one that is not carried."""
    path = _path_of(package)
    if path is not None:
        yield package
        for file in path.parent.rglob("*.py") if path.name == "__init__.py" else ():
            yield ".".join([package, *file.relative_to(path.parent).with_suffix("").parts]).removesuffix(
                ".__init__"
            )


def _place(path: Path) -> str:
    """Where a file lies in the folder that the script makes."""
    inside = path.is_relative_to(rooms.PACKAGE) and not path.is_relative_to(rooms.PACKAGE / "_installed")
    return str(path.relative_to(rooms.PACKAGE.parent if inside else rooms.FOLDER))
