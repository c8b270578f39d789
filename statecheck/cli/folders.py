"""Folders that commands write into: new, empty, or written by the same command before."""

from __future__ import annotations

from pathlib import Path

from statecheck.data.marked import MARKER
from statecheck.text.command_lines import near

_UNMARKED = {
    "bench": ("align.json",),
    "compatibility": ("*/campaign.json",),
    "corpus": ("*.json",),
    "replay-trace": ("replay.json", "violation.json"),
    "reports": ("campaigns", "campaign.json", "known", "pending", "????-??-??-*"),
}
"""By kind, files of which one says as much, since there are folders older than the marker."""
_NOBODYS = ("lost+found", "README.md")


def require_own(folder: Path, kind: str, argument: str, command: str) -> None:
    """Refuse a folder that holds something else, before anything is written into it.

    Args:
        kind: what the folder is to hold, such as "reports".
        argument: of the command, that names the folder.

    Raises:
        ValueError: it is no folder, or it has something in it that is not of that kind.
    """
    if not str(folder).isprintable():
        rule = "a path without control characters, which no record of a campaign may have"
        raise ValueError(f"{argument} = {str(folder)!r}, but should be {rule} [{command}]")
    rule = f"a new or empty folder, or one of {kind}"
    try:
        there = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        there = []
    except NotADirectoryError as error:
        raise ValueError(f"{argument} = {near(folder)!r}, but should be {rule} [{command}]") from error
    except OSError:
        # Whether it can be read or written is another question, which comes up later.
        return
    others = [name for name in there if not name.startswith(".") and name not in _NOBODYS]
    if others and _kind(folder) != kind and not any(any(folder.glob(name)) for name in _UNMARKED[kind]):
        more = ", …" if len(others) > 3 else ""
        seen = f"which holds {', '.join(others[:3])}{more}"
        raise ValueError(f"{argument} = {near(folder)!r}, {seen}, but should be {rule} [{command}]")


def _kind(folder: Path) -> str:
    try:
        return (folder / MARKER).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
