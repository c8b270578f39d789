"""A `Timeline` as tables in Markdown, one for each moment, which an issue tracker shows as a page does.

A row is the block table of a request and a group; below the table, a line says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from statecheck.case.timeline import Moment, TableRow, Timeline
from statecheck.util.markdown import escaped, table

LEGEND = (
    "3: what block 3 holds; @: the request runs in this column; R, W: read, written in this step; P: published in the prefix cache; "
    "**✗**: wrong; ( ): what the block should hold; columns that never change are left out of wide tables"
)
_NAME, _CELL, _SENTENCE = 40, 80, 400
"""Characters of what stands in a table and below it."""


def block_tables(timeline: Timeline) -> dict[int, str]:
    """Markdown for each moment that has tables, by the moment's number."""
    moments = enumerate(timeline.moments)
    return {number: "\n".join(_moment(timeline, number, one)) for number, one in moments if one.rows}


def _moment(timeline: Timeline, number: int, moment: Moment) -> Iterator[str]:
    shown = [column for column in timeline.columns if column < max(len(row.cells) for row in moment.rows)]
    yield f"**{escaped(moment.when, _SENTENCE)}**\n"
    rows = ([_named(row), *(_cell(row, column) for column in shown)] for row in moment.rows)
    yield from table(("", *map(str, shown)), rows)
    sentences = [*_wrong(timeline, number)]
    yield from ("", *(f"- {escaped(one, _SENTENCE)}" for one in sentences)) if sentences else ()


def _named(row: TableRow) -> str:
    return escaped(f"{row.request}, group {row.group}", _NAME)


def _cell(row: TableRow, column: int) -> str:
    if column >= len(row.cells):
        return ""
    cell = row.cells[column]
    marks = {"@": column == row.run, "R": column in row.reads, "W": column in row.writes, "P": cell.published}
    words = (
        f"{cell.block}:" if cell.block else "null",
        cell.holds,
        cell.owner,
        f"({cell.expected})" if cell.expected else "",
        "".join(mark for mark, holds in marks.items() if holds),
    )
    text = escaped(" ".join(filter(None, words)), _CELL)
    return f"**✗ {text}**" if cell.wrong else text


def _wrong(timeline: Timeline, number: int) -> Iterator[str]:
    finding = timeline.finding
    if finding is None or finding.moment != number:
        return
    yield f"✗ {finding.request}, group {finding.group}, column {finding.column}: {finding.text}"
