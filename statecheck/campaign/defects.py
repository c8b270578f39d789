"""Known defects in a campaign: how often each shows, a report of each that does, and which seem to be gone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from oracle.profile import DOCUMENTS, Profile
from statecheck.campaign.known_defects import (
    GONE,
    NOT_TRIED,
    KnownDefectMatcher,
    TriedProperty,
    standing_of,
)
from statecheck.campaign.pending import KNOWN_PREFIX
from statecheck.campaign.processes.tasks import Explore, Explored
from statecheck.campaign.record_parts import KnownRecord
from statecheck.campaign.standing import Standing
from statecheck.execution.verdict import Status
from statecheck.subject import KnownDeviation

SHARE = 0.35
"""The part of a campaign that reports of known defects may take."""
LONGEST, PART, SHORTEST = 15.0, 1 / 20, 1.0
"""Seconds in which a known defect's input is searched and shrunk, or a part of a long campaign; and the least."""


def reports_of(reports: Path, name: str) -> Path:
    """The folder of a known defect's reports."""
    return reports / "known" / name


def pending_name(name: str) -> str:
    """What the pending case of a known defect is called, in place of a property."""
    return f"{KNOWN_PREFIX}{name}"


def label(name: str, declared: KnownDeviation) -> str:
    """What its reports begin with."""
    title = f": {declared.title}" if declared.title else ""
    return f"**Known defect {name}{title}, {declared.link}**"


@dataclass
class Defect:
    """A known defect as a campaign sees it: in how many examples of which properties it showed, and where the report is.

    `standing` is "showed", "no longer fails", "not tried enough" or "not tried"; `remark` is another sentence for the reader.
    """

    name: str
    declared: KnownDeviation
    properties: Counter[str] = field(default_factory=Counter)
    report: str = ""
    standing: str = NOT_TRIED
    remark: str = ""
    attempted: bool = False
    _task: Explore | None = None
    _rate: float = 0.0

    @property
    def examples(self) -> int:
        return self.properties.total()

    @property
    def stale(self) -> bool:
        return self.standing == GONE

    def showed(self, task: Explore, examples: int, seconds: float) -> None:
        """Count the examples of a task in which it showed."""
        self.properties[task.property] += examples
        rate = examples / max(seconds, 1e-3)
        if rate > self._rate:
            self._task, self._rate = task, rate

    @property
    def can_be_reported(self) -> bool:
        """Whether a task showed it, and not only what a worker had in hand that died."""
        return self._task is not None

    def to_report(self, seconds: float) -> Explore:
        """The task that showed it most often for its time, once more, to find and shrink the smallest input."""
        assert self._task is not None
        self.attempted = True
        return replace(self._task, shown=self.name, patience=seconds, deadline=seconds, enough=0)

    def conclude(self, rows: Mapping[str, Standing], *, selected: bool = False) -> None:
        """What to think of it at the end of a campaign."""
        of_it = [row for row in rows.values() if self.declared.covers(row.name, row.tested.id)]
        tried_here = set(rows) | {row.tested.id for row in rows.values()}
        self.standing, remark = standing_of(
            self.declared.one_in,
            [_tried(row) for row in of_it],
            showed=bool(self.examples),
            complete=not selected or set(self.declared.names) <= tried_here,
        )
        self.remark = remark or self.remark

    def record(self) -> KnownRecord:
        """As it stands in a campaign's record."""
        declared = self.declared
        return KnownRecord(
            self.name,
            declared.title,
            declared.link,
            self.standing,
            dict(self.properties),
            self.report,
            self.remark,
        )


def _longest(budget: float) -> float:
    return max(LONGEST, PART * budget)


def _tried(row: Standing) -> TriedProperty:
    return TriedProperty(row.status is not Status.NOT_APPLICABLE, row.counts.compared, row.detail)


class KnownDefects:
    """All that a subject declares, in its order.

    Args:
        selected: whether only some properties are tried, so that those of a pattern may be others.
        profile: the rules of the subject's release, for conditions.
    """

    def __init__(
        self, declared: Sequence[KnownDeviation], *, selected: bool = False, profile: Profile = DOCUMENTS
    ) -> None:
        self.matcher = KnownDefectMatcher(declared, profile)
        self.all = {name: Defect(name, declaration) for name, declaration in self.matcher.declared.items()}
        self._selected = selected

    @property
    def stale(self) -> list[Defect]:
        return [defect for defect in self.all.values() if defect.stale]

    @property
    def waiting(self) -> list[Defect]:
        """Those that showed in a task and have no report yet, nor one that is being written."""
        return [defect for defect in self.all.values() if defect.can_be_reported and not defect.attempted]

    def reserve(self, budget: float, workers: int) -> float:
        """The seconds at the end of a campaign that the waiting ones' reports take."""
        return min(SHARE * budget, math.ceil(len(self.waiting) / workers) * _longest(budget))

    def next_report(self, budget: float, left: float, workers: int) -> Explore | None:
        """The report to write next, in its share of the seconds that are left."""
        waiting = self.waiting
        if not waiting or left <= 0:
            return None
        fair = left / math.ceil(len(waiting) / workers)
        return waiting[0].to_report(max(SHORTEST, min(_longest(budget), fair)))

    def explored(self, task: Explore, message: Explored) -> None:
        for name, shown in message.known.items():
            if name in self.all:
                self.all[name].showed(task, shown, message.seconds)

    def reported(self, task: Explore, message: Explored) -> None:
        """A report was written, or could not be."""
        defect = self.all[task.shown]
        defect.report, defect.remark = message.report, message.remark
        if message.status != "falsified":
            last = (message.detail.strip().splitlines() or ["it did not show again"])[-1]
            defect.remark = f"not shrunk: {last}"

    def died(self, task: Explore, why: str) -> None:
        self.all[task.shown].remark = f"not shrunk: {why}"

    def conclude(self, rows: Mapping[str, Standing]) -> None:
        for defect in self.all.values():
            defect.conclude(rows, selected=self._selected)
            if defect.examples and not defect.attempted:
                defect.remark = "not shrunk: no time was left"

    def records(self) -> list[KnownRecord]:
        return [defect.record() for defect in self.all.values()]
