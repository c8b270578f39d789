"""The block tables of a few requests over several steps, as plain values that a report shows as tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Spot = tuple[int, str, int, int]
"""A cell's place: moment, request, group, column."""
LONG = 14
"""Columns up to which a table is shown whole."""


@dataclass(frozen=True)
class Cell:
    """One column of a block table.

    Args:
        block: the physical id; 0 is the null block.
        holds: in short words what the block holds, such as "8 tokens", "never written", "stale".
        tokens: length of the prefix whose state the block holds, where it holds one.
        owner: the request whose prefix that is.
        published: the prefix cache may hand the block to others.
        wrong: the block does not hold what it should.
        expected: what it should hold, in words as `holds`, where it holds something else.
    """

    block: int
    holds: str
    tokens: int | None = None
    owner: str = ""
    published: bool = False
    wrong: bool = False
    expected: str = ""


@dataclass(frozen=True)
class TableRow:
    """The block table of one request and group; `run`, `reads`, `writes` are columns that this step uses."""

    request: str
    group: int
    run: int | None
    cells: tuple[Cell, ...]
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()

    @property
    def used(self) -> frozenset[int]:
        return frozenset((*self.reads, *self.writes, *(() if self.run is None else (self.run,))))


@dataclass(frozen=True)
class Moment:
    """All block tables at one point in time, such as "step 3, before the forward"."""

    title: str
    rows: tuple[TableRow, ...]

    @property
    def when(self) -> str:
        """As much of the title as says when."""
        return self.title.partition(":")[0]


@dataclass(frozen=True)
class WrongCell:
    """The cell that is wrong, and what is wrong with it."""

    moment: int
    request: str
    group: int
    column: int
    text: str

    @property
    def spot(self) -> Spot:
        return self.moment, self.request, self.group, self.column


@dataclass(frozen=True)
class Timeline:
    """Block tables from moment to moment, and what is wrong at the end.

    Raises:
        ValueError: a moment has two rows of one request and group, or the finding or a row names a cell that
            is not there.
    """

    moments: tuple[Moment, ...]
    finding: WrongCell | None = None

    def __post_init__(self) -> None:
        for number, moment in enumerate(self.moments):
            names = [(row.request, row.group) for row in moment.rows]
            if len(set(names)) < len(names):
                rule = "but should have each request and group once"
                raise ValueError(f"rows = {names}, {rule} [moment {number}]")
        cells = set(self._spots())
        for place, spot in self._named():
            if spot not in cells:
                raise ValueError(f"{place} = {spot}, but should be a cell of the moments [Timeline]")

    def _spots(self) -> Iterator[Spot]:
        for number, moment in enumerate(self.moments):
            for row in moment.rows:
                yield from ((number, row.request, row.group, column) for column in range(len(row.cells)))

    def _named(self) -> Iterator[tuple[str, Spot]]:
        for number, moment in enumerate(self.moments):
            for row in moment.rows:
                yield from (("used", (number, row.request, row.group, column)) for column in row.used)
        if self.finding is not None:
            yield "finding", self.finding.spot

    @property
    def rows(self) -> tuple[TableRow, ...]:
        return tuple(row for moment in self.moments for row in moment.rows)

    @property
    def columns(self) -> list[int]:
        """The columns to show: all, or of tables that are wider than `LONG` those that change, are used or are wrong."""
        width = max((len(row.cells) for row in self.rows), default=0)
        if width <= LONG:
            return list(range(width))
        busy = {spot[3] for _, spot in self._named()}
        first = {(row.request, row.group): row.cells for row in reversed(self.rows)}
        for row in self.rows:
            before = first[row.request, row.group]
            busy |= {at for at in range(width) if row.cells[at : at + 1] != before[at : at + 1]}
            busy |= {at for at, cell in enumerate(row.cells) if cell.wrong}
        return sorted(busy)
