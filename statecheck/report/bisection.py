"""Since when a case is wrong: the verdicts on some of a subject's releases, oldest first, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from statecheck.util.files import write_text
from statecheck.util.markdown import fenced, inert
from statecheck.util.text import brief

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
        return {release.name: release for release in self.tried}

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
        runs = [(state, list(found)) for state, found in groupby(self.decided, lambda release: release.state)]
        if not runs:
            return f"not known: none of {len(self.tried)} releases gave a verdict"
        if len(runs) == 1:
            state, found = runs[0]
            if len(found) == 1:
                return f"{state} in {found[0].name}, the only release that gave a verdict"
            return f"{state} in all {len(found)} releases that gave a verdict, {found[0].name} to {found[-1].name}"
        # What is wrong in the oldest one was not seen to begin.
        parts = [f"wrong since {runs[0][1][0].name} or before"] if runs[0][0] == WRONG else []
        for (before, earlier), (state, found) in pairwise(runs):
            note = " (not applicable before)" if before == NOT_APPLICABLE else ""
            # A change is exact between two releases that nothing lies between.
            undecided = self.between(earlier[-1].name, found[0].name)
            doubt = "" if self.complete and not undecided else " at the latest"
            doubt += f" (no verdict on {', '.join(undecided)})" if undecided else ""
            parts.append(f"{state} since {found[0].name}{doubt}{note}")
        return ", ".join(parts)

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Of each release that was tried its name, what is known of it, and why."""
        found = self.by_name
        return [(name, *found[name].cells) for name in self.names if name in found]

    @property
    def note(self) -> str:
        """How much was not tried, and why; "" where nothing is left."""
        if not self.untried:
            return ""
        untried = f"{len(self.untried)} of {len(self.names)} releases were not tried"
        if self.interrupted:
            return f"It was interrupted: {untried}."
        return f"{untried}: between two of the same verdict it was taken to be the same."

    @property
    def section(self) -> str:
        """What a report says of it, the newest release first, in at most `ROOM` characters."""
        rows = [brief(" | ".join(filter(None, row)), _LONGEST_ROW) for row in reversed(self.rows)]
        left_out = f"{len(rows) - _MOST_ROWS} older rows are left out here." if len(rows) > _MOST_ROWS else ""
        line = f"**{inert(brief(self.line, _LONGEST))}**"
        parts = (TITLE, line, fenced("\n".join(rows[:_MOST_ROWS]), "text"), inert(self.note), left_out)
        return "\n\n".join(filter(None, parts))


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
