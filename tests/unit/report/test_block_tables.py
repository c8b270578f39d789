"""Block tables over time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statecheck.case.case import decode, encode
from statecheck.case.timeline import LONG, Cell, Moment, TableRow, Timeline, WrongCell
from statecheck.report.scenario_timeline import block_tables

NULL = Cell(0, "")
EIGHT = Cell(5, "8 tokens", 8, "r0", published=True)
TEN = Cell(7, "10 tokens", 10, "r0")
BEFORE = TableRow("r0", 0, 1, (NULL, Cell(5, "never written")), writes=(1,))
FORWARD = TableRow("r0", 0, 2, (NULL, EIGHT, TEN), reads=(1,), writes=(2,))
COPIED = TableRow("r0", 0, 2, (NULL, Cell(5, "10 tokens", 10, "r0", wrong=True), TEN))
OTHER = TableRow("r<1>", 1, None, (Cell(9, "a & b", 4, "r<1>"),))
TITLES = ("step 1, before the forward", "step 2, after the forward: r0 drafts 2", "step 2, after the copies")
WRONG = WrongCell(2, "r0", 0, 1, "10 tokens, but should be 8 & no more")
STORY = Timeline(
    tuple(Moment(title, (row, OTHER)) for title, row in zip(TITLES, (BEFORE, FORWARD, COPIED), strict=True)),
    WRONG,
)


def of_row(*cells: Cell) -> Timeline:
    return Timeline((Moment("now", (TableRow("r0", 0, None, cells),)),))


TABLES = {
    0: """**step 1, before the forward**

|  | 0 | 1 |
|---|---|---|
| r0, group 0 | null | 5: never written @W |
| r\\<1\\>, group 1 | 9: a & b r\\<1\\> |  |""",
    2: """**step 2, after the copies**

|  | 0 | 1 | 2 |
|---|---|---|---|
| r0, group 0 | null | **✗ 5: 10 tokens r0** | 7: 10 tokens r0 @ |
| r\\<1\\>, group 1 | 9: a & b r\\<1\\> |  |  |

- ✗ r0, group 0, column 1: 10 tokens, but should be 8 & no more""",
}


@pytest.mark.parametrize(("moment", "text"), TABLES.items())
def test_a_moment_is_a_table_with_what_is_wrong_below(moment: int, text: str) -> None:
    assert block_tables(STORY)[moment] == text


def test_a_wrong_cell_shows_in_brackets_what_the_block_should_hold() -> None:
    wrong = of_row(TEN, Cell(2, "6 tokens", 6, "r1", published=True, wrong=True, expected="8 tokens r0"))
    assert "**✗ 2: 6 tokens r1 (8 tokens r0) P**" in block_tables(wrong)[0]


def test_an_empty_timeline_and_an_empty_row_have_tables_too() -> None:
    assert block_tables(Timeline(())) == {}
    assert "| r0, group 0 |" in block_tables(of_row())[0]


def long_row(width: int, **changes: Cell) -> TableRow:
    cells = [Cell(40 + column, "4 tokens", 4, "r0") for column in range(width)]
    for column, cell in changes.items():
        cells[int(column[1:])] = cell
    return TableRow("r0", 0, None, tuple(cells))


LENGTH = 30
CHANGES = Timeline(
    (Moment("one", (long_row(LENGTH),)), Moment("two", (replace(long_row(LENGTH, c7=NULL), run=11),))),
    WrongCell(1, "r0", 0, 26, "wrong"),
)


def test_a_long_table_leaves_out_the_columns_that_never_change() -> None:
    assert CHANGES.columns == [7, 11, 26]
    head, _, row = block_tables(CHANGES)[0].splitlines()[2:5]
    assert head == "|  | 7 | 11 | 26 |"
    assert row.startswith("| r0, group 0 | 47: 4 tokens r0 | 51: 4 tokens r0 |")


def test_a_wrong_cell_is_never_left_out_and_a_table_that_is_not_long_is_shown_whole() -> None:
    wrong = long_row(LENGTH, c9=replace(TEN, wrong=True))
    assert Timeline((Moment("now", (wrong,)),)).columns == [9]
    assert len(Timeline((Moment("now", (long_row(LONG),)),)).columns) == LONG


@pytest.mark.parametrize(
    ("rows", "finding", "message"),
    [
        ((TableRow("a", 0, 2, (NULL,)),), None, r"^used = \(0, 'a', 0, 2\), but should be a cell"),
        ((TableRow("a", 0, None, (NULL,), reads=(1,)),), None, r"^used = "),
        ((TableRow("a", 0, None, (NULL,), writes=(-1,)),), None, r"^used = "),
        ((TableRow("a", 0, 0, (NULL,)),), WrongCell(0, "b", 0, 0, ""), r"^finding = "),
        ((TableRow("a", 0, 0, (NULL,)),) * 2, None, r"^rows = .* once \[moment 0\]"),
    ],
)
def test_a_timeline_that_names_what_is_not_there_is_refused(
    rows: tuple[TableRow, ...], finding: WrongCell | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Timeline((Moment("now", rows),), finding)


@pytest.mark.parametrize("timeline", [STORY, CHANGES], ids=["story", "changes"])
def test_a_timeline_comes_back_from_json_as_it_was(timeline: Timeline) -> None:
    assert decode(encode(timeline)) == timeline
