"""Private interfaces of other tools: one module each, made for versions that it names."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Private:
    """A tool, the module that knows its private names, what is private of it; ruff refuses these names elsewhere."""

    tool: str
    file: str
    pattern: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse((ROOT / self.file).read_text(encoding="utf-8"))

    def constant(self, name: str) -> tuple[str, ...]:
        """Read from the source: where a name is missing, the module cannot be imported."""
        values = (
            node.value
            for node in self.tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
        )
        found: tuple[str, ...] = ast.literal_eval(next(values))
        return found

    def names(self) -> list[str]:
        imported = (name for name in imports(self.tree) if re.match(self.pattern, name))
        return sorted({*imported, *self.constant("NEEDED")})

    def missing(self) -> list[str]:
        """A sentence for each name that the installed version lacks."""
        versions = " and ".join(self.constant("MADE_FOR"))
        return [
            f"{self.tool} {version(self.tool)} has no {name}, but {self.file} needs it: it was made for {versions}"
            for name in self.names()
            if not exists(name)
        ]


TOOLS = (
    Private(
        "triton",
        "statecheck/kernels/private.py",
        r"triton\.(_C|runtime|compiler|backends)\b",
    ),
    Private(
        "hypothesis",
        "statecheck/execution/private/hypothesis.py",
        r"hypothesis\.(internal|core|control|errors\.StopTest|stateful\.run_state_machine_as_test)\b",
    ),
    Private("pytest", "statecheck/execution/private/pytest.py", r"_pytest\b"),
)
TOOL = pytest.mark.parametrize("one", TOOLS, ids=lambda one: one.tool)


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def exists(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@TOOL
def test_the_installed_version_has_the_private_names_that_are_needed(one: Private) -> None:
    assert one.missing() == []


@TOOL
def test_the_versions_that_it_was_made_for_are_the_bound_and_the_pin(one: Private) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = next(one_ for one_ in map(Requirement, project["dependencies"]) if one_.name == one.tool)
    pins = map(
        Requirement,
        re.findall(r"^[\w-]+==\S+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE),
    )
    pin = next(pinned for pinned in pins if pinned.name == one.tool)
    oldest, newest = (minor(next(iter(each.specifier)).version) for each in (wanted, pin))
    assert (oldest, newest) == tuple(map(minor, one.constant("MADE_FOR")))


def minor(text: str) -> tuple[int, int]:
    found = Version(text)
    return found.major, found.minor
