"""Defects that are planted on purpose, and copies of the implementation that have them."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from statecheck.subject.variants import Variant, broken_copy, implementation
from subjects import Subject


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
