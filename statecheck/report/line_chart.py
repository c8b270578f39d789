"""Lines over a common axis, as an element of SVG in the page's own colour of text: dashes tell lines apart, and words name them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, log10
from xml.etree.ElementTree import Element, SubElement, tostring

_WIDTH, _HEIGHT = 700, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 76, 12, 44
_TICKS, _COARSE = 5, (1, 2, 5, 10)
_GREY = "0.25"
"""Opacity of the grid."""


@dataclass(frozen=True)
class Line:
    """A quantity over time, which stays what it is until the next point; whole numbers only, if `whole`.

    Args:
        points: time and value; in order of time.
        dash: as of SVG's stroke-dasharray, "" for a line without gaps.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    dash: str = ""
    whole: bool = False

    @property
    def most(self) -> float:
        return max((value for _, value in self.points), default=0.0)


def chart(title: str, unit: str, left: Line, right: Line | None = None) -> str:
    """One line, or two with an axis each; `unit` is that of their time."""
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_WIDTH} {_HEIGHT}",
            "width": f"{_WIDTH}",
            "role": "img",
            "aria-label": title,
            "font-family": "system-ui, sans-serif",
            "font-size": "12",
            "fill": "currentColor",
            "stroke": "none",
        },
    )
    _add(root, "title", title)
    end = max(point[0] for line in (left, right) if line is not None for point in line.points) or 1.0
    for at in ticks(end):
        x = _x(at, end)
        _rule(root, x, _TOP, x, _HEIGHT - _BOTTOM)
        _write(root, x, _HEIGHT - _BOTTOM + 16, _number(at), "middle")
    _write(root, (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, unit, "middle")
    _draw(root, left, end, _LEFT - 6, "end", 14, grid=True)
    if right is not None:
        _draw(root, right, end, _WIDTH - _RIGHT + 6, "start", _WIDTH - 8, grid=False)
    return tostring(root, encoding="unicode")


def ticks(most: float, *, whole: bool = False) -> list[float]:
    """Round numbers from 0 up to `most`, about five of them."""
    if most <= 0:
        return [0.0]
    size = 10.0 ** floor(log10(most / _TICKS))
    step = next(size * coarse for coarse in _COARSE if most / (size * coarse) <= _TICKS)
    step = max(1.0, step) if whole else step
    return [number * step for number in range(floor(most / step + 1e-9) + 1)]


def _draw(
    root: Element, line: Line, end: float, label: float, anchor: str, name: float, *, grid: bool
) -> None:
    """A line with its axis, whose numbers stand at `label` and whose name at `name`."""
    most = max(line.most, 1.0 if line.whole else 1e-9)
    for at in ticks(most, whole=line.whole):
        y = _y(at, most)
        if grid:
            _rule(root, _LEFT, y, _WIDTH - _RIGHT, y)
        _write(root, label, y + 4, _number(at), anchor)
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    text = _add(root, "text", f"{line.name}{' (dashed)' if line.dash else ''}")
    text.attrib |= {"text-anchor": "middle", "transform": f"translate({name:g} {middle:g}) rotate(-90)"}
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in _steps(line, end, most))
    drawn = _add(root, "polyline")
    drawn.attrib |= {"points": path, "fill": "none", "stroke": "currentColor", "stroke-width": "1.8"}
    drawn.attrib |= {"stroke-dasharray": line.dash} if line.dash else {}


def _steps(line: Line, end: float, most: float) -> Iterator[tuple[float, float]]:
    before = None
    for at, value in line.points:
        if before is not None:
            yield _x(at, end), _y(before, most)
        yield _x(at, end), _y(value, most)
        before = value


def _x(at: float, end: float) -> float:
    return _LEFT + at / end * (_WIDTH - _LEFT - _RIGHT)


def _y(value: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - value / most * (_HEIGHT - _TOP - _BOTTOM)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == floor(value) else f"{value:g}"


def _rule(root: Element, x: float, y: float, to_x: float, to_y: float) -> None:
    line = _add(root, "line")
    line.attrib |= {"x1": f"{x:.1f}", "y1": f"{y:.1f}", "x2": f"{to_x:.1f}", "y2": f"{to_y:.1f}"}
    line.attrib |= {"stroke": "currentColor", "stroke-opacity": _GREY}


def _write(root: Element, x: float, y: float, words: str, anchor: str) -> None:
    _add(root, "text", words).attrib |= {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}


def _add(parent: Element, tag: str, words: str | None = None) -> Element:
    found = SubElement(parent, tag)
    found.text = words
    return found
