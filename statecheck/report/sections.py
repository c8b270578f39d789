"""Sections of a report, and how they fit where it is pasted: GitHub takes 65,536 characters, and cuts nothing itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from statecheck.util.markdown import fenced

MOST = 60_000
"""Characters of a report."""
_A_SENTENCE = 400
"""Room for what is said of pieces that are left out."""


@dataclass(frozen=True)
class Section:
    """A heading, and pieces below it, each of which stands whole or is left out.

    Args:
        title: "" for none.
        pieces: Markdown; lines of code with `language`.
        one, many: what pieces are called where they are left out; "" where none may be.
        rank: sections of the highest rank lose their last pieces first.
        language: of the code that all pieces together are, "" for Markdown.
        summary: the line under which everything is folded, "" where it stands in the open.
    """

    title: str
    pieces: tuple[str, ...]
    one: str = ""
    many: str = ""
    rank: int = 0
    language: str = ""
    summary: str = ""
    left_out: int = 0

    @property
    def text(self) -> str:
        return "\n\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        if self.title:
            yield f"## {self.title}"
        if self.summary:
            yield f"<details>\n<summary>{self.summary}</summary>"
        if self.pieces and self.language:
            yield fenced("\n".join(self.pieces), self.language)
        elif self.pieces:
            yield "\n\n".join(self.pieces)
        if self.left_out:
            missing = f"{self.left_out:,} more {self.one if self.left_out == 1 else self.many}"
            yield f"**{missing} left out here, so that the report can be pasted: `case.json` has everything.**"
        if self.summary:
            yield "</details>"

    def without(self, characters: int) -> Section:
        """Without as many of the last pieces as have so many characters together."""
        kept, gone = list(self.pieces), 0
        while kept and gone < characters:
            gone += len(kept.pop())
        return replace(self, pieces=tuple(kept), left_out=self.left_out + len(self.pieces) - len(kept))


def fitted(sections: Sequence[Section], most: int = MOST) -> str:
    """The sections as Markdown of at most `most` characters, as long as those that may lose nothing have room."""
    shown = list(sections)
    for number in sorted(range(len(shown)), key=lambda number: -shown[number].rank):
        excess = len(_joined(shown)) - most
        if excess > 0 and shown[number].many:
            shown[number] = shown[number].without(excess + _A_SENTENCE)
    return _joined(shown)


def _joined(sections: Sequence[Section]) -> str:
    return "\n\n".join(text for text in (section.text for section in sections) if text) + "\n"


def shortened(text: str, room: int) -> str:
    """`text`, or its beginning and how much of it is missing."""
    if len(text) <= room:
        return text
    return f"{text[:room]} … ({len(text) - room:,} more characters)"
