"""Generated parts of pages: each stands between two lines that mark it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MarkedPart:
    """A part of a page.

    Args:
        name: of the part, which its marks have.
        root: the folder that `file` is relative to.
        file: the page, as complaints name it.
    """

    name: str
    root: Path
    file: str

    @property
    def marks(self) -> tuple[str, str]:
        """The lines before and behind it."""
        return f"<!-- {self.name}: begin -->", f"<!-- {self.name}: end -->"

    @property
    def complaint(self) -> str:
        """What is wrong with the page, "" if it has the marks."""
        path, (first, last) = self.root / self.file, self.marks
        if not path.exists():
            return f"{self.file}: missing, but should have the table of {self.name}"
        _, begin, rest = path.read_text(encoding="utf-8").partition(first)
        if not (begin and last in rest):
            return f"{self.file}: no markers, but should have the lines {first} and {last}"
        return ""

    def write(self, text: str) -> list[str]:
        """Put `text` between the marks; what is wrong with the page, if anything is."""
        if self.complaint:
            return [self.complaint]
        (before, _, after), (begin, end) = self._split(), self.marks
        (self.root / self.file).write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
        return []

    def differences(self, text: str, again: str) -> list[str]:
        """The lines in which the page differs from `text`; `again` is the command that brings it up to date."""
        if self.complaint:
            return [self.complaint]
        old, new = self._split()[1].split("\n"), text.split("\n")
        lines = list(difflib.unified_diff(old, new, self.file, "now", lineterm="", n=0))
        return (
            [f"{self.file}: the table of {self.name} is out of date; `{again}` brings it up", *lines]
            if lines
            else []
        )

    def _split(self) -> tuple[str, str, str]:
        (first, last), text = self.marks, (self.root / self.file).read_text(encoding="utf-8")
        before, _, rest = text.partition(first)
        inside, _, after = rest.partition(last)
        return before, inside.strip("\n"), after
