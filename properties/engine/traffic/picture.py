"""One request's blocks over the steps of a replay: a bar for each block that a column of its table has had, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from statecheck.report.line_chart import ticks
from statecheck.report.picture import fit, plain

_LEFT, _TOP, _WIDTH, _ROW, _LEGEND = 60, 34, 900, 22, 70
_COLORS = ("#7fb3d5", "#f5cba7", "#a9dfbf", "#d7bde2", "#f9e79f", "#aeb6bf")
_MARKS = {"boundary": "◆", "prefix hit": "▲", "preempted": "✗"}
_SHIFTS = {"boundary": 0.85, "prefix hit": 0.15, "preempted": 0.15}
"""Where in a step a mark stands, beside the ids of blocks."""


def drawn(timeline: Mapping[str, Any]) -> str:
    """The picture of `spans`, [column, block, first step, last step], and `events`, [step, column, which].

    Columns that never had a block are left out.
    """
    spans, events = timeline["spans"], timeline["events"]
    columns = sorted({span[0] for span in spans} | {column for _, column, _ in events})
    steps = [step for span in spans for step in span[2:]] + [step for step, _, _ in events]
    first, end = min(steps, default=0), max(steps, default=0) + 1
    height = _TOP + _ROW * len(columns) + _LEGEND
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_LEFT + _WIDTH + 20} {height}",
            "role": "img",
            "font-family": "system-ui, sans-serif",
            "font-size": "11",
        },
    )
    SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    _write(root, _LEFT, 18, f"blocks of {plain(timeline['request'])}, by column of its block table", "start")
    for place, column in enumerate(columns):
        _write(root, _LEFT - 8, _TOP + _ROW * place + 15, str(column), "end")
    scale = _WIDTH / (end - first)
    for column, block, begin, last in spans:
        _bar(root, columns.index(column), block, (begin - first) * scale, (last + 1 - begin) * scale)
    for step, column, which in events:
        x = _LEFT + (step - first + _SHIFTS[which]) * scale
        _write(root, x, _TOP + _ROW * columns.index(column) + 15, _MARKS[which], "middle")
    _axis(root, first, end, scale, _TOP + _ROW * len(columns))
    _legend(root, [which for _, _, which in events], height - 10)
    return tostring(root, encoding="unicode")


def _bar(root: Element, place: int, block: int, at: float, width: float) -> None:
    box = {"x": f"{_LEFT + at:.1f}", "y": f"{_TOP + _ROW * place + 2}", "width": f"{width:.1f}"}
    look = {"height": f"{_ROW - 4}", "fill": _COLORS[block % len(_COLORS)], "stroke": "#ffffff"}
    bar = SubElement(root, "rect", box | look)
    SubElement(bar, "title").text = f"block {block}"
    _write(root, _LEFT + at + width / 2, _TOP + _ROW * place + 15, fit(str(block), width, 11), "middle")


def _axis(root: Element, first: int, end: int, scale: float, y: float) -> None:
    for at in ticks(float(end - first), whole=True):
        _write(root, _LEFT + at * scale, y + 18, f"{first + at:.0f}", "middle")
    _write(root, _LEFT + _WIDTH / 2, y + 36, "step", "middle")


def _legend(root: Element, occurring: Sequence[str], y: float) -> None:
    shown = [which for which in _MARKS if which in occurring]
    for number, which in enumerate(shown):
        _write(root, _LEFT + 140 * number, y, _MARKS[which], "start")
        _write(root, _LEFT + 140 * number + 16, y, which, "start")


def _write(root: Element, x: float, y: float, words: str, anchor: str) -> None:
    if words:
        found = SubElement(root, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor})
        found.text = words
