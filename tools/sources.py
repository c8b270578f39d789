"""The repository's Python files, in a checkout and in an archive without git."""

from __future__ import annotations

from tools.docs.citations import FOLDERS, ROOT


def sources() -> list[str]:
    """Their paths in the repository."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)
