"""Known defects of a subject: which of them an example shows, and when one counts as gone, in campaigns and in test runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oracle.profile import DOCUMENTS, Profile
from statecheck.campaign.record import KnownRecord
from statecheck.campaign.state import PropertyState
from statecheck.case import Case
from statecheck.execution.verdict import Status
from statecheck.subject import KnownDefectIndex, KnownDeviation


def names_of(declared: Sequence[KnownDeviation]) -> tuple[str, ...]:
    """A name for each, unlike the others', that may name a file."""
    names: dict[str, None] = {}
    for number, defect in enumerate(declared, 1):
        name = re.sub(r"[^\w.-]", "_", defect.id or defect.alone or f"known-{number}").lstrip(".") or "known"
        while name in names:
            name = f"{name}-{number}"
        names[name] = None
    return tuple(names)


class KnownDefectMatcher:
    """Counts the failing examples that show a declared defect.

    `hidden`: the sanitizer's finding was one of them.

    Args:
        profile: the rules of the subject's release, for conditions that ask about them.
    """

    def __init__(self, declared: Sequence[KnownDeviation], profile: Profile) -> None:
        self.declared = dict(zip(names_of(declared), declared, strict=True))
        self.shown: Counter[str] = Counter()
        self.hidden = False
        self._names = {id(defect): name for name, defect in reversed(self.declared.items())}
        self._index = KnownDefectIndex(declared, profile)

    @property
    def errors(self) -> tuple[str, ...]:
        """What conditions raised, a sentence for each declaration."""
        return tuple(self._index.errors.values())

    def clear(self) -> None:
        self.shown.clear()
        self.hidden = False

    def known(self, case: Case) -> KnownDeviation | None:
        """The defect that a failing example shows, which is counted; None where it is new."""
        name = self.name_of(case)
        if name is None:
            return None
        self.shown[name] += 1
        self.hidden = self.hidden or case.sanitized
        return self.declared[name]

    def name_of(self, case: Case) -> str | None:
        """The name of the known defect that a case shows."""
        found = self._index.find(case)
        return None if found is None else self._names[id(found)]

    def nearest(self, case: Case) -> str:
        """See `KnownDefectIndex.nearest`."""
        return self._index.nearest(case)


SHOWED, GONE, NOT_ENOUGH, NOT_TRIED = "showed", "no longer fails", "not tried enough", "not tried"
_TIMES = 10
# (1 - 1/n)^(10 n) is about e^-10: of a defect that one example in n shows, 10 n examples miss it once in 22,000 times, so
# that a campaign of hundreds of properties calls none gone by chance.


@dataclass(frozen=True)
class TriedProperty:
    """What came of a property in which a defect may show.

    Args:
        applies: whether the property says something about the subject.
        compared: examples that were compared.
        reason: why there were none, or no more.
    """

    applies: bool
    compared: int
    reason: str = ""


def enough(one_in: int) -> int:
    """The compared examples of each of its properties after which a defect that did not show is gone.

    Args:
        one_in: see `KnownDeviation`.
    """
    return _TIMES * one_in


def standing_of(
    one_in: int, rows: Sequence[TriedProperty], *, showed: bool, complete: bool
) -> tuple[str, str]:
    """What to think of a declared defect, and a remark.

    Args:
        rows: the properties in which it may show, as far as they were chosen.
        complete: whether these are all of its properties.
    """
    if showed:
        return SHOWED, ""
    tried = [row for row in rows if row.applies and row.compared]
    if not tried:
        reasons = dict.fromkeys(row.reason for row in rows if row.reason)
        return NOT_TRIED, "; ".join(reasons) if rows else "none of its properties was chosen"
    gone = complete and all(not row.applies or row.compared >= enough(one_in) for row in rows)
    many = f"{len(tried)} propert{'y' if len(tried) == 1 else 'ies'}"
    remark = f"{sum(row.compared for row in tried):,} examples of {many} did not show it"
    return GONE if gone else NOT_ENOUGH, remark


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
                shown[row.name] += row.record.known[name]
            record.properties = {property_name: count for property_name, count in shown.items() if count}

    def conclude(self, rows: Mapping[str, PropertyState]) -> None:
        """What to think of each at the end of a campaign."""
        self.count(rows)
        tried_here = {row.name for row in rows.values()} | {row.tested.id for row in rows.values()}
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
                if is_stale and declared.alone in (row.name, row.tested.id):
                    row.stale = f"declared as known, but no example failed: {declared.link}"


def _tried(declared: KnownDeviation, rows: Mapping[str, PropertyState]) -> list[TriedProperty]:
    """What came of each property that a declaration covers, with all configurations of the subject together."""
    together: dict[str, list[PropertyState]] = {}
    for row in rows.values():
        if declared.covers(row.name, row.tested.id):
            together.setdefault(row.name, []).append(row)
    return [
        TriedProperty(
            any(row.status is not Status.NOT_APPLICABLE for row in same),
            sum(row.record.counts.compared for row in same),
            "; ".join(dict.fromkeys(row.detail for row in same if row.detail)),
        )
        for same in together.values()
    ]
