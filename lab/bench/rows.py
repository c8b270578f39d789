"""What a bench measured: rows, as a table for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from lab.bench.clock import Times
from statecheck.subject import Subject

_PLAIN_WIDTH = 120


@dataclass(frozen=True)
class Row:
    """What was timed, in microseconds.

    Args:
        about: on what it was timed, by the names of columns.
        times: ours, and the other subject's, if there is one and it has such a function.
        same: whether both came to the same result.
        more: what else was measured, by the names of columns.
    """

    name: str
    about: dict[str, Any]
    times: list[Times]
    same: bool | None = None
    more: dict[str, float | int | None] = field(default_factory=dict)

    @property
    def ours(self) -> Times:
        return self.times[0]

    @property
    def peer(self) -> Times | None:
        return self.times[1] if len(self.times) > 1 else None

    @property
    def ratio(self) -> float | None:
        """How many times as long the peer takes."""
        return None if self.peer is None else self.peer.median / self.ours.median

    @property
    def data(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}


def title_of(subject: Subject | None) -> str | None:
    """A release by its name, a file by its path."""
    if subject is None:
        return None
    return f"{subject.name} {subject.release}" if subject.release else subject.module.__file__


def table(title: str, rows: Sequence[Row], *, quartiles: bool = True) -> Table:
    """A line for each row, with a column for each name that the first row has; the peer's where there is one."""
    title = f"{title}; µs, median{' (quartiles)' * quartiles}"
    made = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    with_peer = any(row.peer is not None for row in rows)
    made.add_column("", no_wrap=True)
    for name in (*rows[0].about, "µs", *["peer", "ratio"] * with_peer, *rows[0].more):
        made.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        sides = (row.ours, row.peer) if with_peer else (row.ours,)
        times = [side if side is None or quartiles else side.median for side in sides]
        ratio = f"{row.ratio:.2f}x" + ", another result" * (row.same is False) if row.peer else None
        cells = (*row.about.values(), *times, *[ratio] * with_peer, *row.more.values())
        made.add_row(row.name, *map(_cell, cells))
    return made


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:,.2f}" if isinstance(value, float) else str(value)


def show(shown: Iterable[Table | str]) -> None:
    """Print it: to the terminal, or to a file as wide as the tables."""
    console = Console()
    console = console if console.is_terminal else Console(width=_PLAIN_WIDTH)
    for part in shown:
        console.print(part, highlight=False, soft_wrap=isinstance(part, str))
        console.print()
