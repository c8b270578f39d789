"""The generated parts of README and docs/: each stands between two markers, and CI fails where one is out of date."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from statecheck.execution.registry import load_properties
from statecheck.releases.compatibility import record as compatibility
from statecheck.releases.compatibility import table as compatibility_table
from statecheck.subject import load
from statecheck.text.command_lines import command_line
from tools.docs import citations, deviations, property_table, symbols

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "symbols": "docs/symbols.md",
    "properties": "docs/properties.md",
    "deviations": "docs/deviations.md",
    "compatibility": "docs/compatibility.md",
    "releases": "README.md",
}
"""Where each part stands, by its name."""


def run_table(write: bool, check: bool) -> int:
    """Print the generated parts, put them into their files, or hold these and what is cited against them.

    Returns:
        1 if a symbol lacks a room, or a file is out of date or has no place for a part, or a citation or link leads nowhere.
    """
    tested = load_properties()
    found = symbols.complaints(load("impl"), tested) + (citations.complaints() if check else [])
    ours = {"symbols": symbols.table(tested), "properties": property_table.table(tested)}
    parts = ours | {"deviations": deviations.table()} | _saved()
    for name, text in parts.items():
        if write and not found:
            found += put(name, text)
        elif check:
            found += stale(name, text)
        elif not write:
            print(text, end="\n\n")
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


def _saved() -> dict[str, str]:
    """The tables of releases, from what was saved: to make them anew takes hours. They may be left out."""
    parts = of_releases(compatibility.RESULTS) if compatibility.RESULTS.exists() else {}
    return {name: text for name, text in parts.items() if not isinstance(_place(name), str)}


def of_releases(results: Path) -> dict[str, str]:
    """The parts about releases, by name."""
    found = compatibility.loaded(results)
    return {"compatibility": compatibility_table.table(found), "releases": compatibility_table.summary(found)}


def markers(name: str) -> tuple[str, str]:
    """The lines before and behind a part."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def put(name: str, text: str) -> list[str]:
    """Write a part into its file; what is wrong with the file, if anything is."""
    place = _place(name)
    if isinstance(place, str):
        return [place]
    (before, _, after), (begin, end) = place, markers(name)
    (ROOT / FILES[name]).write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
    return []


def stale(name: str, text: str) -> list[str]:
    """The lines in which a part of a file differs from what it should be."""
    place, file = _place(name), FILES[name]
    if isinstance(place, str):
        return [place]
    old, new = place[1].split("\n"), text.split("\n")
    lines = list(difflib.unified_diff(old, new, file, "now", lineterm="", n=0))
    again = command_line("table", write=True)
    return [f"{file}: the table of {name} is out of date; `{again}` brings it up", *lines] if lines else []


def _place(name: str) -> tuple[str, str, str] | str:
    """The file before, between and behind a part's markers; or what is wrong with it."""
    (first, last), file = markers(name), FILES[name]
    if not (ROOT / file).exists():
        return f"{file}: missing, but should have the table of {name}"
    before, begin, rest = (ROOT / file).read_text(encoding="utf-8").partition(first)
    inside, end, after = rest.partition(last)
    if not (begin and end):
        return f"{file}: no markers, but should have the lines {first} and {last}"
    return before, inside.strip("\n"), after
