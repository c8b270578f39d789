"""The picture of block tables over time, and the page that shows it."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statecheck.case.codec import decode, encode
from statecheck.case.timeline import LONG, Arrow, Cell, Moment, Spot, TableRow, Timeline, WrongCell
from statecheck.report.picture import EM, fit, plain, svg

GOLDEN = Path(__file__).with_name("timeline.svg")
NULL = Cell(0, "")
EIGHT = Cell(5, "8 tokens", 8, "r0", published=True)
TEN = Cell(7, "10 tokens", 10, "r0")
BEFORE = TableRow("r0", 0, 1, (NULL, Cell(5, "never written")), writes=(1,))
FORWARD = TableRow("r0", 0, 2, (NULL, EIGHT, TEN), reads=(1,), writes=(2,))
COPIED = TableRow("r0", 0, 2, (NULL, Cell(5, "10 tokens", 10, "r0", wrong=True), TEN))
OTHER = TableRow("r<1>", 1, None, (Cell(9, "a & b", 4, "r<1>"),))
TITLES = ("step 1, before the forward", "step 2, after the forward: r0 drafts 2", "step 2, after the copies")
WRONG = WrongCell(2, "r0", 0, 1, "10 tokens, but should be 8 & no more", origin=(1, "r0", 0, 2))
STORY = Timeline(
    tuple(Moment(title, (row, OTHER)) for title, row in zip(TITLES, (BEFORE, FORWARD, COPIED), strict=True)),
    (Arrow(2, "r0", 0, 2, 1, "1 draft accepted"),),
    WRONG,
)


def parsed(text: str) -> Element:
    """The XML, its tags without their namespaces."""
    root = fromstring(text)  # noqa: S314 -- what we have just written ourselves
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def drawn(timeline: Timeline) -> Element:
    return parsed(svg(timeline))


def groups(root: Element, kind: str) -> list[Element]:
    return [group for group in root.iter("g") if group.get("class") == kind]


def texts(root: Element) -> list[str]:
    return [text.text or "" for text in root.iter("text")]


def of_row(*cells: Cell) -> Timeline:
    return Timeline((Moment("now", (TableRow("r0", 0, None, cells),)),))


def test_the_picture_of_a_story_is_the_one_that_is_kept() -> None:
    """Written anew by `GOLDEN.write_text(svg(STORY))`; to be looked at in a browser."""
    assert svg(STORY) == GOLDEN.read_text(encoding="utf-8").rstrip()


def test_a_cell_says_its_column_block_contents_owner_and_use() -> None:
    cells = [texts(cell) for cell in groups(drawn(STORY), "cell")]
    assert cells[3:6] == [
        ["0", "#0", "null"],
        ["1 RP", "#5", "8 tokens", "r0"],
        ["2 @W", "#7", "10 tokens", "r0"],
    ]


def test_a_wrong_cell_shows_what_the_block_holds_and_in_brackets_what_it_should() -> None:
    root = drawn(of_row(TEN, Cell(2, "6 tokens", 6, "r1", wrong=True, expected="8 tokens r0")))
    wrong = groups(root, "cell")[1]
    assert texts(wrong) == ["1 ✗", "#2", "6 tokens r1", "(8 tokens r0)"]
    assert next(wrong.iter("rect")).get("stroke") == "#d55e00"
    assert "should be 8 tokens r0; wrong" in (wrong.findtext("title") or "")


def test_copies_and_what_is_wrong_stand_in_words_below_their_row() -> None:
    root = drawn(STORY)
    words = {
        kind: [" ".join(texts(group)) for group in groups(root, kind)]
        for kind in ("copy", "finding", "origin")
    }
    assert words == {
        "copy": ["copy 2 → 1: 1 draft accepted"],
        "finding": ["✗ column 1: 10 tokens, but should be 8 & no more"],
        "origin": [f"the wrong bytes come from r0, group 0, column 2: {TITLES[1]}"],
    }


@pytest.mark.parametrize("bad", ["\x00", "\x1b[31m", "\ud800", "\ufffe", "\x0b"], ids=repr)
def test_characters_that_xml_cannot_hold_are_replaced(bad: str) -> None:
    (cell,) = groups(drawn(of_row(Cell(1, f"a{bad}b"))), "cell")
    assert "a\ufffdb" in [re.sub(r"\[31m", "", text) for text in texts(cell)]
    assert plain("tab\t, “quotes” and 漢字\n") == "tab\t, “quotes” and 漢字\n"


def test_an_empty_timeline_and_an_empty_row_have_pictures_too() -> None:
    assert texts(drawn(Timeline(()))) == []
    assert "no blocks" in texts(drawn(of_row()))


def brightness(color: str) -> float:
    """The relative luminance of the contrast rules of the web."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_text_is_readable_on_every_colour() -> None:
    cells = [Cell(1, "x", 1, f"r{owner}") for owner in range(6)]
    root = drawn(of_row(*cells, NULL, Cell(1, "stale"), replace(EIGHT, wrong=True)))
    for cell in groups(root, "cell"):
        behind = brightness(next(cell.iter("rect")).get("fill", ""))
        # The first text stands above the box.
        for text in list(cell.iter("text"))[1:]:
            assert (behind + 0.05) / (brightness(text.get("fill", "")) + 0.05) >= 4.5


def long_row(width: int, **changes: Cell) -> TableRow:
    cells = [Cell(40 + column, "4 tokens", 4, "r0") for column in range(width)]
    for column, cell in changes.items():
        cells[int(column[1:])] = cell
    return TableRow("r0", 0, None, tuple(cells))


LENGTH = 30
CHANGES = Timeline(
    (Moment("one", (long_row(LENGTH),)), Moment("two", (replace(long_row(LENGTH, c7=NULL), run=11),))),
    (Arrow(1, "r0", 0, 3, 20),),
    WrongCell(1, "r0", 0, 26, "wrong", origin=(0, "r0", 0, 24)),
)


def test_a_long_table_leaves_out_the_columns_that_never_change() -> None:
    shown = [(0, 2), (3, 3), (4, 6), (7, 7), (8, 10), (11, 11), (12, 19), (20, 20), (21, 23)]
    assert CHANGES.shown("r0", 0) == (*shown, (24, 24), (25, 25), (26, 26), (27, 29))


def test_columns_that_are_left_out_are_one_cell_with_three_dots() -> None:
    left_out = groups(groups(drawn(CHANGES), "moment")[0], "elided")
    assert [texts(cell) for cell in left_out][:2] == [["0–2", "…"], ["4–6", "…"]]


def test_a_wrong_cell_is_never_left_out_and_a_table_that_is_not_long_is_shown_whole() -> None:
    wrong = long_row(LENGTH, c9=replace(TEN, wrong=True))
    assert (9, 9) in Timeline((Moment("now", (wrong,)),)).shown("r0", 0)
    assert len(groups(drawn(Timeline((Moment("now", (long_row(LONG),)),))), "cell")) == LONG


@pytest.mark.parametrize(
    ("rows", "arrows", "finding", "message"),
    [
        ((TableRow("a", 0, 2, (NULL,)),), (), None, r"^used = \(0, 'a', 0, 2\), but should be a cell"),
        ((TableRow("a", 0, None, (NULL,), reads=(1,)),), (), None, r"^used = "),
        ((TableRow("a", 0, None, (NULL,), writes=(-1,)),), (), None, r"^used = "),
        ((TableRow("a", 0, 0, (NULL,)),), (Arrow(0, "a", 0, 0, 1),), None, r"^arrow = "),
        ((TableRow("a", 0, 0, (NULL,)),), (Arrow(1, "a", 0, 0, 0),), None, r"^arrow = "),
        ((TableRow("a", 0, 0, (NULL,)),), (), WrongCell(0, "b", 0, 0, ""), r"^finding = "),
        ((TableRow("a", 0, 0, (NULL,)),), (), WrongCell(0, "a", 0, 0, "", (0, "a", 1, 0)), r"^origin = "),
        ((TableRow("a", 0, 0, (NULL,)),) * 2, (), None, r"^rows = .* once \[moment 0\]"),
    ],
)
def test_a_timeline_that_names_what_is_not_there_is_refused(
    rows: tuple[TableRow, ...], arrows: tuple[Arrow, ...], finding: WrongCell | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Timeline((Moment("now", rows),), arrows, finding)


words = st.text(max_size=24) | st.sampled_from(["8 tokens", "never written", "stale", "r0", "r1", "<&>", ""])
cells_ = st.builds(
    Cell,
    block=st.integers(0, 3) | st.integers(0, 2**63 - 1),
    holds=words,
    tokens=st.none() | st.integers(0, 2**20),
    owner=words,
    published=st.booleans(),
    wrong=st.booleans(),
    expected=words,
)


@st.composite
def table_rows(draw: st.DrawFn, request: str, group: int) -> TableRow:
    cells = draw(
        st.lists(cells_, max_size=4) | st.lists(cells_, min_size=1, max_size=2).map(lambda some: some * 12)
    )
    columns = st.sampled_from(range(len(cells))) if cells else st.nothing()
    used = st.lists(columns, max_size=3).map(tuple) if cells else st.just(())
    run = draw(st.none() | columns)
    return TableRow(request, group, run, tuple(cells), draw(used), draw(used))


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Timelines of any words, with arrows between any cells and a finding."""
    names = draw(st.lists(st.tuples(words, st.integers(0, 2)), min_size=1, max_size=3, unique=True))
    rows = st.tuples(*(table_rows(*name) for name in names))
    moments = tuple(draw(st.lists(st.builds(Moment, words, rows), min_size=1, max_size=3)))
    spots = [
        (number, row.request, row.group, column)
        for number, moment in enumerate(moments)
        for row in moment.rows
        for column in range(len(row.cells))
    ]
    if not spots:
        return Timeline(moments)
    arrows = draw(
        st.lists(st.sampled_from(spots).flatmap(lambda spot: arrows_from(moments, spot)), max_size=4)
    )
    origin = draw(st.none() | st.sampled_from(spots))
    finding = draw(st.none() | st.builds(finding_at, st.sampled_from(spots), words, st.just(origin)))
    return Timeline(moments, tuple(arrows), finding)


def finding_at(spot: Spot, text: str, origin: Spot | None) -> WrongCell:
    moment, request, group, column = spot
    return WrongCell(moment, request, group, column, text, origin)


def arrows_from(moments: tuple[Moment, ...], spot: Spot) -> st.SearchStrategy[Arrow]:
    number, request, group, source = spot
    (row,) = [row for row in moments[number].rows if (row.request, row.group) == (request, group)]
    targets = st.sampled_from(range(len(row.cells)))
    return st.builds(Arrow, *map(st.just, (number, request, group, source)), targets, words, st.booleans())


@dataclass(frozen=True)
class Box:
    """An area of the picture."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)

    def contains(self, other: Box) -> bool:
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


def area(rectangle: Element) -> Box:
    x, y, width, height = (float(rectangle.get(name, "nan")) for name in ("x", "y", "width", "height"))
    return Box(x, y, x + width, y + height)


def written(text: Element) -> Box:
    """What a monospaced text covers, from the height of capitals to the depth of descenders."""
    x, y, size = (float(text.get(name, "nan")) for name in ("x", "y", "font-size"))
    return Box(x, y - 0.75 * size, x + EM * size * len(text.text or ""), y + 0.2 * size)


@given(timeline=timelines())
@example(timeline=STORY)
@example(timeline=CHANGES)
def test_no_text_runs_over_another_over_the_edge_of_a_cell_or_off_the_sheet(timeline: Timeline) -> None:
    root = drawn(timeline)
    areas = [written(text) for text in root.iter("text")]
    assert not [pair for pair in itertools.combinations(areas, 2) if pair[0].overlaps(pair[1])]
    for cell in groups(root, "cell"):
        box, inside = area(next(cell.iter("rect"))), [*map(written, cell.iter("text"))]
        assert [one for one in areas if box.overlaps(one) and not (one in inside and box.contains(one))] == []
    sheet = Box(*map(float, root.get("viewBox", "").split()))
    assert all(sheet.contains(one) for one in areas)
    assert sheet.right <= 1600


@given(timeline=timelines())
def test_every_timeline_comes_back_from_json_as_it_was(timeline: Timeline) -> None:
    assert repr(decode(encode(timeline))) == repr(timeline)


@given(text=st.text(), room=st.floats(12, 200), size=st.integers(8, 12))
def test_fitted_text_is_as_wide_as_its_room_at_most(text: str, room: float, size: int) -> None:
    assert len(fit(text, room, size)) * size * EM <= room
    assert fit("8 tokens", 80, 10) == "8 tokens"
