"""What is wrong, by cause: failures at the same call and place are one entry, however many properties they break."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from statecheck.campaign.record import BucketRecord
from statecheck.case import Case
from statecheck.case.bucket import Cause, cause_of

_MOST_READ = 1_000
"""Cases that are looked into; of more failures, each is an entry of its own."""


@dataclass(frozen=True)
class CauseGroup:
    """Failures that show one cause; `title` says which call and place, and `shown` is the one with the smallest input."""

    title: str
    buckets: tuple[BucketRecord, ...]

    @property
    def shown(self) -> BucketRecord:
        return self.buckets[0]

    @property
    def properties(self) -> tuple[str, ...]:
        """Those that it breaks, each once."""
        return tuple(dict.fromkeys(bucket.property for bucket in self.buckets))


def grouped(buckets: Iterable[BucketRecord]) -> list[CauseGroup]:
    """The buckets by cause, in their order; within a cause, those with the smallest input first."""
    found: dict[tuple[str, ...], list[BucketRecord]] = {}
    titles: dict[tuple[str, ...], str] = {}
    for number, bucket in enumerate(buckets):
        cause = _cause(bucket) if number < _MOST_READ else None
        key = (bucket.subject, *cause.key) if cause is not None else (bucket.id, bucket.rule)
        found.setdefault(key, []).append(bucket)
        titles.setdefault(key, cause.title if cause is not None else bucket.rule or bucket.property)
    return [CauseGroup(titles[key], tuple(sorted(members, key=_weight))) for key, members in found.items()]


def _weight(bucket: BucketRecord) -> tuple[bool, int]:
    steps = bucket.case.get("steps")
    return not bucket.shrunk, len(steps) if isinstance(steps, list) else 0


def _cause(bucket: BucketRecord) -> Cause | None:
    """None of a bucket without a case that can be read."""
    return _cause_in(json.dumps(bucket.case)) if bucket.case else None


@lru_cache(maxsize=_MOST_READ)
def _cause_in(case: str) -> Cause | None:
    try:
        return cause_of(Case.from_json(case))
    except Exception:
        # A record may hold a case of another version, or anything else.
        return None


def summed_up(groups: Iterable[CauseGroup]) -> str:
    """Such as "1 cause, 8 properties (11 failures)"."""
    every = list(groups)
    causes, failures = len(every), sum(len(group.buckets) for group in every)
    properties = len({name for group in every for name in group.properties})
    text = f"{causes:,} cause{'s' * (causes != 1)}, {properties:,} propert{'y' if properties == 1 else 'ies'}"
    return text if failures == properties else f"{text} ({failures:,} failures)"
