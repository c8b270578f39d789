"""The generated parts of README and docs/: each stands between two markers, and CI fails where one is out of date."""

from __future__ import annotations

import sys

from lab.compatibility.record import loaded, results_of
from lab.compatibility.table import FILES as OF_RELEASES
from lab.compatibility.table import parts as parts_of_releases
from lab.docs import citations, kernel_operations, property_table, symbols
from lab.marked_parts import MarkedPart
from lab.sources import ROOT
from statecheck.execution.registry import load_properties
from statecheck.subject import load
from statecheck.subject.loading import PROJECTS
from statecheck.util.command_lines import python

FILES = {
    "symbols": "docs/symbols.md",
    "properties": "docs/properties.md",
    "kernel-operations": "docs/kernel-operations.md",
    **OF_RELEASES,
}
"""Where each part stands, by its name."""


def run_table(write: bool, check: bool) -> int:
    """Print the generated parts, put them into their files, or hold these and what is cited against them.

    Returns:
        1 if a symbol lacks a room, or a file is out of date or has no place for a part, or a citation or link leads nowhere.
    """
    tested = load_properties()
    complaints = symbols.complaints(load("impl"), tested) + (citations.complaints() if check else [])
    parts = {
        "symbols": symbols.table(tested),
        "properties": property_table.table(tested),
        "kernel-operations": kernel_operations.table(),
    } | _saved()
    for name, text in parts.items():
        if write and not complaints:
            complaints += part(name).write(text)
        elif check:
            complaints += part(name).differences(text, f"{python()} -m lab.docs --write")
        elif not write:
            print(text, end="\n\n")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def _saved() -> dict[str, str]:
    """The tables of releases, from what was saved: to make them anew takes hours. They may be left out."""
    kept = {project: results_of(project) for project in PROJECTS.values()}
    parts = {
        name: text
        for project, path in kept.items()
        if path.exists()
        for name, text in parts_of_releases(loaded(path), project).items()
    }
    return {name: text for name, text in parts.items() if not part(name).complaint}


def part(name: str) -> MarkedPart:
    """Where the part of that name stands."""
    return MarkedPart(name, ROOT, FILES[name])
