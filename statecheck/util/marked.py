"""Folders that commands have written say so, and pytest does not collect what is in those of reports."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

MARKER = ".statecheck"
"""A file in a folder that a command has written, which says what is in the folder."""
CONFTEST = "conftest.py"
_UNCOLLECTED = '''"""Written by statecheck: pytest collects a file of these reports only where its path is given."""

collect_ignore_glob = ["*"]
'''


def mark(folder: Path, kind: str) -> None:
    """Say what a folder holds, where it can be said."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text(f"{kind}\n", encoding="utf-8")


def mark_reports(folder: Path) -> None:
    """Mark a folder of reports, and keep a plain `pytest` from collecting the tests in them; a user's own file there stays."""
    with suppress(OSError):
        if not (folder / CONFTEST).exists():
            mark(folder, "reports")
            (folder / CONFTEST).write_text(_UNCOLLECTED, encoding="utf-8")
