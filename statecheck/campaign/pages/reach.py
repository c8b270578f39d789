"""The page of what a campaign reached: refusals of the rules, lines and branches of the rules, of the subject, and of its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oracle.situations.registry import Situation
from statecheck.campaign.record_parts import MarkRecord
from statecheck.kernels.coverage import Coverage
from statecheck.reach.source import Point, source


@dataclass
class Share:
    """How many of some things there are, and those that were not reached, a line for each."""

    name: str
    number: int
    missed: list[str] = field(default_factory=list)

    @property
    def reached(self) -> int:
        return self.number - len(self.missed)


@dataclass
class ReachPage:
    """What was reached; `refusals` has a mark of every refusal that there is, `wrong` what the list of exceptions has wrong."""

    shares: list[Share]
    refusals: list[MarkRecord]
    never: dict[str, str]
    wrong: list[str]

    def table(self) -> Iterator[tuple[str, int, int]]:
        """By what it is about: how much was reached, and how much there is."""
        for share in self.shares:
            yield share.name, share.reached, share.number

    def markdown(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# What was reached"
        yield ""
        yield "| | reached | there are |"
        yield "|---|---:|---:|"
        yield from (f"| {name} | {reached:,} | {number:,} |" for name, reached, number in self.table())
        for sentence in self.wrong:
            yield f"\n**{sentence}**"
        for share in self.shares:
            if share.missed:
                yield f"\n## Never reached: {share.name}\n"
                yield from (f"- {line}" for line in share.missed)
        yield "\n## Refusals, with examples that reached them\n"
        yield "| refusal | examples | first by |"
        yield "|---|---:|---|"
        for mark in sorted(self.refusals, key=lambda one: (one.topic, one.name)):
            if mark.name not in self.never:
                yield f"| {_cell(mark.name)} | {mark.examples:,} | {_cell(mark.property)} |"
        yield "\n## Refusals that no property can reach\n"
        for why in dict.fromkeys(self.never.values()):
            yield f"\n{why}\n"
            yield from (f"- `{name}`" for name, reason in self.never.items() if reason == why)


def reach_page(
    refusals: Mapping[str, Situation],
    marks: Mapping[str, MarkRecord],
    points: Iterable[Point],
    rooms: Mapping[str, Sequence[str]],
    covered: Coverage,
) -> ReachPage:
    """What was reached.

    Args:
        refusals: every refusal that there is, by name.
        marks: those of the campaign, by name.
        points: lines and branches that were reached.
        rooms: the files of the rules and of the subject, by what they are called.
    """
    found = [marks.get(name) or MarkRecord(name, one.topic) for name, one in refusals.items()]
    never = {name: one.never for name, one in refusals.items() if one.never}
    wrong = [
        f"{mark.name}: an example reached it, so that it should not be among the refusals that no property reaches"
        for mark in found
        if mark.name in never and mark.examples
    ]
    missed = [f"`{mark.name}`" for mark in found if not mark.examples and mark.name not in never]
    shares = [Share("refusals", len(found) - len(never), missed)]
    reached = set(points)
    for room, files in rooms.items():
        shares += _shares_of(room, files, reached)
    ways = sorted(covered.branches - covered.taken)
    kernels = [f"`{one.file}:{one.line}` {one.kernel}, never {one.way}: `{one.text}`" for one in ways]
    shares.append(
        Share("branches of kernels that were launched", len(covered.branches | covered.taken), kernels)
    )
    return ReachPage(shares, found, never, wrong)


def _shares_of(room: str, files: Sequence[str], reached: set[Point]) -> list[Share]:
    lines, branches = Share(f"lines of {room}", 0), Share(f"branches of {room}", 0)
    for file in files:
        for point in sorted(source(file).points()):
            share = branches if point.way else lines
            share.number += 1
            if point not in reached:
                share.missed.append(_shown(point))
    return [lines, branches]


def _shown(point: Point) -> str:
    text = source(point.file).text[point.line - 1]
    place = f"`{_short(point.file)}:{point.line}`"
    if not point.way:
        return f"{place} `{text.strip()}`"
    return f"{place} never {point.way}: `{text[point.column :].strip()}`"


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
