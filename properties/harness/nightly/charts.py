"""Draws how a campaign went: examples per second, and what was discovered, over time.

matplotlib is optional. Where it is missing, a table of the same numbers has to do.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

from properties.harness.campaign.record import Moment

MISSING = (
    "There are no charts, because matplotlib is not installed (pip install -c constraints.txt matplotlib)."
)
_MOST_ROWS, _MOST_POINTS = 20, 150
_INK = "#010203"
"""Stands for the page's own colour of text, which a chart cannot know: light or dark."""
_BLUE, _ORANGE = "#3b82c4", "#d9730d"
_SETTINGS = {
    "svg.hashsalt": "statecheck",
    "svg.fonttype": "none",
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.family": "sans-serif",
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_REFERENCE = re.compile(r'(\bid="|href="#|url\(#)')
_UNITS = ((7200.0, 3600.0, "hours"), (300.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""From how many seconds on a unit is used, how many seconds it has, its name."""


def thinned(series: Sequence[Moment], most: int = _MOST_ROWS) -> list[Moment]:
    """At most `most` moments, in order of time and evenly taken, the last one among them; no two at one time."""
    by_time = {one.at: one for one in sorted(series, key=lambda one: one.at)}
    moments = list(by_time.values())
    if len(moments) <= most:
        return moments
    last = len(moments) - 1
    return [moments[round(place * last / (most - 1))] for place in range(most)]


def rates(moments: Sequence[Moment]) -> list[float]:
    """Examples per second up to each moment, from the one before; time begins at 0."""
    found, at, examples = [], 0.0, 0
    for one in moments:
        passed = one.at - at
        found.append(max(0, one.examples - examples) / passed if passed > 0 else 0.0)
        at, examples = one.at, one.examples
    return found


def charts(series: Sequence[Moment]) -> tuple[str, ...]:
    """Two elements of SVG for one page; none where matplotlib is missing or there is nothing to draw."""
    moments = thinned(series, _MOST_POINTS)
    if len(moments) < 2:
        return ()
    try:
        return _speed(moments), _discoveries(moments)
    except ImportError:
        return ()


def _speed(moments: Sequence[Moment]) -> str:
    figure, axes, times = _axes(moments)
    speeds = rates(moments)
    axes.step([0.0, *times], [speeds[0], *speeds], where="pre", color=_BLUE)
    axes.set_ylabel("examples per second")
    axes.set_ylim(bottom=0)
    return _svg(figure, "speed", "Examples per second over the time of the campaign")


def _discoveries(moments: Sequence[Moment]) -> str:
    figure, axes, times = _axes(moments)
    axes.step(times, [one.behaviours for one in moments], where="post", color=_BLUE)
    axes.set_ylabel("behaviours", color=_BLUE)
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    other.spines["right"].set_visible(True)
    other.step(times, [one.buckets for one in moments], where="post", color=_ORANGE, linestyle="--")
    other.set_ylabel("buckets (dashed)", color=_ORANGE)
    other.set_ylim(0, max(1, *(one.buckets for one in moments)) * 1.05)
    other.yaxis.get_major_locator().set_params(integer=True)
    return _svg(figure, "discoveries", "Behaviours and buckets over the time of the campaign")


def _axes(moments: Sequence[Moment]) -> tuple[Any, Any, list[float]]:
    """A figure, its axes, and the times of `moments` in the unit that its axis names."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    end = moments[-1].at
    size, unit = next((size, unit) for least, size, unit in _UNITS if end >= least)
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(7, 2.8), layout="constrained")
        axes = figure.subplots()
    axes.set_xlabel(unit)
    return figure, axes, [one.at / size for one in moments]


def _svg(figure: Any, name: str, title: str) -> str:
    """The figure as an element, with names of its own, so that several stand on one page."""
    from matplotlib import rc_context

    file = io.StringIO()
    with rc_context(_SETTINGS):
        figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    text = file.getvalue()
    text = _REFERENCE.sub(rf"\g<1>{name}-", text[text.index("<svg") :]).replace(_INK, "currentColor")
    # A style in an element of the page would reach the whole page.
    text = text.replace("*{", f"#{name}-figure_1 *{{")
    return text.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
