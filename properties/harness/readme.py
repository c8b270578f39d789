"""The generated parts of the README: each stands between two markers, and CI fails where one is out of date."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from properties.harness import compatibility, compatibility_table, deviations, symbols
from properties.harness.campaign.command_lines import command_line
from properties.harness.docs import citations
from properties.harness.registry import load_properties
from properties.subjects import load

README = Path(__file__).resolve().parents[2] / "README.md"


def run_table(write: bool, check: bool) -> int:
    """Print the generated parts, put them into the README, or hold it and what is cited against them.

    Returns:
        1 if a symbol lacks a room, or the README is out of date or has no place for a part, or a citation or link leads
        nowhere.
    """
    tested = load_properties()
    found = symbols.complaints(load("impl"), tested) + (citations.complaints() if check else [])
    parts = {"symbols": symbols.table(tested), "deviations": deviations.table()} | _saved()
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
    """The table of releases, from what was saved: to make it anew takes hours. A README need not have it."""
    if not compatibility.RESULTS.exists() or isinstance(_place("compatibility"), str):
        return {}
    return {"compatibility": compatibility_table.table(compatibility.loaded(compatibility.RESULTS))}


def markers(name: str) -> tuple[str, str]:
    """The lines before and behind a part."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def put(name: str, text: str) -> list[str]:
    """Write a part into the README; what is wrong with the README, if anything is."""
    place = _place(name)
    if isinstance(place, str):
        return [place]
    (before, _, after), (begin, end) = place, markers(name)
    README.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
    return []


def stale(name: str, text: str) -> list[str]:
    """The lines in which a part of the README differs from what it should be."""
    place = _place(name)
    if isinstance(place, str):
        return [place]
    old, new = place[1].split("\n"), text.split("\n")
    lines = list(difflib.unified_diff(old, new, "README.md", "now", lineterm="", n=0))
    again = command_line("table", write=True)
    return [f"README.md: the table of {name} is out of date; `{again}` brings it up", *lines] if lines else []


def _place(name: str) -> tuple[str, str, str] | str:
    """The README before, between and behind a part's markers; or what is wrong with it."""
    first, last = markers(name)
    if not README.exists():
        return f"README.md: missing, but should have the table of {name}"
    before, begin, rest = README.read_text(encoding="utf-8").partition(first)
    inside, end, after = rest.partition(last)
    if not (begin and end):
        return f"README.md: no markers, but should have the lines {first} and {last}"
    return before, inside.strip("\n"), after
