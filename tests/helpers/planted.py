"""Planted defects, which `tests/meta/planted/*.toml` lists, and copies of the implementation that have one."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from statecheck import rooms
from subjects import Subject, adapted, load

FOLDER = Path(__file__).parents[1] / "meta" / "planted"
IN_IMPL = ("stateless", "builders", "align", "engines", "bounds")
"""The groups of defects in copies of `impl`."""
IN_PORTS = ("ports", "sequences", "recurrences")
"""The groups of defects in copies of a port of the examples or of the tests."""
IN_RELEASES = tuple(sorted({file.stem for file in FOLDER.glob("*.toml")} - {*IN_IMPL, *IN_PORTS}))
"""The groups of defects in files of a release, or of its adapter."""


@dataclass(frozen=True)
class Variant:
    """A copy of the implementation, called `package`, in which `new` replaces `old` in `file`, and so on for each pair of `also`."""

    package: str
    file: str
    old: str
    new: str
    also: tuple[tuple[str, str], ...] = ()

    def replaced(self, text: str) -> str:
        """The text of the file with the replacement.

        Raises:
            ValueError: `old` is not in the text, or more than once.
        """
        for old, new in ((self.old, self.new), *self.also):
            if (count := text.count(old)) != 1:
                raise ValueError(f"{old!r} is {count} times in {self.file}, but should be once [Variant]")
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class PlantedDefect:
    """A defect, and the properties that are known to find it.

    Args:
        file: below the package of `impl`; of a release, below the folder of its packages; of a port, below the checkout.
        found_by: ids of properties.
        found_inside_by: ids of properties of a release's engine that find the copy of `impl` inside of the engine.
        release: the version whose file it is, "" for `impl`.
        models: of a library of sequences, the models that scenarios are about, "" for all.
        also: further texts and their replacements.
    """

    name: str
    file: str
    old: str
    new: str
    found_by: tuple[str, ...]
    found_inside_by: tuple[str, ...] = ()
    release: str = ""
    models: str = ""
    also: tuple[tuple[str, str], ...] = ()

    @property
    def variant(self) -> Variant:
        return Variant(re.sub(r"\W+", "_", self.name.lower()), self.file, self.old, self.new, self.also)


@cache
def planted(group: str) -> tuple[PlantedDefect, ...]:
    """The defects of a group, which is the name of a file: `[[file]]`, and the fields of a defect."""
    files: dict[str, Any] = tomllib.loads((FOLDER / f"{group}.toml").read_text(encoding="utf-8"))
    release = files.pop("release", "")
    return tuple(_defect(file, release, fields) for file, defects in files.items() for fields in defects)


def _defect(file: str, release: str, fields: dict[str, Any]) -> PlantedDefect:
    found_by, inside = fields.pop("found_by"), fields.pop("found_inside_by", ())
    also = tuple((old, new) for old, new in fields.pop("also", ()))
    return PlantedDefect(
        file=file,
        release=release,
        found_by=tuple(found_by),
        found_inside_by=tuple(inside),
        also=also,
        **fields,
    )


def planted_in_impl() -> tuple[PlantedDefect, ...]:
    """All defects in copies of `impl`."""
    return tuple(defect for group in IN_IMPL for defect in planted(group))


def defect_named(name: str) -> PlantedDefect:
    """The defect of `impl` with that name."""
    (defect,) = (defect for defect in planted_in_impl() if defect.name == name)
    return defect


def implementation() -> Path:
    """The folder of the intact implementation."""
    file = load("impl").module.__file__
    assert file is not None
    return Path(file).resolve().parent


def broken_copy(variant: Variant, intact: Path, folder: Path) -> Path:
    """Copy the implementation, or a port, into `folder` under the variant's name and break it; returns the path of the package, or the module."""
    port = rooms.FOLDER / variant.file
    if port.is_file():
        text = variant.replaced(port.read_text(encoding="utf-8"))
        (folder / f"{variant.package}.py").write_text(text, encoding="utf-8")
        return folder / variant.package
    text = variant.replaced((intact / variant.file).read_text(encoding="utf-8"))
    package = folder / variant.package
    shutil.copytree(intact, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / variant.file).write_text(text, encoding="utf-8")
    return package


@contextmanager
def broken_subject(variant: Variant, folder: Path) -> Iterator[Subject]:
    """A broken copy in `folder`, imported into this process; gone from it afterwards."""
    broken_copy(variant, implementation(), folder)
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield adapted(importlib.import_module(variant.package))
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == variant.package]:
            del sys.modules[name]
