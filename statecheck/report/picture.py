"""Draws a `Timeline` as one SVG that stands alone: no scripts, no references, and words for everything that has a colour.

Moments stand below one another. A row is a block table: a box for each column, with the column's number and its marks above
the box; below the row, a line of words for each copy and for what is wrong. Text is monospaced, so that its width is known.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from xml.etree.ElementTree import Element, SubElement, tostring

from statecheck.case.timeline import LONG, Cell, Moment, Spot, TableRow, Timeline

EM = 0.6
"""Width of a monospaced character, of the font's size."""
_HUES = ("#99c6e0", "#99d8c7", "#e8c7db", "#bbe1f6", "#f8f3b3")
"""Okabe and Ito's colours on white, which colour-blind readers can tell apart, without the reds; names distinguish more owners."""
_RED, _RED_FILL, _RED_TEXT = "#d55e00", "#eebe99", "#a03c00"
_INK, _GREY, _NULL, _NO_OWNER, _BORDER = "#000000", "#6b6b6b", "#fafafa", "#e6e6e6", "#8a8a8a"
_FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_MARGIN, _LABEL, _PAD = 12, 84, 6
_HEAD, _BOX, _LINE = 15, 46, 15
_NARROWEST, _WIDEST, _LEAST_ROOM, _WIDEST_LINE = 58, 140, 400, 1440
_LEGEND = (
    "@: the request runs in this column; R, W: read, written in this step; P: published in the prefix cache; "
    "✗: wrong; ( ): what the block should hold; …: columns that never change; a colour for each request whose state a block holds"
)
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def svg(timeline: Timeline) -> str:
    """The picture of `timeline`, as text that is both an SVG file and an element for HTML."""
    sheet = _Sheet.of(timeline)
    for number, moment in enumerate(timeline.moments):
        sheet.moment(number, moment)
    if timeline.cells:
        sheet.paragraph(sheet.root, "legend", _LEGEND, _GREY)
    return sheet.finished()


def plain(text: str) -> str:
    """`text` with a replacement for each character that XML cannot hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def fit(text: str, room: float, size: float) -> str:
    """`text` on one line, with "…" for the rest where it is wider than `room`."""
    line, most = " ".join(plain(text).split()), int(room / (size * EM))
    return line if len(line) <= most else line[: max(0, most - 1)] + "…"


@dataclass
class _Sheet:
    """The picture while it grows: what is drawn reaches down to `y`."""

    timeline: Timeline
    root: Element
    hues: dict[str, str]
    cell: int
    per_line: int
    y: float = _MARGIN

    @classmethod
    def of(cls, timeline: Timeline) -> _Sheet:
        owners = dict.fromkeys(cell.owner for cell in timeline.cells if cell.owner)
        per_row = [len(timeline.shown(row.request, row.group)) for row in timeline.rows]
        width = _cell_width(timeline)
        root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-family": _FONT})
        _add(root, "title", "block tables over time")
        _add(root, "rect", width="100%", height="100%", fill="#ffffff")
        hues = {owner: _HUES[number % len(_HUES)] for number, owner in enumerate(owners)}
        return cls(timeline, root, hues, width, min(LONG, max(per_row, default=0), _WIDEST_LINE // width))

    @property
    def left(self) -> int:
        return _MARGIN + _LABEL

    @property
    def right(self) -> int:
        return self.left + max(self.per_line * self.cell, _LEAST_ROOM)

    def finished(self) -> str:
        width, height = f"{self.right + _MARGIN}", f"{self.y + _MARGIN:g}"
        self.root.attrib |= {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
        return tostring(self.root, encoding="unicode")

    def moment(self, number: int, moment: Moment) -> None:
        group = _group(self.root, "moment", moment.title)
        for line in textwrap.wrap(plain(moment.title), int((self.right - _MARGIN) / (13 * EM))):
            self.y += 16
            _write(group, _MARGIN, self.y, line, 13, bold=True)
        self.y += 6
        for row in moment.rows:
            self.row(group, number, row)
        self.y += 10

    def row(self, parent: Element, moment: int, row: TableRow) -> None:
        group = _group(parent, "row", f"{row.request}, group {row.group}")
        baseline = self.y + _HEAD + 18
        _write(group, _MARGIN, baseline, fit(row.request, _LABEL - 8, 12), 12, bold=True)
        _write(group, _MARGIN, baseline + 14, fit(f"group {row.group}", _LABEL - 8, 10), 10, fill=_GREY)
        if not row.cells:
            _write(group, self.left + _PAD, baseline, "no blocks", 10, fill=_GREY)
        spot = moment, row.request, row.group
        for x, y, columns in self._places(row):
            self._column(group, spot, row, x, y, columns)
        self._sentences(group, spot)

    def _places(self, row: TableRow) -> Iterator[tuple[float, float, tuple[int, int]]]:
        """Where the box of each range of columns stands, `per_line` of them on a line; `y` ends below the last."""
        shown = [ends for ends in self.timeline.shown(row.request, row.group) if ends[0] < len(row.cells)]
        top, height = self.y + _HEAD, _HEAD + _BOX + _PAD
        for number, ends in enumerate(shown):
            line, place = divmod(number, self.per_line)
            yield self.left + place * self.cell, top + line * height, ends
        self.y += height * max(1, -(-len(shown) // max(1, self.per_line)))

    def _column(
        self,
        parent: Element,
        spot: tuple[int, str, int],
        row: TableRow,
        x: float,
        y: float,
        ends: tuple[int, int],
    ) -> None:
        first, last = ends
        if first < last:
            group = _group(parent, "elided", f"columns {first} to {last} never change")
            _write(group, x + _PAD, y - 4, fit(f"{first}–{last}", self.cell - 2 * _PAD, 9), 9, fill=_GREY)
            _write(group, x + self.cell / 2 - 5, y + _BOX / 2, "…", 14, fill=_GREY)
            return
        cell = row.cells[first]
        wrong = cell.wrong or self._is_finding((*spot, first))
        group = _group(parent, "cell", row.words(first))
        self._box(group, cell, x, y, wrong=wrong)
        head = f"{first} {_marks(row, first, wrong=wrong)}"
        color = _RED_TEXT if wrong else _GREY
        _write(group, x + _PAD, y - 4, fit(head, self.cell - 2 * _PAD, 9), 9, bold=wrong, fill=color)
        ink = _INK if cell.block or wrong else _GREY
        for number, text in enumerate(_lines(cell)):
            at, size = y + 14 + 13 * number, 10 if number else 11
            _write(
                group, x + _PAD, at, fit(text, self.cell - 2 * _PAD, size), size, bold=not number, fill=ink
            )

    def _is_finding(self, spot: Spot) -> bool:
        return self.timeline.finding is not None and self.timeline.finding.spot == spot

    def _box(self, group: Element, cell: Cell, x: float, y: float, *, wrong: bool) -> None:
        fill, border, thickness = self.hues.get(cell.owner, _NO_OWNER), _BORDER, 1
        if not cell.block:
            fill = _NULL
        if cell.published:
            border, thickness = _INK, 3
        if wrong:
            fill, border, thickness = _RED_FILL, _RED, 3
        style = {"fill": fill, "stroke": border, "stroke_width": f"{thickness}"}
        _add(group, "rect", x=x + 1.5, y=y + 1.5, width=self.cell - 3, height=_BOX - 3, rx=3, **style)

    def _sentences(self, group: Element, spot: tuple[int, str, int]) -> None:
        """The copies of a row, and what is wrong in it."""
        for arrow in self.timeline.arrows:
            if (arrow.moment, arrow.request, arrow.group) == spot:
                label = f": {arrow.label}" if arrow.label else ""
                self.paragraph(group, "copy", f"copy {arrow.source} → {arrow.target}{label}", _INK)
        finding = self.timeline.finding
        if finding is None or finding.spot[:3] != spot:
            return
        self.paragraph(group, "finding", f"✗ column {finding.column}: {finding.text}", _RED_TEXT)
        if finding.origin is not None:
            moment, request, number, column = finding.origin
            when = self.timeline.moments[moment].title
            words = f"the wrong bytes come from {request}, group {number}, column {column}: {when}"
            self.paragraph(group, "origin", words, _RED_TEXT)

    def paragraph(self, parent: Element, kind: str, words: str, color: str) -> None:
        group = _group(parent, kind, words)
        for line in textwrap.wrap(plain(words), int((self.right - self.left) / (10 * EM))):
            _write(group, self.left, self.y + 8, line, 10, fill=color)
            self.y += _LINE


def _lines(cell: Cell) -> tuple[str, str, str]:
    """What stands in a box: the block, what it holds, and whose that is; of a wrong one, in brackets what it should hold."""
    holds = cell.holds or ("" if cell.block else "null")
    if not cell.expected:
        return f"#{cell.block}", holds, cell.owner
    return f"#{cell.block}", " ".join(filter(None, (holds, cell.owner))), f"({cell.expected})"


def _marks(row: TableRow, column: int, *, wrong: bool) -> str:
    marks = {
        "@": column == row.run,
        "R": column in row.reads,
        "W": column in row.writes,
        "P": row.cells[column].published,
        "✗": wrong,
    }
    return "".join(mark for mark, holds in marks.items() if holds)


def _cell_width(timeline: Timeline) -> int:
    """Room for every cell's words, within limits."""
    most = max((len(text) for cell in timeline.cells for text in _lines(cell)), default=0)
    return max(_NARROWEST, min(_WIDEST, ceil(6.6 * most) + 2 * _PAD))


def _add(parent: Element, tag: str, text: str | None = None, /, **attributes: str | float) -> Element:
    named = {name.rstrip("_").replace("_", "-"): f"{value}" for name, value in attributes.items()}
    element = SubElement(parent, tag, named)
    element.text = text
    return element


def _group(parent: Element, kind: str, title: str) -> Element:
    group = _add(parent, "g", class_=kind)
    _add(group, "title", plain(title))
    return group


def _write(
    parent: Element, x: float, y: float, text: str, size: float, *, bold: bool = False, fill: str = _INK
) -> None:
    weight = {"font_weight": "bold"} if bold else {}
    if text:
        _add(parent, "text", text, x=x, y=y, font_size=size, fill=fill, **weight)
