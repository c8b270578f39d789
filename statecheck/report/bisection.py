"""Since when a case is wrong: the verdicts on some of a subject's versions, oldest first, and what they come to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal

from statecheck.data.decode import Decoder
from statecheck.data.files import write_whole
from statecheck.data.json_files import load as read_json
from statecheck.text import brief
from statecheck.text.markdown import escaped, inert, table

FILE = "bisection.json"
"""In the folder of a report."""
RIGHT, WRONG, NOT_APPLICABLE = "right", "wrong", "not applicable"
STATES = {"FIXED": RIGHT, "FAILED": WRONG, "KNOWN": WRONG, "NOT APPLICABLE": NOT_APPLICABLE}
"""What a replay's verdict says of a version; any other one says nothing."""
NOT_SET_UP = "CANNOT BE SET UP"
NO_VERDICT = "NO VERDICT"
_SCHEMA = 1
_LARGEST = 1 << 22
_RULE = "what `make bisect` writes"
_LONGEST, _SHORT = 200, 100
TITLE, BEFORE = "## Since when it is wrong", "## Run it again"
"""The section of a report, and the one that it stands before."""
ROOM = 4_000
"""Characters of that section, which every report has left."""


@dataclass(frozen=True)
class TriedVersion:
    """A version that the case was replayed on.

    Args:
        verdict: the replay's, NOT_SET_UP where the version could not be installed, or NO_VERDICT.
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
    """What was tried of `names`, which are all versions that were asked for, oldest first.

    Args:
        tried: in any order.
        titles: of commits, by name: their first lines.
        complete: whether there are no other versions between these.
        interrupted: whether it ended before all was tried that it takes.
    """

    over: Literal["releases", "commits"]
    names: tuple[str, ...]
    tried: tuple[TriedVersion, ...] = ()
    titles: dict[str, str] = field(default_factory=dict, hash=False)
    complete: bool = True
    interrupted: bool = False

    def with_tried(self, version: TriedVersion) -> Bisection:
        return replace(self, tried=(*self.tried, version))

    @property
    def by_name(self) -> dict[str, TriedVersion]:
        return {one.name: one for one in self.tried}

    @property
    def decided(self) -> list[TriedVersion]:
        """Those that something is known of, oldest first."""
        found = self.by_name
        return [found[name] for name in self.names if name in found and found[name].state]

    @property
    def untried(self) -> list[str]:
        found = self.by_name
        return [name for name in self.names if name not in found]

    @property
    def newest(self) -> TriedVersion | None:
        """The verdict on the last one, None where it was not tried."""
        return self.by_name.get(self.names[-1]) if self.names else None

    def between(self, first: str, last: str) -> list[str]:
        """Names after `first` and before `last`."""
        return list(self.names[self.names.index(first) + 1 : self.names.index(last)])

    @property
    def line(self) -> str:
        """Since when it is wrong and right: every change between versions that were tried."""
        runs = [(state, list(found)) for state, found in groupby(self.decided, lambda one: one.state)]
        if not runs:
            return f"not known: none of {len(self.tried)} {self.over} gave a verdict"
        if len(runs) == 1:
            return f"{runs[0][0]} in {self._all_of(runs[0][1])}"
        parts = [self._first(runs[0][1][0])] if runs[0][0] == WRONG else []
        for (before, earlier), (state, found) in pairwise(runs):
            remark = " (not applicable before)" if before == NOT_APPLICABLE else ""
            doubt = self._doubt(earlier[-1], found[0])
            parts.append(f"{state} since {self._named(found[0].name)}{doubt}{remark}")
        return ", ".join(parts)

    def _all_of(self, found: Sequence[TriedVersion]) -> str:
        """All that gave a verdict."""
        oldest, newest = (self._named(one.name) for one in (found[0], found[-1]))
        if len(found) == 1:
            return f"{oldest}, the only one of {len(self.tried)} {self.over} tried that gave a verdict"
        return f"all {len(found)} {self.over} that gave a verdict, {oldest} to {newest}"

    def _first(self, wrong: TriedVersion) -> str:
        """What is wrong in the oldest one was not seen to begin."""
        return f"wrong since {self._named(wrong.name)} or before"

    def _doubt(self, before: TriedVersion, after: TriedVersion) -> str:
        """A change is exact between two versions that nothing lies between."""
        undecided = self.between(before.name, after.name)
        if self.complete and not undecided:
            return ""
        remark = f" (no verdict on {', '.join(map(self._named, undecided))})" if undecided else ""
        return f" at the latest{remark}"

    def _named(self, name: str) -> str:
        title = brief(self.titles.get(name, ""), 60)
        return f"{name} ({title})" if title else name

    @property
    def is_monotone(self) -> bool:
        """Whether it was wrong once at most, and not wrong again after it had been right."""
        states = [
            state for state, _ in groupby(one.state for one in self.decided if one.state != NOT_APPLICABLE)
        ]
        return states.count(WRONG) <= 1

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Version, what is known of it, and why; neighbours that were not tried stand together."""
        found = self.by_name
        rows: list[tuple[str, str, str]] = []
        for tried, names in groupby(self.names, lambda name: name in found):
            group = list(names)
            if tried:
                rows += [(self._named(one), *found[one].cells) for one in group]
            else:
                ends = " to ".join(dict.fromkeys((group[0], group[-1])))
                rows.append((ends, "not tried", f"{len(group)} {self.over}"))
        return rows

    @property
    def remarks(self) -> list[str]:
        """What else has to be said: of what was not tried, and of changes to and fro."""
        remarks = []
        if not self.is_monotone:
            remarks.append(
                "It was wrong, right, and wrong again: there may be more changes between versions that were not tried."
            )
        if self.interrupted:
            remarks.append(
                f"It was interrupted: {len(self.untried)} of {len(self.names)} {self.over} were not tried."
            )
        elif self.untried:
            remarks.append(
                f"{len(self.untried)} of {len(self.names)} {self.over} were not tried: between two of the same verdict it was taken "
                "to be the same."
            )
        return remarks


def save(folder: Path, bisection: Bisection) -> None:
    """Keep it in the folder of a report, beside one over something else."""
    kept = {one.over: one for one in saved(folder)} | {bisection.over: bisection}
    data = [{**asdict(one), "line": one.line} for _, one in sorted(kept.items(), reverse=True)]
    write_whole(folder / FILE, json.dumps({"schema": _SCHEMA, "bisections": data}, indent=1) + "\n")


def saved(folder: Path) -> list[Bisection]:
    """Those of a report's folder; none where there is no such file, or one that cannot be read."""
    try:
        data = read_json(folder / FILE, _RULE, largest=_LARGEST)
        return [_read(one) for one in data["bisections"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []


def _read(data: dict[str, Any]) -> Bisection:
    kept = {name: item for name, item in data.items() if name != "line"}
    bisection: Bisection = Decoder().build(Bisection, kept, _RULE)
    return bisection


def section_of(folder: Path) -> str:
    """What a report says of the bisections in its folder, in at most `ROOM` characters; "" where there are none."""
    found = [one for one in saved(folder) if one.names]
    room = (ROOM - len(TITLE)) // max(1, len(found)) - len("\n\n")
    return "\n\n".join([TITLE, *(_shortened(one, room) for one in found)]) if found else ""


def _shortened(bisection: Bisection, room: int) -> str:
    """The line, and as much of the table as there is room for: its last rows."""
    line = f"**{inert(brief(bisection.line, room // 3))}**"
    parts = [line, *map(inert, bisection.remarks)]
    rows = [(escaped(name, _SHORT), verdict, escaped(why, _SHORT)) for name, verdict, why in bisection.rows]
    while rows:
        text = "\n\n".join(
            [*parts[:1], "\n".join(table((bisection.over[:-1], "verdict", ""), rows)), *parts[1:]]
        )
        if len(text) <= room:
            return text
        rows = rows[1:]
        parts = [line, f"`{FILE}` has the whole table.", *map(inert, bisection.remarks)]
    return line


def with_section(text: str, folder: Path) -> str:
    """A report with what is known of when its case became wrong, in place of what it said of that before."""
    head, mark, rest = text.rpartition(f"\n{BEFORE}\n")
    section = section_of(folder)
    if not mark or not section:
        return text
    head = head.partition(f"\n{TITLE}\n")[0] if f"\n{TITLE}\n" in head else head
    return f"{head.rstrip()}\n\n{section}\n{mark}{rest}"
