"""The sections of a report as Markdown, and how they fit where it is pasted: GitHub takes 65,536 characters, and cuts nothing itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from statecheck.case import Case
from statecheck.report.bisection import ROOM as ROOM_OF_BISECTION
from statecheck.report.bisection import with_section
from statecheck.report.sections import Section, report_sections
from statecheck.util.markdown import fenced

MOST = 60_000
"""Characters of a report."""
_A_SENTENCE = 400
"""Room for what is said of pieces that are left out."""


def report_text(case: Case, directory: Path, note: str = "") -> str:
    """The report as Markdown that an issue tracker takes, at most `MOST` characters; arguments as of `report_sections`."""
    text = markdown_of(report_sections(case, directory, note), MOST - ROOM_OF_BISECTION)
    return with_section(text, directory)


def markdown_of(sections: Sequence[Section], most: int = MOST) -> str:
    """The sections as Markdown of at most `most` characters, as long as those that may lose nothing have room."""
    shown = list(sections)
    for number in sorted(range(len(shown)), key=lambda number: -shown[number].rank):
        excess = len(_joined(shown)) - most
        if excess > 0 and shown[number].many:
            shown[number] = _without(shown[number], excess + _A_SENTENCE)
    return _joined(shown)


def _joined(sections: Sequence[Section]) -> str:
    return "\n\n".join(part for section in sections for part in _parts(section)) + "\n"


def _parts(section: Section) -> Iterator[str]:
    if section.title:
        yield f"## {section.title}"
    if section.summary:
        yield f"<details>\n<summary>{section.summary}</summary>"
    if section.pieces and section.language:
        yield fenced("\n".join(section.pieces), section.language)
    elif section.pieces:
        yield "\n\n".join(section.pieces)
    if section.left_out:
        missing = f"{section.left_out:,} more {section.one if section.left_out == 1 else section.many}"
        yield f"**{missing} left out here, so that the report can be pasted: `case.json` has everything.**"
    if section.summary:
        yield "</details>"


def _without(section: Section, characters: int) -> Section:
    """The section without as many of its last pieces as have so many characters together."""
    kept, gone = list(section.pieces), 0
    while kept and gone < characters:
        gone += len(kept.pop())
    return replace(section, pieces=tuple(kept), left_out=section.left_out + len(section.pieces) - len(kept))
