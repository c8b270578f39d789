"""The picture of block tables over time, and the page that shows it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from properties.harness.case import Case
from properties.harness.case.codec import decode, encode
from properties.harness.case.failure import stated
from properties.harness.case.timeline import LONG, Arrow, Cell, Moment, Spot, TableRow, Timeline, WrongCell
from properties.harness.report.markdown import write_report
from properties.harness.report.picture import EM, fit, mix, plain, svg
from properties.meta.breakages.broken import a_case

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


def titles(root: Element, kind: str) -> list[str]:
    return [group.findtext("title") or "" for group in groups(root, kind)]


def numbers(element: Element, *names: str) -> Iterator[float]:
    return (float(element.get(name, "nan")) for name in names)


def area(rectangle: Element) -> Box:
    x, y, width, height = numbers(rectangle, "x", "y", "width", "height")
    return Box(x, y, x + width, y + height)


def written(text: Element) -> Box:
    """What a monospaced text covers, from the height of capitals to the depth of descenders."""
    x, y, size = numbers(text, "x", "y", "font-size")
    return Box(x, y - 0.75 * size, x + EM * size * len(text.text or ""), y + 0.2 * size)


def sheet(root: Element) -> Box:
    return Box(*map(float, root.get("viewBox", "").split()))


def points(line: Element) -> list[tuple[float, float]]:
    return [
        (float(x), float(y)) for x, _, y in (one.partition(",") for one in line.get("points", "").split())
    ]


def test_every_moment_has_its_title_and_its_rows() -> None:
    moments = groups(drawn(STORY), "moment")
    assert [texts(moment)[0] for moment in moments] == list(TITLES)
    assert [titles(moment, "row") for moment in moments] == [["r0, group 0", "r<1>, group 1"]] * 3


def test_a_cell_says_its_column_block_contents_owner_and_use() -> None:
    cells = [texts(cell) for cell in groups(drawn(STORY), "cell")]
    assert sorted(cells[5]) == sorted(["W", "2", "#7", "10 tokens", "r0"])
    assert sorted(cells[3]) == sorted(["0", "#0", "null"])


def test_a_pointer_over_a_cell_shows_all_of_it_in_words() -> None:
    shown = titles(drawn(STORY), "cell")
    assert (
        shown[4] == "r0, group 0, column 1: block 5; 8 tokens; tokens [0, 8); prefix of r0; published; read"
    )
    assert shown[8] == (
        "r0, group 0, column 1: block 5; 10 tokens; tokens [0, 10); prefix of r0; wrong; 10 tokens, but should be 8 & no more"
    )


def test_markup_in_names_is_text_in_the_picture() -> None:
    assert "r&lt;1&gt;" in svg(STORY)
    assert {"r<1>", "a & b"} <= set(texts(drawn(STORY)))


@pytest.mark.parametrize("bad", ["\x00", "\x1b[31m", "\ud800", "\ufffe", "\x0b"], ids=repr)
def test_characters_that_xml_cannot_hold_are_replaced(bad: str) -> None:
    (cell,) = groups(drawn(of_row(Cell(1, f"a{bad}b"))), "cell")
    assert "a\ufffdb" in [re.sub(r"\[31m", "", text) for text in texts(cell)]


def of_row(*cells: Cell, **changes: object) -> Timeline:
    """One moment of one row."""
    return Timeline((Moment("now", (replace(TableRow("r0", 0, None, cells), **changes),)),))  # type: ignore[arg-type]


def test_an_empty_timeline_and_an_empty_row_have_pictures_too() -> None:
    assert texts(drawn(Timeline(()))) == []
    assert "no blocks" in texts(drawn(of_row()))


def boxes(timeline: Timeline) -> list[dict[str, str]]:
    return [next(cell.iter("rect")).attrib for cell in groups(drawn(timeline), "cell")]


def test_more_tokens_of_one_owner_are_a_darker_shade_of_one_hue() -> None:
    few, many, other = (
        one["fill"] for one in boxes(of_row(*(Cell(1, "", n, o) for n, o in [(1, "a"), (9, "a"), (9, "b")])))
    )
    assert brightness(many) < brightness(few)
    assert other not in (few, many)


def brightness(color: str) -> float:
    """The relative luminance of the contrast rules of the web."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrasts(root: Element) -> Iterator[float]:
    """How each text of a cell stands out against what is behind it; at least 4.5 is readable."""
    for cell in groups(root, "cell"):
        box = next(cell.iter("rect"))
        for text in cell.iter("text"):
            inside = area(box).contains(written(text))
            behind = box.get("fill", "") if inside else "#ffffff"
            shades = sorted(brightness(color) for color in (behind, text.get("fill", "")))
            yield (shades[1] + 0.05) / (shades[0] + 0.05)


def test_text_is_readable_on_every_shade_of_every_hue() -> None:
    cells = [Cell(1, "x", tokens, f"r{owner}") for owner in range(6) for tokens in (0, 50, 100)]
    cells += [NULL, Cell(1, "stale"), replace(EIGHT, wrong=True)]
    root = drawn(of_row(*cells, reads=tuple(range(len(cells)))))
    assert len(groups(root, "cell")) == len(cells)
    assert min(contrasts(root)) >= 4.5


def test_published_cells_have_a_thick_border_and_a_lock() -> None:
    usual, published = groups(drawn(of_row(TEN, EIGHT)), "cell")
    assert (len(list(usual.iter("path"))), len(list(published.iter("path")))) == (0, 1)
    assert [box["stroke-width"] for box in boxes(of_row(TEN, EIGHT))] == ["1", "3"]


def test_the_null_block_is_pale() -> None:
    null, stale, full = (brightness(box["fill"]) for box in boxes(of_row(NULL, Cell(1, "stale"), TEN)))
    assert null > max(stale, full)


def test_a_triangle_stands_over_the_running_column() -> None:
    first, second = groups(drawn(of_row(TEN, TEN, run=1)), "cell")
    (triangle,) = second.iter("polygon")
    assert not list(first.iter("polygon"))
    assert max(y for _, y in points(triangle)) < area(next(second.iter("rect"))).top


def test_reads_and_writes_are_marked() -> None:
    cells = groups(drawn(of_row(TEN, TEN, TEN, reads=(0, 2), writes=(1, 2))), "cell")
    assert [texts(cell)[0] for cell in cells] == ["R", "W", "RW"]


def box_of(root: Element, moment: int, column: int, row: int = 0) -> Box:
    line = groups(groups(root, "moment")[moment], "row")[row]
    return area(next(groups(line, "cell")[column].iter("rect")))


def test_an_arrow_leads_from_the_copied_column_to_the_one_copied_to() -> None:
    root = drawn(STORY)
    (arrow,) = groups(root, "arrow")
    assert texts(arrow) == ["2 → 1: 1 draft accepted"]
    assert leads(next(arrow.iter("polyline")), box_of(root, 2, 2), box_of(root, 2, 1))


def leads(line: Element, source: Box, target: Box) -> bool:
    """Whether `line` starts just below one box and ends just below the other."""
    ends = points(line)[0], points(line)[-1]
    near = (Box(x, y - 2, x, y - 2) for x, y in ends)
    return all(box.contains(point) for box, point in zip((source, target), near, strict=True))


def test_the_wrong_cell_is_red_and_says_so_without_colour() -> None:
    root = drawn(STORY)
    red = [cell for cell in groups(root, "cell") if next(cell.iter("rect")).get("stroke") == "#d55e00"]
    assert ["1 ✗" in texts(cell) for cell in red] == [True]
    assert texts(groups(root, "finding")[0]) == ["✗ column 1: 10 tokens, but should be 8 & no more"]


def test_a_dotted_line_leads_from_where_the_wrong_bytes_came_from() -> None:
    root = drawn(STORY)
    (line,) = groups(root, "origin")[0].iter("polyline")
    assert (line.get("stroke"), line.get("stroke-dasharray")) == ("#d55e00", "1 4")
    assert leads(line, box_of(root, 1, 2), box_of(root, 2, 1))


def missing_copy() -> Element:
    """A copy that did not arrive."""
    cells = (
        Cell(1, "8 tokens", 8, "r0"),
        Cell(2, "6 tokens", 6, "r1", wrong=True, expected="8 tokens r0"),
    )
    moment = Moment("step 1", (TableRow("r0", 0, 1, cells),))
    return drawn(Timeline((moment,), (Arrow(0, "r0", 0, 0, 1, "did not arrive", arrived=False),)))


def test_a_wrong_cell_shows_what_the_block_holds_and_in_brackets_what_it_should() -> None:
    root = missing_copy()
    (wrong,) = [cell for cell in groups(root, "cell") if "#2" in texts(cell)]
    assert texts(wrong) == ["1 ✗", "#2", "6 tokens r1", "(8 tokens r0)"]
    assert "should be 8 tokens r0; wrong" in titles(root, "cell")[1]
    assert "what the block should hold" in texts(groups(root, "legend")[0])


def test_a_copy_that_did_not_arrive_is_dashed_and_says_so() -> None:
    root = missing_copy()
    (arrow,) = groups(root, "arrow")
    assert next(arrow.iter("polyline")).get("stroke-dasharray") == "5 3"
    assert texts(arrow) == ["0 → 1: did not arrive"]
    legend = texts(groups(root, "legend")[0])
    assert ("copy that did not arrive" in legend, "copy" in legend) == (True, False)


def test_the_legend_explains_what_occurs() -> None:
    (legend,) = groups(drawn(STORY), "legend")
    assert texts(legend) == [
        *("prefix of r<1>", "prefix of r0", "darker: more tokens", "no request's prefix", "null block"),
        *("published in the prefix cache", "column in which the request runs", "R", "read in this step"),
        *("W", "written in this step", "copy", "✗", "wrong", "where the wrong bytes came from"),
    ]


def test_the_legend_does_not_explain_what_does_not_occur() -> None:
    (legend,) = groups(drawn(of_row(TEN)), "legend")
    assert texts(legend) == ["prefix of r0", "darker: more tokens"]


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
    assert titles(drawn(CHANGES), "elided")[0] == "columns 0 to 2 never change"
    assert "columns that never change" in texts(groups(drawn(CHANGES), "legend")[0])


def test_a_wrong_cell_is_never_left_out() -> None:
    wrong = long_row(LENGTH, c9=replace(TEN, wrong=True))
    assert (9, 9) in Timeline((Moment("now", (wrong,)),)).shown("r0", 0)


def test_a_table_that_is_not_long_is_shown_whole() -> None:
    assert len(groups(drawn(Timeline((Moment("now", (long_row(LONG),)),))), "cell")) == LONG


def test_a_row_that_is_too_wide_goes_on_below() -> None:
    busy = replace(long_row(LENGTH), reads=tuple(range(LENGTH)))
    tops = [area(next(cell.iter("rect"))).top for cell in groups(drawn(of_rows(busy)), "cell")]
    assert [tops.count(top) for top in sorted(set(tops))] == [14, 14, 2]


def of_rows(*rows: TableRow) -> Timeline:
    return Timeline((Moment("now", rows),))


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


def overlapping(root: Element) -> list[tuple[Box, Box]]:
    """Pairs of texts and locks that cover each other."""
    locks = [area(lock) for cell in groups(root, "cell") for lock in list(cell.iter("rect"))[1:]]
    pairs = itertools.combinations([*map(written, root.iter("text")), *locks], 2)
    return [(one, other) for one, other in pairs if one.overlaps(other)]


def straddling(root: Element) -> list[str | None]:
    """Texts that are partly in a cell's box, or in that of another cell."""
    cells = [(set(cell.iter("text")), area(next(cell.iter("rect")))) for cell in groups(root, "cell")]
    return [
        text.text
        for text, box in ((text, written(text)) for text in root.iter("text"))
        for own, cell in cells
        if cell.overlaps(box) and not (text in own and cell.contains(box))
    ]


@pytest.mark.slow
@given(timeline=timelines())
@example(timeline=STORY)
@example(timeline=CHANGES)
def test_no_text_runs_over_another_or_over_the_edge_of_a_cell(timeline: Timeline) -> None:
    root = drawn(timeline)
    assert overlapping(root) == []
    assert straddling(root) == []


@pytest.mark.slow
@given(timeline=timelines())
@example(timeline=STORY)
@example(timeline=CHANGES)
def test_everything_is_on_the_sheet_and_the_sheet_is_not_wide(timeline: Timeline) -> None:
    root = drawn(timeline)
    corners = [Box(x, y, x, y) for line in root.iter("polyline") for x, y in points(line)]
    boxes_ = [area(next(cell.iter("rect"))) for cell in groups(root, "cell")]
    assert all(sheet(root).contains(box) for box in (*corners, *boxes_, *map(written, root.iter("text"))))
    assert sheet(root).right <= 1600


@pytest.mark.slow
@given(timeline=timelines())
@example(timeline=STORY)
@example(timeline=CHANGES)
def test_no_line_runs_through_the_words_of_a_cell(timeline: Timeline) -> None:
    root = drawn(timeline)
    cells = [area(next(cell.iter("rect"))) for cell in groups(root, "cell")]
    assert not [line for line in segments(root) for cell in cells if line.overlaps(cell)]


def segments(root: Element) -> Iterator[Box]:
    """The straight parts of all lines, thin as they are."""
    for line in root.iter("polyline"):
        for (x, y), (end_x, end_y) in itertools.pairwise(points(line)):
            yield Box(min(x, end_x) - 0.5, min(y, end_y) + 0.1, max(x, end_x) + 0.5, max(y, end_y) + 0.5)


@given(timeline=timelines())
def test_every_timeline_comes_back_from_json_as_it_was(timeline: Timeline) -> None:
    assert repr(decode(encode(timeline))) == repr(timeline)


@given(text=st.text(), room=st.floats(12, 200), size=st.integers(8, 12))
def test_fitted_text_is_as_wide_as_its_room_at_most(text: str, room: float, size: int) -> None:
    assert len(fit(text, room, size)) * size * EM <= room
    assert fit("8 tokens", 80, 10) == "8 tokens"


def test_a_colour_is_mixed_with_white() -> None:
    assert [mix("#0072b2", share) for share in (0, 0.5, 1)] == ["#ffffff", "#80b8d8", "#0072b2"]


def test_the_picture_needs_nothing_from_outside() -> None:
    root = drawn(STORY)
    known = {"svg", "g", "title", "text", "rect", "path", "polyline", "polygon"}
    assert {element.tag for element in root.iter()} == known
    assert not re.search(r"href|url\(|@import|<style|<script", svg(STORY))


def reported(folder: Path, **changes: object) -> Path:
    case = replace(a_case(), **changes)  # type: ignore[arg-type]
    return write_report(case, folder, pytest, note="A <b>note</b>.")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a case with a timeline."""
    return reported(
        tmp_path_factory.mktemp("story"), timeline=STORY, failure=stated("a < b \x1b[0m", "should be `c`")
    )


def page(report: Path) -> Element:
    return parsed((report / "report.html").read_text(encoding="utf-8"))


def test_the_page_is_well_formed_and_has_the_picture_after_what_was_seen(story: Path) -> None:
    kinds = [element.tag for element in page(story)[1]]
    first = kinds.index("figure")
    assert kinds[: first + 2] == ["h1", *["p"] * (first - 1), "figure", "p"]
    assert [child.tag for child in page(story)[1][first]] == ["svg"]


def test_the_page_has_the_report_s_blocks_and_its_table(story: Path) -> None:
    body = page(story)[1]
    headings = [heading.text for heading in body.iter("h2")]
    assert headings[:3] == ["What happened", "Expected and actual", "Input"]
    assert any((code.text or "").startswith("expected ") for code in body.iter("code"))
    assert {"device", "revision", "torch"} <= {cell.text for cell in body.iter("td")}


def test_the_page_lists_what_happened(story: Path) -> None:
    assert [item.text for item in page(story)[1].iter("li")] == list(TITLES)


def test_the_report_lists_what_happened_before_what_came_of_it(story: Path) -> None:
    text = (story / "report.md").read_text(encoding="utf-8")
    listed = "\n".join(f"- {title}" for title in TITLES)
    assert f"\n\n## What happened\n\n{listed}\n\n<details>\n<summary>Block tables" in text
    assert text.index(listed) < text.index("\n\n## Expected and actual\n\n")


def test_the_report_has_the_tables_in_words_below_the_story(story: Path) -> None:
    text = (story / "report.md").read_text(encoding="utf-8")
    assert (
        "step 2, after the forward\n  r0, group 0: 0 null | 1 #5 8 tokens r0 published R | 2 #7 10 tokens r0 W"
        in text
    )


def test_a_report_without_a_timeline_does_not_tell_what_happened(tmp_path: Path) -> None:
    assert "What happened" not in (reported(tmp_path) / "report.md").read_text(encoding="utf-8")


def test_markup_in_a_case_is_text_on_the_page(story: Path) -> None:
    body = "".join(page(story)[1].itertext())
    assert "a < b \\x1b[0m" in body
    assert "A <b>note</b>." in body


def test_the_report_shows_the_picture_that_stands_beside_it(story: Path) -> None:
    text = (story / "report.md").read_text(encoding="utf-8")
    assert text.count("\n\n![block tables over time](timeline.svg)\n\n") == 1
    assert (story / "timeline.svg").read_text(encoding="utf-8") == svg(STORY) + "\n"


def test_a_report_without_a_timeline_has_a_page_without_a_picture(tmp_path: Path) -> None:
    report = reported(tmp_path)
    assert not list(page(report).iter("svg"))
    assert "timeline" not in (report / "report.md").read_text(encoding="utf-8")


def test_reporting_again_without_a_timeline_takes_the_picture_away(tmp_path: Path) -> None:
    reported(tmp_path, timeline=STORY)
    assert not (reported(tmp_path) / "timeline.svg").exists()


def test_the_case_of_a_report_keeps_its_timeline(story: Path) -> None:
    assert Case.load(story / "case.json").timeline == STORY


def test_text_without_unprintable_characters_is_as_it_was() -> None:
    assert plain("tab\t, “quotes” and 漢字\n") == "tab\t, “quotes” and 漢字\n"
