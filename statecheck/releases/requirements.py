"""What a release requires, and which of it an environment gets: what importing takes, and nothing for GPUs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from statecheck.releases.project import Project

_LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
HEAVY = tuple(_LISTS["heavy"])

Needed = Mapping[str, Requirement]


def needed(lines: Iterable[str]) -> Needed:
    """The requirements that hold on this machine, by the distribution's name."""
    found: dict[str, Requirement] = {}
    for line in lines:
        one = _read(line)
        if one is not None and (one.marker is None or one.marker.evaluate({"extra": ""})):
            _add(found, one)
    return found


def plain(names: Iterable[str]) -> Needed:
    """Any version of each."""
    return {canonicalize_name(name): Requirement(name) for name in names}


def light(required: Needed, project: Project) -> list[str]:
    """What to install first: the project's light ones among what is required, with the versions asked for."""
    return [_written(required[name]) for name in project.light if name in required] + list(project.unsaid)


def all_but_heavy(required: Needed) -> list[str]:
    """Everything that is required, without what an environment never gets."""
    return [_written(one) for name, one in required.items() if not is_heavy(name)]


def is_heavy(name: str) -> bool:
    return any(fnmatchcase(canonicalize_name(name), pattern) for pattern in HEAVY)


def _read(line: str) -> Requirement | None:
    """A line of metadata or of a requirements file; options and addresses say nothing to us."""
    try:
        return Requirement(line.partition(" #")[0].strip())
    except InvalidRequirement:
        return None


def _add(found: dict[str, Requirement], one: Requirement) -> None:
    name = canonicalize_name(one.name)
    if name in found:
        found[name].specifier &= one.specifier
    else:
        found[name] = one


def _written(one: Requirement) -> str:
    # Extras bring servers and command lines.
    return f"{canonicalize_name(one.name)}{one.specifier}"
