"""What has changed since the campaign before: things that are wrong, states of properties, marks, speed."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.campaign.record_parts import BucketRecord

LEAST_SECONDS = 5.0
"""What ran for less says nothing about its speed."""
ABSENT = "not there"
_STANDINGS = ("new", "regression", "known", "still there")


@dataclass(frozen=True)
class StatusChange:
    """A property whose status is another one; `ABSENT` where a campaign did not know it."""

    name: str
    before: str
    now: str


@dataclass(frozen=True)
class Comparison:
    """A campaign beside the one before.

    Args:
        before: None where there is none; then only `new` and `known` say something.
        new: never seen before.
        regressions: a saved case fails again, which did not when the campaign before ended.
        known: first seen by an earlier campaign, but not met by the one before.
        still: met by both, or still failing when it was replayed from the corpus.
        gone: met before and not now, though the property has run examples.
        statuses: properties whose status changed.
        marks_lost: reached before, and now only declared.
        rate: examples per second of wall time before and now.
        since: by the id of a bucket, the date and the commit of the campaign that first met it.
        standings: by the id of a bucket of now, "new", "regression", "known" or "still there".
    """

    before: CampaignRecord | None
    new: tuple[BucketRecord, ...] = ()
    regressions: tuple[BucketRecord, ...] = ()
    known: tuple[BucketRecord, ...] = ()
    still: tuple[BucketRecord, ...] = ()
    gone: tuple[BucketRecord, ...] = ()
    statuses: tuple[StatusChange, ...] = ()
    marks_lost: tuple[str, ...] = ()
    rate: tuple[float, float] | None = None
    since: dict[str, str] = field(default_factory=dict)
    standings: dict[str, str] = field(default_factory=dict)


def compared(now: CampaignRecord, before: CampaignRecord | None) -> Comparison:
    """`now` beside `before`."""
    met = {bucket.id for bucket in before.buckets} if before is not None else set()
    standings = {bucket.id: _standing(bucket, met, now) for bucket in now.buckets}
    since = {bucket.id: _since(bucket, now) for bucket in now.buckets}
    new, regressions, known, still = (
        tuple(bucket for bucket in now.buckets if standings[bucket.id] == kind) for kind in _STANDINGS
    )
    alone = Comparison(before, new, regressions, known, still, since=since, standings=standings)
    return alone if before is None else _beside(alone, now, before)


def _standing(bucket: BucketRecord, met: set[str], now: CampaignRecord) -> str:
    if bucket.id in met:
        return "still there"
    if _replay_fails(bucket, now):
        return "regression"
    # Dates of ISO 8601 sort as text.
    return "known" if "" < bucket.first_seen.get("date", "") < now.began[:10] else "new"


def _beside(alone: Comparison, now: CampaignRecord, before: CampaignRecord) -> Comparison:
    """`alone` with what takes two campaigns."""
    missing = [bucket for bucket in before.buckets if bucket.id not in alone.standings]
    failing = tuple(bucket for bucket in missing if _replay_fails(bucket, now))
    ids, ran = {bucket.id for bucket in failing}, {row.name for row in now.properties if row.examples}
    reached, was = _reached(now), _reached(before)
    return replace(
        alone,
        still=alone.still + failing,
        gone=tuple(bucket for bucket in missing if bucket.id not in ids and bucket.property in ran),
        statuses=_statuses(now, before),
        marks_lost=tuple(sorted(was & ({mark.name for mark in now.marks} - reached))),
        rate=_rate(now, before),
        since=alone.since | {bucket.id: _since(bucket, before) for bucket in missing + _undated(before, now)},
    )


def _undated(before: CampaignRecord, now: CampaignRecord) -> list[BucketRecord]:
    """Those of before that now has without knowing since when: where its corpus could not be read, for one."""
    ids = {bucket.id for bucket in now.buckets if not bucket.first_seen.get("date")}
    return [bucket for bucket in before.buckets if bucket.id in ids]


def _since(bucket: BucketRecord, record: CampaignRecord) -> str:
    date = bucket.first_seen.get("date") or record.began[:10] or "an unknown date"
    commit = bucket.first_seen.get("commit", "") if bucket.first_seen else record.commit
    return f"{date} ({commit})" if commit else date


def _replay_fails(bucket: BucketRecord, now: CampaignRecord) -> bool:
    """Whether its case in the corpus, whose name ends with its id, still fails."""
    failed = (PurePath(replay.file).name for replay in now.corpus if replay.verdict == "FAILED")
    return any(name.endswith(f"-{bucket.id}.json") for name in failed)


def _statuses(now: CampaignRecord, before: CampaignRecord) -> tuple[StatusChange, ...]:
    old, new = _status_by_name(before), _status_by_name(now)
    pairs = ((name, old.get(name, ABSENT), new.get(name, ABSENT)) for name in {**new, **old})
    return tuple(StatusChange(*pair) for pair in pairs if pair[1] != pair[2])


def _status_by_name(record: CampaignRecord) -> dict[str, str]:
    return {row.name: row.status for row in record.properties}


def _reached(record: CampaignRecord) -> set[str]:
    return {mark.name for mark in record.marks if mark.examples}


def _rate(now: CampaignRecord, before: CampaignRecord) -> tuple[float, float] | None:
    if min(now.seconds, before.seconds) < LEAST_SECONDS or not before.examples:
        return None
    return before.examples / before.seconds, now.examples / now.seconds


def find_previous(reports: Path, now: CampaignRecord) -> tuple[CampaignRecord | None, tuple[str, ...]]:
    """The latest campaign before `now` of its subject, device and choice of properties, and what could not be read.

    Args:
        reports: the folder that has campaigns/<id>/campaign.json.
    """
    warnings: list[str] = []
    found: list[tuple[dt.datetime, str, CampaignRecord]] = []
    limit = now.start, now.id
    for path in sorted((reports / "campaigns").glob(f"*/{FILE}")):
        try:
            record = CampaignRecord.load(path)
            if _alike(record, now):
                found.append((record.start, path.parent.name, record))
        except (OSError, ValueError) as error:
            warnings.append(f"{path} is left out of the comparison: {error}")
    earlier = [one for one in found if one[:2] < limit]
    return max(earlier, key=lambda found: found[:2], default=(None, "", None))[2], tuple(warnings)


def _alike(record: CampaignRecord, now: CampaignRecord) -> bool:
    what = (record.subject, record.device, record.only) == (now.subject, now.device, now.only)
    return what and record.id != now.id
