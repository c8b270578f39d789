"""Copies of the implementation with one line broken on purpose, to see what finds them out."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from statecheck.subject import load


@dataclass(frozen=True)
class Variant:
    """A defect: in a copy of the implementation called `package`, `old` in `file` becomes `new`."""

    package: str
    file: str
    old: str
    new: str


def implementation() -> Path:
    """The folder of the intact implementation."""
    file = load("impl").module.__file__
    assert file is not None
    return Path(file).resolve().parent


def broken_copy(variant: Variant, intact: Path, folder: Path) -> Path:
    """Copy the implementation into `folder` under the variant's name and break it; returns the package's folder.

    Raises:
        ValueError: the implementation does not have the line to break exactly once.
    """
    text = (intact / variant.file).read_text(encoding="utf-8")
    found = text.count(variant.old)
    if found != 1:
        rule = f"in {variant.file} once, but is there {found} times"
        raise ValueError(f"old = {variant.old!r}, but should be {rule} [broken_copy]")
    package = folder / variant.package
    shutil.copytree(intact, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / variant.file).write_text(text.replace(variant.old, variant.new), encoding="utf-8")
    return package
