"""What a bench prints and saves."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from statecheck import rooms
from statecheck.report.environment import revision

_PLAIN_WIDTH = 120


def console() -> Console:
    """Of the terminal, or of a file as wide as the tables."""
    found = Console()
    return found if found.is_terminal else Console(width=_PLAIN_WIDTH)


def environment() -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "triton": _triton(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "revision": revision(rooms.home()),
    }


def _triton() -> str | None:
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


def save(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Table:
    """A table whose first `left` columns are words, and all others numbers."""
    made = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number < left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made
