"""The tables of releases: properties by topic and known defects in docs/compatibility.md, and a line for each release above them."""

from __future__ import annotations

from collections.abc import Sequence

from lab.compatibility.record import (
    ERROR,
    GONE,
    KNOWN,
    NEW,
    NOT_APPLICABLE,
    NOT_TESTED,
    PASSED,
    Column,
    Compatibility,
    Known,
    ReleaseResult,
    named_for,
)
from statecheck.subject.loading import PROJECTS, Project
from statecheck.util import markdown

_SYMBOLS = {PASSED: "·", NEW: "**NEW**", GONE: "gone", ERROR: "error", NOT_TESTED: "?", NOT_APPLICABLE: "–"}
_MARKS = {"showed": "x", "no longer fails": "gone", "not tried enough": "(x)", "not tried": "(x)"}
_LEGEND = (
    "`·` passed; a number: showed the known defect of that number, and nothing else; **NEW**: falsified by something "
    "that is not known; gone: a known defect no longer fails; `–` not applicable: the release lacks a function, or promises "
    "nothing of it; `?` not tested; error: of the harness. A topic's line has how many of its applicable properties passed; "
    "those that passed, or are not applicable, in every release have no line of their own."
)
_KNOWN_LEGEND = "`x` showed; `(x)` declared, and not seen in so few examples; gone: no longer fails; empty: the release does not have it."


def table(found: Compatibility) -> str:
    """All of it, as Markdown."""
    tried = [release for release in found.releases if not release.problem]
    failed = [
        f"{release.release} could not be tried: {_text(release.problem)}"
        for release in found.releases
        if release.problem
    ]
    numbers = {one.id: str(number) for number, one in enumerate(found.known, 1)}
    rows = [*_counts(tried), *_properties(found, tried, numbers)]
    parts = ["\n".join(markdown.table(_head("", tried), rows)), _LEGEND]
    if found.known:
        parts += [_known_table(found.known, tried), _KNOWN_LEGEND]
    return "\n\n".join(parts + failed)


def summary(found: Compatibility) -> str:
    """A line for each release, as Markdown."""
    head = ("release", "device", "properties passed", "known defect", "NEW", "not applicable")
    rows = []
    for release in found.releases:
        counts = (str(release.count(state)) for state in (PASSED, KNOWN, NEW, NOT_APPLICABLE))
        rows.append((release.release, release.device, *counts))
    return "\n".join(markdown.table(head, rows))


FILES = {
    "compatibility": "docs/compatibility.md",
    "releases": "docs/compatibility.md",
    "compatibility-sglang": "docs/compatibility.md",
}
"""The page that each part stands in, by its name."""


def parts(found: Compatibility, project: Project = PROJECTS["vllm"]) -> dict[str, str]:
    """The text of each part of a project that has a place, by its name."""
    texts = {"compatibility": table(found), "releases": summary(found)}
    named = {named_for(name, project): text for name, text in texts.items()}
    return {name: text for name, text in named.items() if name in FILES}


def _head(first: str, columns: Sequence[Column]) -> list[str]:
    return [first, *(column.release for column in columns)]


def _counts(columns: Sequence[Column]) -> list[list[str]]:
    """What a column's campaign amounts to."""
    lines = [
        ["device, seconds", *(f"{column.device}, {column.seconds:,.0f}" for column in columns)],
        ["examples", *(f"{column.examples:,}" for column in columns)],
        ["known defects that showed", *(str(_shown(column)) for column in columns)],
    ]
    for state in (PASSED, KNOWN, NEW, GONE, NOT_APPLICABLE, NOT_TESTED, ERROR):
        counts = [column.count(state) for column in columns]
        if any(counts) or state in (PASSED, NEW):
            lines.append([f"properties: {state}", *map(str, counts)])
    return lines


def _shown(column: Column) -> int:
    return sum(status == "showed" for status in column.statuses.values())


def _properties(found: Compatibility, columns: Sequence[Column], numbers: dict[str, str]) -> list[list[str]]:
    lines: list[list[str]] = []
    for topic in sorted(set(found.topics.values())):
        names = sorted(name for name, one in found.topics.items() if one == topic)
        lines.append([f"**{topic}**", *(_passed(column, names) for column in columns)])
        lines += [
            [f"`{name}`", *(_symbol(column.cells.get(name), numbers) for column in columns)]
            for name in names
            if not _alike(name, columns)
        ]
    return lines


def _passed(column: Column, names: Sequence[str]) -> str:
    states = [column.cells[name].state for name in names if name in column.cells]
    return f"{states.count(PASSED)} of {len(states) - states.count(NOT_APPLICABLE)}"


def _alike(name: str, columns: Sequence[Column]) -> bool:
    """Whether there is nothing to say of it."""
    states = {column.cells[name].state for column in columns if name in column.cells}
    return states <= {PASSED} or states == {NOT_APPLICABLE}


def _symbol(cell: ReleaseResult | None, numbers: dict[str, str]) -> str:
    if cell is None:
        return ""
    known = ", ".join(sorted((numbers.get(defect, defect) for defect in cell.known), key=_number))
    if cell.state == KNOWN:
        return known or "known"
    return " ".join(filter(None, (_SYMBOLS[cell.state], known)))


def _number(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdigit() else (0, text)


def _known_table(known: Sequence[Known], columns: Sequence[Column]) -> str:
    lines = []
    for number, one in enumerate(known, 1):
        title = _text(one.title or one.id)
        # The page stands in docs.
        link = one.link.removeprefix("docs/")
        name = f"{number}. [{title}]({link})" if link else f"{number}. {title}"
        lines.append([name, *(_mark(column, one.id) for column in columns)])
    return "\n".join(markdown.table(_head("known defect", columns), lines))


def _mark(column: Column, name: str) -> str:
    status = column.statuses.get(name, "")
    return _MARKS.get(status, status)


def _text(text: str) -> str:
    """Text that does not end its cell."""
    return " ".join(text.split()).replace("|", "\\|")
