"""Declared defects in a campaign: the examples that showed each, and what to think of it at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from oracle.profile import DOCUMENTS, Profile
from statecheck.campaign.record import KnownRecord
from statecheck.campaign.state import PropertyState
from statecheck.execution.verdict import Status
from statecheck.subject import KnownDefectMatcher, KnownDeviation
from statecheck.subject.known import TriedProperty, standing_of


class KnownDefects:
    """All that a subject declares, in its order: `all` has the record of each by its name.

    Args:
        selected: whether only some properties are tried, so that those of a pattern may be others.
        tolerates_fixed: a property whose declared defect no longer fails has passed.
        profile: the rules of the subject's release, for conditions.
    """

    def __init__(
        self,
        declared: Sequence[KnownDeviation],
        *,
        selected: bool = False,
        tolerates_fixed: bool = False,
        profile: Profile = DOCUMENTS,
    ) -> None:
        self.matcher = KnownDefectMatcher(declared, profile)
        self.all = {
            name: KnownRecord(name, one.title, one.link) for name, one in self.matcher.declared.items()
        }
        self._selected, self._tolerates_fixed = selected, tolerates_fixed

    def count(self, rows: Mapping[str, PropertyState]) -> None:
        """Put the failing examples by property into the record of each."""
        for name, record in self.all.items():
            shown: Counter[str] = Counter()
            for row in rows.values():
                shown[row.id] += row.record.known[name]
            record.properties = {property_id: count for property_id, count in shown.items() if count}

    def conclude(self, rows: Mapping[str, PropertyState]) -> None:
        """What to think of each at the end of a campaign."""
        self.count(rows)
        tried_here = {row.id for row in rows.values()}
        tried = [(declared, _tried(declared, rows)) for declared in self.matcher.declared.values()]
        for name, (declared, properties) in zip(self.matcher.declared, tried, strict=True):
            record = self.all[name]
            record.standing, record.remark = standing_of(
                declared.one_in,
                properties,
                showed=bool(record.properties),
                complete=not self._selected or set(declared.names) <= tried_here,
            )
            for row in rows.values():
                is_stale = record.stale and not self._tolerates_fixed
                if is_stale and declared.alone == row.id:
                    row.stale = f"declared as known, but no example failed: {declared.link}"


def _tried(declared: KnownDeviation, rows: Mapping[str, PropertyState]) -> list[TriedProperty]:
    """What came of each property that a declaration covers, with all configurations of the subject together."""
    together: dict[str, list[PropertyState]] = {}
    for row in rows.values():
        if declared.covers(row.id):
            together.setdefault(row.id, []).append(row)
    return [
        TriedProperty(
            any(row.status is not Status.NOT_APPLICABLE for row in same),
            sum(row.record.counts.compared for row in same),
            "; ".join(dict.fromkeys(row.detail for row in same if row.detail)),
        )
        for same in together.values()
    ]
