"""`python -m lab.conformance FIRST SECOND`: whether two results of `statecheck conform` say the same.

A result is a file `conformance.json`, or a folder with one, such as that of a campaign. Verdict, counts, what became of expected failures, and status,
examples and compared examples of each property are compared; versions, dates and durations are not, and are printed where they differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULT = "conformance.json"
_SAME = ("profile", "profile_version", "subject", "release", "verdict", "counts")
_MAY_DIFFER = ("suite", "device", "date")


def read_result(path: Path) -> dict[str, Any]:
    """The result in a file, or in a folder.

    Raises:
        OSError: there is none.
        ValueError: it is no JSON.
    """
    file = path / RESULT if path.is_dir() else path
    return dict(json.loads(file.read_text(encoding="utf-8")))


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """A line for each thing in which two results of the same versions should not differ."""
    for name in _SAME:
        if first.get(name) != second.get(name):
            yield f"{name}: {first.get(name)} and {second.get(name)}"
    pairs = ((first["properties"], second["properties"]), (_statuses(first), _statuses(second)))
    for one, other in pairs:
        for name in sorted({*one, *other}):
            if one.get(name) != other.get(name):
                yield f"{name}: {one.get(name, 'missing')} and {other.get(name, 'missing')}"


def _statuses(result: Mapping[str, Any]) -> dict[str, str]:
    """What became of each expected failure. How many examples showed it may depend on what lay in memory that a library reads."""
    return {one["id"]: one["status"] for one in result["expected_failures"]}


def surroundings(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """A line for each version, date or machine that differs."""
    for name in _MAY_DIFFER:
        if first.get(name) != second.get(name):
            yield f"{name}: {first.get(name)} and {second.get(name)}"
    one, other = first["environment"], second["environment"]
    for name in sorted({*one, *other}):
        if one.get(name) != other.get(name):
            yield f"{name}: {one.get(name)} and {other.get(name)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what differs; 0 if nothing does, 1 if something does."""
    parser = argparse.ArgumentParser(prog="python -m lab.conformance", description=__doc__)
    parser.add_argument("first", type=Path, help="a conformance.json, or a folder with one")
    parser.add_argument("second", type=Path, help="another one")
    options = parser.parse_args(arguments)
    first, second = read_result(options.first), read_result(options.second)
    for line in surroundings(first, second):
        print(f"  {line}")
    found = list(differences(first, second))
    print("\n".join(found) or f"the same: {first['verdict']}, {len(first['properties'])} properties")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
