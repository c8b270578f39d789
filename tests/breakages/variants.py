"""Defects that are planted on purpose, and copies of the implementation that have them."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from subjects import Subject, load


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
    """Copy the implementation into `folder` under the variant's name and break it; returns the package's folder."""
    text = (intact / variant.file).read_text(encoding="utf-8")
    assert text.count(variant.old) == 1, f"{variant.file} should have {variant.old!r} once"
    package = folder / variant.package
    shutil.copytree(intact, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / variant.file).write_text(text.replace(variant.old, variant.new), encoding="utf-8")
    return package


@dataclass(frozen=True)
class Breakage:
    """A defect that a person would call `name`, and the ids of the properties that are known to find it."""

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]

    @property
    def variant(self) -> Variant:
        return Variant(re.sub(r"\W+", "_", self.name.lower()), self.file, self.old, self.new)


def planted(defects: Mapping[str, Mapping[str, tuple[str, str, str]]]) -> tuple[Breakage, ...]:
    """Defects by file of the implementation and name: the old text, the new text, and the ids of properties, with spaces between."""
    return tuple(
        Breakage(name, file, old, new, tuple(caught_by.split()))
        for file, named in defects.items()
        for name, (old, new, caught_by) in named.items()
    )


@contextmanager
def broken_subject(variant: Variant, folder: Path) -> Iterator[Subject]:
    """A broken copy in `folder`, imported into this process; gone from it afterwards."""
    broken_copy(variant, implementation(), folder)
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield Subject(variant.package, importlib.import_module(variant.package))
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == variant.package]:
            del sys.modules[name]
