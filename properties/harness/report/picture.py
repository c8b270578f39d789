"""Draws a `Timeline` as one SVG that stands alone: no scripts, no references, and words for everything that has a colour.

Moments stand below one another. A row is a block table: a box for each column, the column's number above it, lanes for
the row's copies below. Text is monospaced, so that its width is known without a font at hand.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from xml.etree.ElementTree import Element, SubElement, tostring

from properties.harness.case.timeline import LONG, Arrow, Cell, Moment, Spot, TableRow, Timeline, WrongCell

EM = 0.6
"""Width of a monospaced character, of the font's size."""
_HUES = ("#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#f0e442")
"""Okabe and Ito's colours, which colour-blind readers tell apart, without the reds; names tell more owners apart."""
_RED, _RED_TEXT, _INK, _GREY, _PALE = "#d55e00", "#a03c00", "#000000", "#6b6b6b", "#fafafa"
_FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_MARGIN, _LABEL, _GUTTER, _PAD = 12, 84, 28, 6
_NUMBERS, _BOX, _GAP, _LANE = 15, 46, 13, 15
_NARROWEST, _WIDEST, _LEAST_ROOM = 58, 140, 400
_WIDEST_LINE = 1440
_MARKS = 14
"""Room for what stands beside a line of a cell: the lock, the triangle, `RW`."""
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Point = tuple[float, float]
_Style = dict[str, str]


def svg(timeline: Timeline) -> str:
    """The picture of `timeline`, as text that is both an SVG file and an element for HTML."""
    sheet = _Sheet.of(timeline)
    for number, moment in enumerate(timeline.moments):
        sheet.moment(number, moment)
    if timeline.finding is not None and timeline.finding.origin is not None:
        sheet.origin(timeline.finding.origin, timeline.finding.spot)
    sheet.legend()
    return sheet.finished()


def plain(text: str) -> str:
    """`text` with a replacement for each character that XML cannot hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def fit(text: str, room: float, size: float) -> str:
    """`text` on one line, with "…" for the rest where it is wider than `room`."""
    line, most = " ".join(plain(text).split()), int(room / (size * EM))
    return line if len(line) <= most else line[: max(0, most - 1)] + "…"


def _wrapped(text: str, room: float, size: float) -> list[str]:
    return textwrap.wrap(plain(text), int(room / (size * EM)))


def mix(color: str, share: float) -> str:
    """`share` of `color` on white."""
    parts = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in parts)


def _add(parent: Element, tag: str, text: str | None = None, /, **attributes: str | float) -> Element:
    named = {name.rstrip("_").replace("_", "-"): f"{value}" for name, value in attributes.items()}
    element = SubElement(parent, tag, named)
    element.text = text
    return element


def _lines(cell: Cell) -> tuple[str, str]:
    """What stands below a block's id: what it holds, and whose that is; or, where it is wrong, what it should hold."""
    holds = cell.holds or ("" if cell.block else "null")
    if not cell.expected:
        return holds, cell.owner
    return " ".join(filter(None, (holds, cell.owner))), f"({cell.expected})"


def _cell_width(cells: tuple[Cell, ...]) -> int:
    """Room for every cell's words, within limits."""
    words = [_MARKS + max(6.6 * len(f"#{c.block}"), 6 * len(_lines(c)[1])) for c in cells]
    words += [6.0 * len(_lines(c)[0]) for c in cells]
    return max(_NARROWEST, min(_WIDEST, ceil(max(words, default=0)) + 2 * _PAD))


def _group(parent: Element, kind: str, title: str) -> Element:
    group = _add(parent, "g", class_=kind)
    _add(group, "title", plain(title))
    return group


def _write(
    parent: Element, at: Point, text: str, size: float, *, bold: bool = False, fill: str = _INK
) -> None:
    weight = {"font_weight": "bold"} if bold else {}
    x, y = at
    if text:
        _add(parent, "text", text, x=x, y=y, font_size=size, fill=fill, **weight)


def _polyline(parent: Element, points: tuple[Point, ...], color: str, **more: str | float) -> None:
    """A line, and the head of an arrow at its end, which points up."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    _add(parent, "polyline", points=path, fill="none", stroke=color, stroke_width=1.5, **more)
    x, y = points[-1]
    _add(parent, "polygon", points=f"{x:g},{y:g} {x - 4:g},{y + 6:g} {x + 4:g},{y + 6:g}", fill=color)


def _triangle(parent: Element, x: float, y: float) -> None:
    """The mark of the running column, which points down."""
    _add(parent, "polygon", points=f"{x:g},{y:g} {x + 10:g},{y:g} {x + 5:g},{y + 8:g}", fill=_INK)


def _lock(parent: Element, x: float, y: float) -> None:
    _add(parent, "path", d=f"M{x + 2:g} {y + 5:g}v-2a2.5 2.5 0 0 1 5 0v2", fill="none", stroke=_INK)
    _add(parent, "rect", x=x, y=y + 5, width=9, height=6, fill=_INK)


def _box(parent: Element, x: float, y: float, width: float, height: float, style: _Style) -> None:
    _add(parent, "rect", x=x, y=y, width=width, height=height, rx=3, **style)


def _style(fill: str, stroke: str = "#8a8a8a", thickness: int = 1) -> _Style:
    return {"fill": fill, "stroke": stroke, "stroke_width": f"{thickness}"}


_NULL, _NOBODYS, _WRONG = _style(_PALE, "#c8c8c8"), _style("#e6e6e6"), _style(mix(_RED, 0.4), _RED, 3)
_PLAIN, _LOCKED = _style("none"), _style("#ffffff", _INK, 3)
_DASHED, _DOTTED = {"stroke_dasharray": "5 3"}, {"stroke_dasharray": "1 4", "stroke_linecap": "round"}
_LINES: dict[str, tuple[str, dict[str, str]]] = {
    "arrow": (_INK, {}),
    "dashes": (_INK, _DASHED),
    "dots": (_RED, _DOTTED),
}
_HALO = {"stroke": "#ffffff", "stroke_width": "4", "paint_order": "stroke"}
_KEY = 34
"""How much room the mark of an entry of the legend takes."""


@dataclass
class _Sheet:
    """The picture while it grows: what is drawn reaches down to `y`."""

    timeline: Timeline
    root: Element
    hues: dict[str, str]
    most: int
    cell: int
    per_line: int
    y: float = _MARGIN
    boxes: dict[Spot, Point] = field(default_factory=dict)

    @classmethod
    def of(cls, timeline: Timeline) -> _Sheet:
        cells, owners = timeline.cells, dict.fromkeys(cell.owner for cell in timeline.cells if cell.owner)
        per_row = [len(timeline.shown(row.request, row.group)) for row in timeline.rows]
        root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-family": _FONT})
        _add(root, "title", "block tables over time")
        _add(root, "rect", width="100%", height="100%", fill="#ffffff")
        return cls(
            timeline,
            root,
            hues={owner: _HUES[number % len(_HUES)] for number, owner in enumerate(owners)},
            most=max((cell.tokens or 0 for cell in cells), default=0),
            cell=_cell_width(cells),
            per_line=min(LONG, max(per_row, default=0), _WIDEST_LINE // _cell_width(cells)),
        )

    @property
    def left(self) -> int:
        return _MARGIN + _LABEL

    @property
    def right(self) -> int:
        """Where columns and text end; beyond it, arrows between lines pass."""
        return self.left + max(self.per_line * self.cell, _LEAST_ROOM)

    def finished(self) -> str:
        width, height = f"{self.right + _GUTTER}", f"{self.y + _MARGIN:g}"
        self.root.attrib |= {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
        return tostring(self.root, encoding="unicode")

    def moment(self, number: int, moment: Moment) -> None:
        group = _group(self.root, "moment", moment.title)
        for line in _wrapped(moment.title, self.right - _MARGIN, 13):
            self.y += 16
            _write(group, (_MARGIN, self.y), line, 13, bold=True)
        self.y += 6
        for row in moment.rows:
            self.row(group, number, row)
        self.y += 10

    def row(self, parent: Element, moment: int, row: TableRow) -> None:
        group = _group(parent, "row", f"{row.request}, group {row.group}")
        baseline = self.y + _NUMBERS + 18
        _write(group, (_MARGIN, baseline), fit(row.request, _LABEL - 8, 12), 12, bold=True)
        _write(group, (_MARGIN, baseline + 14), fit(f"group {row.group}", _LABEL - 8, 10), 10, fill=_GREY)
        if not row.cells:
            _write(group, (self.left + _PAD, baseline), "no blocks", 10, fill=_GREY)
        for at, columns in self._lines(row):
            self._column(group, moment, row, at, columns)
        place = moment, row.request, row.group
        for arrow in self.timeline.arrows:
            if (arrow.moment, arrow.request, arrow.group) == place:
                self.arrow(group, arrow)
        found = self.timeline.finding
        if found is not None and found.spot[:3] == place:
            self.finding(group, found)

    def _lines(self, row: TableRow) -> Iterator[tuple[Point, tuple[int, int]]]:
        """Where the box of each range of columns stands, `per_line` of them on a line; `y` ends below the last."""
        shown = [ends for ends in self.timeline.shown(row.request, row.group) if ends[0] < len(row.cells)]
        top, height = self.y + _NUMBERS, _NUMBERS + _BOX + _GAP
        for number, ends in enumerate(shown):
            line, place = divmod(number, self.per_line)
            yield (self.left + place * self.cell, top + line * height), ends
        self.y += height * max(1, -(-len(shown) // max(1, self.per_line)))

    def _column(
        self, parent: Element, moment: int, row: TableRow, at: Point, columns: tuple[int, int]
    ) -> None:
        (x, y), (first, last) = at, columns
        spot = moment, row.request, row.group, first
        self.boxes[spot] = at
        if first < last:
            group = _group(parent, "elided", f"columns {first} to {last} never change")
            numbers = fit(f"{first}–{last}", self.cell - 2 * _PAD, 9)
            _write(group, (x + _PAD, y - 4), numbers, 9, fill=_GREY)
            _write(group, (x + self.cell / 2 - 5, y + _BOX / 2), "…", 14, fill=_GREY)
            return
        found = self.timeline.finding
        wrong = found.text if found is not None and found.spot == spot else ""
        title = row.words(first) + (f"; {wrong}" if wrong else "")
        self._cell(_group(parent, "cell", title), row, at, first, bool(wrong) or row.cells[first].wrong)

    def _cell(self, group: Element, row: TableRow, at: Point, column: int, wrong: bool) -> None:
        (x, y), cell = at, row.cells[column]
        style, end = self._look(cell, wrong), x + self.cell - _PAD
        _box(group, x + 1.5, y + 1.5, self.cell - 3, _BOX - 3, style)
        if column == row.run:
            _triangle(group, end - 10, y - 11)
        if cell.published:
            _lock(group, end - 11, y + 3)
        marks = f"{'R' if column in row.reads else ''}{'W' if column in row.writes else ''}"
        _write(group, (end - 6 * len(marks), y + 40), marks, 10, bold=True)
        number, color = (f"{column} ✗", _RED_TEXT) if wrong else (f"{column}", _GREY)
        room = self.cell - 2 * _PAD - _MARKS
        _write(group, (x + _PAD, y - 4), fit(number, room, 9), 9, bold=wrong, fill=color)
        self._words(group, (x + _PAD, y), cell, _GREY if style == _NULL else _INK)

    def _words(self, group: Element, at: Point, cell: Cell, ink: str) -> None:
        """What stands in a box, beside its marks."""
        (x, y), room = at, self.cell - 2 * _PAD
        holds, below = _lines(cell)
        _write(group, (x, y + 14), fit(f"#{cell.block}", room - _MARKS, 11), 11, bold=True, fill=ink)
        _write(group, (x, y + 27), fit(holds, room, 10), 10, fill=ink)
        _write(group, (x, y + 40), fit(below, room - _MARKS, 10), 10, fill=ink)

    def _look(self, cell: Cell, wrong: bool) -> _Style:
        if wrong:
            return _WRONG
        usual = _NULL if cell.block == 0 else _NOBODYS
        if cell.block and cell.owner:
            share = (cell.tokens or 0) / max(1, self.most)
            usual = _style(mix(self.hues[cell.owner], 0.2 + 0.45 * share))
        return _style(usual["fill"], _INK, 3) if cell.published else usual

    def arrow(self, parent: Element, arrow: Arrow) -> None:
        """A copy: a line below the row, and beside it which columns and why."""
        words = f"{arrow.source} → {arrow.target}{': ' if arrow.label else ''}{arrow.label}"
        group = _group(parent, "arrow", f"copy of {arrow.request}, group {arrow.group}: {words}")
        source, target = (self.boxes[spot] for spot in arrow.spots)
        last = max(y for spot, (_, y) in self.boxes.items() if spot[:3] == arrow.spots[0][:3])
        depth = self.y + 2 - last - _BOX if source[1] == last else _GAP - 4
        points = self._route(source, target, depth, self.right + 8)
        _polyline(group, points, _INK, **({} if arrow.arrived else _DASHED))
        text = fit(words, self.right - self.left, 10)
        end = max(x for x, _ in points[:2] + points[-2:])
        x = max(self.left, min(end + 6, self.right - len(text) * 10 * EM))
        _add(group, "text", text, x=x, y=self.y + 6, font_size=10, fill=_INK, **_HALO)
        self.y += _LANE

    def _route(self, source: Point, target: Point, depth: float, gutter: float) -> tuple[Point, ...]:
        """From below one box to below the other, `depth` below the boxes; by the gutter between two lines."""
        start, end = source[0] + self.cell / 2 + 5, target[0] + self.cell / 2 - 5
        above, below = source[1] + _BOX, target[1] + _BOX
        if above == below:
            return (start, above), (start, above + depth), (end, above + depth), (end, below)
        out, back = above + min(depth, _GAP - 4), below + min(depth, _GAP - 4)
        return (start, above), (start, out), (gutter, out), (gutter, back), (end, back), (end, below)

    def finding(self, parent: Element, finding: WrongCell) -> None:
        group = _group(parent, "finding", finding.text)
        for line in _wrapped(f"✗ column {finding.column}: {finding.text}", self.right - self.left, 11):
            _write(group, (self.left, self.y + 8), line, 11, bold=True, fill=_RED_TEXT)
            self.y += _LANE

    def origin(self, origin: Spot, wrong: Spot) -> None:
        moment, request, group, column = origin
        when = self.timeline.moments[moment].title
        words = f"the wrong bytes come from {request}, group {group}, column {column}: {when}"
        points = self._route(self.boxes[origin], self.boxes[wrong], 5, self.right + 18)
        _polyline(_group(self.root, "origin", words), points, _RED, **_DOTTED)

    def legend(self) -> None:
        """What each mark that occurs means, as many on a line as there is room for."""
        group, x = _group(self.root, "legend", "what the marks mean"), float(_MARGIN)
        self.y += 4
        for kind, style, words in self._keys():
            text = fit(words, self.right - _MARGIN - _KEY, 10)
            width = _KEY + len(text) * 10 * EM
            if x + width > self.right:
                x, self.y = _MARGIN, self.y + 22
            _sample(group, kind, style, x, self.y)
            _write(group, (x + _KEY, self.y + 12), text, 10)
            x += width + 18
        self.y += 18

    def _keys(self) -> Iterator[tuple[str, _Style, str]]:
        rows, cells, found = self.timeline.rows, self.timeline.cells, self.timeline.finding
        boxes = [(_style(mix(hue, 0.4)), f"prefix of {owner}") for owner, hue in self.hues.items()]
        yield from (("", style, words) for style, words in boxes)
        occurring = (
            ("shades", _PLAIN, "darker: more tokens", self.most),
            ("", _NOBODYS, "no request's prefix", any(cell.block and not cell.owner for cell in cells)),
            ("", _NULL, "null block", any(cell.block == 0 for cell in cells)),
            ("lock", _LOCKED, "published in the prefix cache", any(cell.published for cell in cells)),
            (
                "triangle",
                _PLAIN,
                "column in which the request runs",
                any(row.run is not None for row in rows),
            ),
            ("R", _PLAIN, "read in this step", any(row.reads for row in rows)),
            ("W", _PLAIN, "written in this step", any(row.writes for row in rows)),
            ("arrow", _PLAIN, "copy", any(arrow.arrived for arrow in self.timeline.arrows)),
            (
                "dashes",
                _PLAIN,
                "copy that did not arrive",
                any(not arrow.arrived for arrow in self.timeline.arrows),
            ),
            ("( )", _WRONG, "what the block should hold", any(cell.expected for cell in cells)),
            ("✗", _WRONG, "wrong", found is not None or any(cell.wrong for cell in cells)),
            ("dots", _PLAIN, "where the wrong bytes came from", found is not None and found.origin),
            ("…", _PLAIN, "columns that never change", self.timeline.elides),
        )
        yield from ((kind, style, words) for kind, style, words, occurs in occurring if occurs)


def _sample(parent: Element, kind: str, style: _Style, x: float, y: float) -> None:
    """The mark of one entry of the legend, 28 wide and 16 high."""
    if kind == "shades":
        for number, share in enumerate((0.2, 0.4, 0.65)):
            _box(parent, x + 9 * number, y, 9, 16, _style(mix(_HUES[0], share)))
    elif kind == "triangle":
        _triangle(parent, x + 9, y + 4)
    elif kind in _LINES:
        color, more = _LINES[kind]
        _polyline(parent, ((x + 3, y + 2), (x + 3, y + 13), (x + 23, y + 13), (x + 23, y + 2)), color, **more)
    elif style is not _PLAIN:
        _box(parent, x + 1.5, y, 25, 16, style)
    if kind == "lock":
        _lock(parent, x + 9.5, y + 2)
    elif kind not in (*_LINES, "", "shades", "triangle"):
        _write(parent, (x + 14 - 3 * len(kind), y + 12), kind, 10, bold=True)
