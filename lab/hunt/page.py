"""The table of hunts and their survival curve: which share of the defects is not found yet after so many CPU seconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from lab.hunt.trial import Hunt

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 360, 56, 40
_FIRST, _LAST = 1.0, 120.0
_SHADES = ("#2563eb", "#b45309", "#15803d", "#9333ea", "#be123c")


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed; infinite values are those that were not found."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(hunts: Sequence[Hunt]) -> str:
    """A row for each group and one for all, in Markdown, and behind it what was not found by every seed."""
    amounts = ("group", "defects", "hunts", "found", "examples, median", "90 %")
    head = (*amounts, "CPU s to the failure, median", "90 %", "CPU s to the report, median", "90 %")
    rows = [_row(group, [hunt for hunt in hunts if hunt.group == group]) for group in _groups(hunts)]
    rows.append(_row("all", hunts))
    lines = [head, ("---",) * len(head), *rows]
    missed = _missed(hunts)
    listed = [f"- {name}: not found by {len(seeds)} of {of} seeds" for name, (seeds, of) in missed.items()]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([text, "", "Not found:" if listed else "Each hunt found its defect.", *listed]) + "\n"


def _groups(hunts: Iterable[Hunt]) -> list[str]:
    return [*dict.fromkeys(hunt.group for hunt in hunts)]


def _row(group: str, hunts: Sequence[Hunt]) -> tuple[str, ...]:
    found = [hunt for hunt in hunts if hunt.found]
    examples = [hunt.examples if hunt.found else math.inf for hunt in hunts]
    failure = [math.inf if hunt.failure is None else hunt.failure for hunt in hunts]
    report = [hunt.report if hunt.found else math.inf for hunt in hunts]
    defects = str(len({hunt.defect for hunt in hunts}))
    figures = (*_pair(examples, "{:,.0f}"), *_pair(failure, "{:.1f}"), *_pair(report, "{:.1f}"))
    return (group, defects, str(len(hunts)), str(len(found)), *figures)


def _pair(values: Sequence[float], form: str) -> tuple[str, str]:
    shown: Callable[[float], str] = lambda value: form.format(value) if math.isfinite(value) else "not found"  # noqa: E731
    return shown(quantile(values, 0.5)), shown(quantile(values, 0.9))


def _missed(hunts: Iterable[Hunt]) -> dict[str, tuple[list[int], int]]:
    of: dict[str, list[Hunt]] = {}
    for one in hunts:
        of.setdefault(f"{one.group}: {one.defect}", []).append(one)
    missed = {name: ([row.seed for row in rows if not row.found], len(rows)) for name, rows in of.items()}
    return {name: (seeds, count) for name, (seeds, count) in missed.items() if seeds}


def curve(named: Mapping[str, Sequence[Hunt]]) -> str:
    """The survival curves of several runs of hunts as an SVG: CPU seconds on a logarithmic axis, and what is left to be found."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for seconds in (1, 3, 10, 30, 120):
        parts.append(
            f'<line x1="{_x(seconds):.1f}" x2="{_x(seconds):.1f}" y1="10" y2="{_y(0)}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="{_x(seconds):.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{seconds}</text>')
    parts += [
        f'<text x="{_LEFT - 8}" y="{_y(share / 100) + 4:.1f}" text-anchor="end">{share} %</text>'
        for share in (0, 25, 50, 75, 100)
    ]
    parts.append(
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle">CPU seconds until the first failure</text>'
    )
    for number, (name, hunts) in enumerate(named.items()):
        shade = _SHADES[number % len(_SHADES)]
        parts.append(f'<path d="{_path(hunts)}" fill="none" stroke="{shade}" stroke-width="2"/>')
        parts.append(
            f'<text x="{_WIDTH - 12}" y="{24 + 16 * number}" text-anchor="end" fill="{shade}">{name}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _path(hunts: Sequence[Hunt]) -> str:
    times = sorted(hunt.failure for hunt in hunts if hunt.failure is not None)
    steps = [f"M {_x(_FIRST):.1f} {_y(1.0):.1f}"]
    for number, seconds in enumerate(times, 1):
        steps.append(f"H {_x(seconds):.1f} V {_y(1 - number / len(hunts)):.1f}")
    return " ".join([*steps, f"H {_x(_LAST):.1f}"])


def _x(seconds: float) -> float:
    within = min(max(seconds, _FIRST), _LAST)
    return _LEFT + (_WIDTH - _LEFT - 16) * math.log(within / _FIRST) / math.log(_LAST / _FIRST)


def _y(share: float) -> float:
    return 10 + (_HEIGHT - _BOTTOM - 10) * (1 - share)


def ratio(before: Sequence[Hunt], after: Sequence[Hunt]) -> str:
    """How many times shorter the CPU seconds to the failure are, over the hunts that both have."""
    of = {one.key: one.failure for one in before}
    pairs = [(of.get(one.key), one.failure) for one in after]
    both = [(first, second) for first, second in pairs if first is not None and second]
    if not both:
        return "no hunt of both runs found its defect"
    medians = [statistics.median(times) for times in zip(*both, strict=True)]
    return f"{len(both)} hunts of both: median {medians[0]:.1f} and {medians[1]:.1f} CPU s, {medians[0] / medians[1]:.2f} times"
