"""A working tree of a project: its version and its requirements. Nothing is written to it."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

from statecheck.releases.project import Project
from statecheck.releases.requirements import Needed, needed, plain

UNKNOWN = "999"
_FILES = ("requirements/common.txt", "requirements-common.txt", "requirements.txt")
_GIT_SECONDS = 20


def version_of(folder: Path, project: Project) -> str:
    """The version that the tree was built as, that of its latest tag, or 999: newer than all."""
    return _built(folder / project.package) or _described(folder) or UNKNOWN


def requirements_of(folder: Path, project: Project) -> Needed:
    """What it says that it requires; anything that importing may take where it does not say so."""
    for metadata in folder.glob(f"{project.package}-*.dist-info"):
        return needed(importlib.metadata.Distribution.at(metadata).requires or ())
    for name in _FILES:
        if (folder / name).is_file():
            return needed(_lines(folder / name))
    described = folder / "pyproject.toml"
    if described.is_file():
        listed = tomllib.loads(described.read_text(encoding="utf-8")).get("project", {})
        if "dependencies" in listed:
            return needed(listed["dependencies"])
    return plain(project.light)


def _built(package: Path) -> str | None:
    path = package / "_version.py"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(r"^__version__ = .*?['\"](\d[\w.+]*)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _described(folder: Path) -> str | None:
    """The version of the latest tag."""
    # A folder inside another repository has that repository's tags.
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--tags"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"v?(\d+(?:\.\d+)+(?:rc\d+)?)", done.stdout)
    return found[1] if found else None


def _lines(path: Path) -> list[str]:
    """Those of a requirements file, with those of the files that it refers to."""
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        other = re.match(r"(?:-r|--requirement)[ =]?\s*(\S+)", line)
        if other and (path.parent / other[1]).is_file():
            lines += _lines(path.parent / other[1])
        else:
            lines.append(line)
    return lines
