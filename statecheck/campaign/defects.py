"""Known defects in a campaign: how often each shows, and which seem to be gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oracle.profile import DOCUMENTS, Profile
from statecheck.campaign.known_defects import (
    GONE,
    NOT_TRIED,
    KnownDefectMatcher,
    TriedProperty,
    standing_of,
)
from statecheck.campaign.processes.tasks import Explored
from statecheck.campaign.record_parts import KnownRecord
from statecheck.campaign.standing import Standing
from statecheck.execution.verdict import Status
from statecheck.subject import KnownDeviation


@dataclass
class Defect:
    """A known defect as a campaign sees it: in how many examples of which properties it showed.

    `standing` is "showed", "no longer fails", "not tried enough" or "not tried"; `remark` is another sentence for the reader.
    """

    name: str
    declared: KnownDeviation
    properties: Counter[str] = field(default_factory=Counter)
    standing: str = NOT_TRIED
    remark: str = ""

    @property
    def stale(self) -> bool:
        return self.standing == GONE

    def conclude(self, rows: Mapping[str, Standing], *, selected: bool = False) -> None:
        """What to think of it at the end of a campaign."""
        of_it = [row for row in rows.values() if self.declared.covers(row.name, row.tested.id)]
        tried_here = set(rows) | {row.tested.id for row in rows.values()}
        self.standing, self.remark = standing_of(
            self.declared.one_in,
            [_tried(row) for row in of_it],
            showed=bool(self.properties),
            complete=not selected or set(self.declared.names) <= tried_here,
        )

    def record(self) -> KnownRecord:
        """As it stands in a campaign's record."""
        declared, properties = self.declared, dict(self.properties)
        return KnownRecord(self.name, declared.title, declared.link, self.standing, properties, self.remark)


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

    def explored(self, message: Explored) -> None:
        """Count the examples in which one showed."""
        for name, shown in message.known.items():
            if name in self.all:
                self.all[name].properties[message.property] += shown

    def conclude(self, rows: Mapping[str, Standing]) -> None:
        for defect in self.all.values():
            defect.conclude(rows, selected=self._selected)

    def records(self) -> list[KnownRecord]:
        return [defect.record() for defect in self.all.values()]
