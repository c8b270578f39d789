"""Known defects in a campaign: how often each shows, and which seem to be gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oracle.profile import DOCUMENTS, Profile
from statecheck.campaign.known.known_defects import KnownDefectMatcher, TriedProperty, standing_of
from statecheck.campaign.record_parts import KnownRecord
from statecheck.campaign.standing import Standing
from statecheck.execution.verdict import Status
from statecheck.subject import KnownDeviation


class KnownDefects:
    """All that a subject declares, in its order: `all` has the record of each by its name.

    Args:
        selected: whether only some properties are tried, so that those of a pattern may be others.
        profile: the rules of the subject's release, for conditions.
    """

    def __init__(
        self, declared: Sequence[KnownDeviation], *, selected: bool = False, profile: Profile = DOCUMENTS
    ) -> None:
        self.matcher = KnownDefectMatcher(declared, profile)
        self.all = {
            name: KnownRecord(name, one.title, one.link) for name, one in self.matcher.declared.items()
        }
        self._selected = selected

    def count(self, rows: Mapping[str, Standing]) -> list[KnownRecord]:
        """The record of each, with the failing examples by property that the standings have."""
        for name, record in self.all.items():
            record.properties = {
                row.name: row.deviations[name] for row in rows.values() if row.deviations[name]
            }
        return [*self.all.values()]

    def conclude(self, rows: Mapping[str, Standing]) -> None:
        """What to think of each at the end of a campaign."""
        self.count(rows)
        tried_here = set(rows) | {row.tested.id for row in rows.values()}
        for name, declared in self.matcher.declared.items():
            record = self.all[name]
            record.standing, record.remark = standing_of(
                declared.one_in,
                [_tried(row) for row in rows.values() if declared.covers(row.name, row.tested.id)],
                showed=bool(record.properties),
                complete=not self._selected or set(declared.names) <= tried_here,
            )
            for row in rows.values():
                if record.stale and declared.alone in (row.name, row.tested.id):
                    row.stale = f"declared as known, but no example failed: {declared.link}"


def _tried(row: Standing) -> TriedProperty:
    return TriedProperty(row.status is not Status.NOT_APPLICABLE, row.counts.compared, row.detail)
