"""The subject of campaigns that meet a fault, and the folder in which they run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.helpers.planted import broken_copy, defect_named, implementation

SUBJECT = "broken_by_night"
ONLY = "common-metadata/query-lens or conv-copy/start"
_DEFECTS = (
    "query lengths are the ends of the queries",
    "a conv copy starts at the first row, whatever was accepted",
)


@dataclass(frozen=True)
class BrokenSubject:
    """Where campaigns run; `examples`: how much they do."""

    folder: Path
    examples: int = 300

    @property
    def subject_path(self) -> Path:
        return self.folder / "subject"


@contextmanager
def ground() -> Iterator[BrokenSubject]:
    """A folder with the broken subject."""
    with tempfile.TemporaryDirectory(prefix="statecheck-faults-") as name:
        found = BrokenSubject(Path(name))
        _put_subject(found.subject_path)
        yield found


def _put_subject(folder: Path) -> None:
    intact = implementation()
    for number, name in enumerate(_DEFECTS):
        last = number == len(_DEFECTS) - 1
        package, place = (SUBJECT, folder) if last else (f"step{number}", folder.parent / "steps")
        intact = broken_copy(replace(defect_named(name).variant, package=package), intact, place)
