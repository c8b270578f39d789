"""What a bench prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

_PLAIN_WIDTH = 120


def console() -> Console:
    """Of the terminal, or of a file as wide as the tables."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=_PLAIN_WIDTH)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Table:
    """A table whose first `left` columns are words, and all others numbers."""
    made = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number < left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made
