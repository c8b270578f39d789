"""Since when a case is wrong: the verdicts on some of a subject's releases, oldest first, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from statecheck.data.files import write_text
from statecheck.text import brief
from statecheck.text.markdown import fenced, inert

FILE = "bisection.md"
"""In the folder of a report: its section, which a report of the same case that is written anew gets too."""
RIGHT, WRONG, NOT_APPLICABLE = "right", "wrong", "not applicable"
STATES = {"FIXED": RIGHT, "FAILED": WRONG, "KNOWN": WRONG, "NOT APPLICABLE": NOT_APPLICABLE}
"""What a replay's verdict says of a release; any other one says nothing."""
NOT_SET_UP = "CANNOT BE SET UP"
NO_VERDICT = "NO VERDICT"
_LONGEST = 200
_LONGEST_ROW, _MOST_ROWS = 100, 30
TITLE, BEFORE = "## Since when it is wrong", "## Run it again"
"""The section of a report, and the one that it stands before."""
ROOM = 4_000
"""Characters of that section, which every report has left."""


@dataclass(frozen=True)
class TriedRelease:
    """A release that the case was replayed on.

    Args:
        verdict: the replay's, NOT_SET_UP where the release could not be installed, or NO_VERDICT.
        message: the line that explains it.
        seconds: how long it took, with what had to be set up.
    """

    name: str
    verdict: str
    message: str = ""
    seconds: float = 0.0

    @property
    def state(self) -> str | None:
        """RIGHT, WRONG or NOT_APPLICABLE; None where nothing is known of it."""
        return STATES.get(self.verdict)

    @property
    def cells(self) -> tuple[str, str]:
        """What is known of it, and why where it is not right."""
        state = self.state or self.verdict.lower()
        return state, "" if state == RIGHT else brief(self.message, _LONGEST)


@dataclass(frozen=True)
class Bisection:
    """What was tried of `names`, which are all releases that were asked for, oldest first.

    Args:
        tried: in any order.
        complete: whether there are no other releases between these.
        interrupted: whether it ended before all was tried that it takes.
    """

    names: tuple[str, ...]
    tried: tuple[TriedRelease, ...] = ()
    complete: bool = True
    interrupted: bool = False

    @property
    def by_name(self) -> dict[str, TriedRelease]:
        return {one.name: one for one in self.tried}

    @property
    def decided(self) -> list[TriedRelease]:
        """Those that something is known of, oldest first."""
        found = self.by_name
        return [found[name] for name in self.names if name in found and found[name].state]

    @property
    def untried(self) -> list[str]:
        found = self.by_name
        return [name for name in self.names if name not in found]

    @property
    def newest(self) -> TriedRelease | None:
        """The verdict on the last one, None where it was not tried."""
        return self.by_name.get(self.names[-1]) if self.names else None

    def between(self, first: str, last: str) -> list[str]:
        """Names after `first` and before `last`."""
        return list(self.names[self.names.index(first) + 1 : self.names.index(last)])

    @property
    def line(self) -> str:
        """Since when it is wrong and right: every change between releases that were tried."""
        runs = [(state, list(found)) for state, found in groupby(self.decided, lambda one: one.state)]
        if not runs:
            return f"not known: none of {len(self.tried)} releases gave a verdict"
        if len(runs) == 1:
            return f"{runs[0][0]} in {self._all_of(runs[0][1])}"
        # What is wrong in the oldest one was not seen to begin.
        parts = [f"wrong since {runs[0][1][0].name} or before"] if runs[0][0] == WRONG else []
        for (before, earlier), (state, found) in pairwise(runs):
            remark = " (not applicable before)" if before == NOT_APPLICABLE else ""
            doubt = self._doubt(earlier[-1], found[0])
            parts.append(f"{state} since {found[0].name}{doubt}{remark}")
        return ", ".join(parts)

    def _all_of(self, found: Sequence[TriedRelease]) -> str:
        """All that gave a verdict."""
        oldest, newest = found[0].name, found[-1].name
        if len(found) == 1:
            return f"{oldest}, the only one of {len(self.tried)} releases tried that gave a verdict"
        return f"all {len(found)} releases that gave a verdict, {oldest} to {newest}"

    def _doubt(self, before: TriedRelease, after: TriedRelease) -> str:
        """A change is exact between two releases that nothing lies between."""
        undecided = self.between(before.name, after.name)
        if self.complete and not undecided:
            return ""
        remark = f" (no verdict on {', '.join(undecided)})" if undecided else ""
        return f" at the latest{remark}"

    @property
    def is_monotone(self) -> bool:
        """Whether it was wrong once at most, and not wrong again after it had been right."""
        states = [
            state for state, _ in groupby(one.state for one in self.decided if one.state != NOT_APPLICABLE)
        ]
        return states.count(WRONG) <= 1

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Release, what is known of it, and why; neighbours that were not tried stand together."""
        found = self.by_name
        rows: list[tuple[str, str, str]] = []
        for tried, names in groupby(self.names, lambda name: name in found):
            group = list(names)
            if tried:
                rows += [(one, *found[one].cells) for one in group]
            else:
                ends = " to ".join(dict.fromkeys((group[0], group[-1])))
                rows.append((ends, "not tried", f"{len(group)} releases"))
        return rows

    @property
    def remarks(self) -> list[str]:
        """What else has to be said: of what was not tried, and of changes to and fro."""
        remarks = []
        if not self.is_monotone:
            remarks.append(
                "It was wrong, right, and wrong again: there may be more changes between releases that were not tried."
            )
        if self.interrupted:
            remarks.append(
                f"It was interrupted: {len(self.untried)} of {len(self.names)} releases were not tried."
            )
        elif self.untried:
            remarks.append(
                f"{len(self.untried)} of {len(self.names)} releases were not tried: between two of the same verdict it was taken "
                "to be the same."
            )
        return remarks

    @property
    def section(self) -> str:
        """What a report says of it, the newest release first, in at most `ROOM` characters."""
        rows = [brief(" | ".join(filter(None, row)), _LONGEST_ROW) for row in reversed(self.rows)]
        left_out = f"{len(rows) - _MOST_ROWS} older rows are left out here."
        remarks = [*self.remarks, *([left_out] if len(rows) > _MOST_ROWS else [])]
        line = f"**{inert(brief(self.line, _LONGEST))}**"
        return "\n\n".join([TITLE, line, fenced("\n".join(rows[:_MOST_ROWS]), "text"), *map(inert, remarks)])


def save(folder: Path, bisection: Bisection) -> None:
    """Keep its section in the folder of a report."""
    write_text(folder / FILE, f"{bisection.section}\n")


def with_section(text: str, folder: Path) -> str:
    """A report with what is known of when its case became wrong, in place of what it said of that before."""
    head, mark, rest = text.rpartition(f"\n{BEFORE}\n")
    if not mark or not (folder / FILE).is_file():
        return text
    section = (folder / FILE).read_text(encoding="utf-8").rstrip()
    before = head.partition(f"\n{TITLE}\n")[0]
    return f"{before.rstrip()}\n\n{section}\n{mark}{rest}"
