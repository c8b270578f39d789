"""Draws how a campaign went: examples per second, and what was discovered, over time."""

from __future__ import annotations

from collections.abc import Sequence

from statecheck.campaign.record_parts import ProgressPoint
from statecheck.report.line_chart import Line, chart

_MOST_ROWS, _MOST_POINTS = 20, 150
_UNITS = ((7200.0, 3600.0, "hours"), (300.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""From how many seconds on a unit is used, how many seconds it has, its name."""


def thinned(series: Sequence[ProgressPoint], most: int = _MOST_ROWS) -> list[ProgressPoint]:
    """At most `most` moments, in order of time and evenly taken, the last one among them; no two at one time."""
    by_time = {point.at: point for point in sorted(series, key=lambda point: point.at)}
    moments = list(by_time.values())
    if len(moments) <= most:
        return moments
    last = len(moments) - 1
    return [moments[round(place * last / (most - 1))] for place in range(most)]


def rates(moments: Sequence[ProgressPoint]) -> list[float]:
    """Examples per second up to each moment, from the one before; time begins at 0."""
    found, at, examples = [], 0.0, 0
    for moment in moments:
        passed = moment.at - at
        found.append(max(0, moment.examples - examples) / passed if passed > 0 else 0.0)
        at, examples = moment.at, moment.examples
    return found


def charts(series: Sequence[ProgressPoint]) -> tuple[str, ...]:
    """Two elements of SVG; none where there is nothing to draw."""
    moments = thinned(series, _MOST_POINTS)
    if len(moments) < 2:
        return ()
    end = moments[-1].at
    size, unit = next((size, unit) for least, size, unit in _UNITS if end >= least)
    times = [moment.at / size for moment in moments]
    return _speed(moments, times, unit), _discoveries(moments, times, unit)


def _speed(moments: Sequence[ProgressPoint], times: Sequence[float], unit: str) -> str:
    # A rate is that of the time before it.
    begins, speeds = [0.0, *times[:-1]], rates(moments)
    points = [*zip(begins, speeds, strict=True), (times[-1], speeds[-1])]
    line = Line("examples per second", tuple(points))
    return chart("Examples per second over the time of the campaign", unit, line)


def _discoveries(moments: Sequence[ProgressPoint], times: Sequence[float], unit: str) -> str:
    behaviours = tuple(zip(times, (float(moment.behaviours) for moment in moments), strict=True))
    buckets = tuple(zip(times, (float(moment.buckets) for moment in moments), strict=True))
    title = "Behaviours and failures over the time of the campaign"
    return chart(
        title,
        unit,
        Line("behaviours", behaviours, whole=True),
        Line("failures", buckets, dash="5 3", whole=True),
    )
