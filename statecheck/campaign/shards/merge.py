"""Adds up the shards of a campaign, or its units, to the record of the whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from statecheck.campaign.launched import launches_of, records_of
from statecheck.campaign.plan import shard_name
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import (
    CORPUS_VERDICTS,
    STANDINGS,
    BucketRecord,
    CorpusRecord,
    KnownRecord,
    MarkRecord,
    PropertyRecord,
)
from statecheck.execution.verdict import Status

_NUMBERS = ("examples", "seconds", "compared", "discarded", "parts")
_COUNTS = ("outside", "not_offered", "known", "no_evidence", "unchecked", "configurations")
"""Fields of a property's record that add up."""
_SAME = ("id", "subject", "release", "device", "only", "profile", "commit", "seed", "shards")
_VERSIONS = ("python", "torch", "triton", "numpy", "hypothesis", "statecheck")
"""Names of a record's environment on which the drawn examples and their outcomes depend."""
_STRONGEST = (
    Status.FALSIFIED,
    Status.ERROR,
    Status.NOT_FINISHED,
    # A deviation that showed in one shard is known, although it did not show in another.
    Status.KNOWN,
    Status.UNEXPECTED_PASS,
    Status.PASSED,
    Status.NOT_TESTED,
    Status.NOT_VERIFIED,
    Status.NOT_APPLICABLE,
)
_STATUSES = [status.value for status in _STRONGEST]

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Part:
    """A shard or unit: what people call it, and how many seconds after the campaign it began."""

    name: str
    record: CampaignRecord
    after: float = 0.0


def merged(records: Sequence[CampaignRecord], names: Sequence[str] = ()) -> CampaignRecord:
    """The shards of one campaign, added up; `troubles` names those that are missing.

    Args:
        names: what people call the records, such as their files.

    Raises:
        ValueError: none, shards that do not belong together, or two different records of one shard.
    """
    if not records:
        raise ValueError("records = [], but should have one at least [merged]")
    _check_same(records, names or [f"record {number}" for number in range(len(records))])
    if records[0].shards == 1 and len(records) == 1:
        return records[0]
    shards = {record.shard: record for record in sorted(records, key=lambda record: record.shard)}
    whole = added([Part(f"shard {shard_name(shard, one.shards)}", one) for shard, one in shards.items()])
    missing = sorted(set(range(records[0].shards)) - set(shards))
    whole.troubles += [f"shard {shard_name(shard, records[0].shards)} is missing" for shard in missing]
    whole.complete = whole.complete and not missing
    return whole


def _check_same(records: Sequence[CampaignRecord], names: Sequence[str]) -> None:
    """Refuse records of different campaigns, and different records of one shard, of which either may be incomplete."""
    first, shards = records[0], dict[int, tuple[CampaignRecord, str]]()
    for one, place in zip(records, names, strict=True):
        for field in _SAME:
            mine, theirs = getattr(first, field), getattr(one, field)
            if mine != theirs:
                raise ValueError(f"{field} = {theirs!r}, but should be {mine!r} as in {names[0]} [{place}]")
        # A folder of reports has its latest record twice.
        known, where = shards.setdefault(one.shard, (one, place))
        if known != one:
            name = shard_name(one.shard, one.shards)
            raise ValueError(f"shard = {name}, but should be another one than in {where} [{place}]")


def added(parts: Sequence[Part]) -> CampaignRecord:
    """Parts that ran at the same time or one after the other, as one record."""
    records = [part.record for part in parts]
    return replace(
        records[0], shard=0, shards=1, **_amounts(parts), **_surroundings(parts), **_results(parts)
    )


def _amounts(parts: Sequence[Part]) -> dict[str, Any]:
    """How much was run, and whether all of it."""
    records = [part.record for part in parts]
    return {
        "engines": sum(record.engines for record in records),
        "seconds": max(part.after + part.record.seconds for part in parts),
        "budget": max((record.budget for record in records if record.budget is not None), default=None),
        "examples_wanted": _total(record.examples_wanted for record in records),
        "rounds": sum(record.rounds for record in records),
        "complete": all(record.complete for record in records),
        "interrupted": any(record.interrupted for record in records),
        "applicable": max(record.applicable for record in records),
        "fail_on_untested": any(record.fail_on_untested for record in records),
        "first_failure": min(
            (record.first_failure for record in records if record.first_failure),
            key=lambda one: one["seconds"],
            default={},
        ),
    }


def _surroundings(parts: Sequence[Part]) -> dict[str, Any]:
    """Where and with what the parts ran, and what went wrong on their own side."""
    records = [part.record for part in parts]
    return {
        "commit": _joined(record.commit for record in records),
        "gpus": {f"{part.name}: {key}": name for part in parts for key, name in part.record.gpus.items()},
        "began": min(records, key=lambda record: record.start).began,
        "environment": _environment(records),
        "mixed_versions": _mixed_versions(records),
        "troubles": _troubles(parts),
        "remarks": [*dict.fromkeys(_each(records, "remarks"))],
        "canary": _joined(record.canary for record in records)
        if all(record.canary for record in records)
        else "",
    }


def _results(parts: Sequence[Part]) -> dict[str, Any]:
    """What the parts found, reached and launched."""
    records = [part.record for part in parts]
    return {
        "properties": _grouped(_each(records, "properties"), lambda row: row.name, _property),
        "buckets": _buckets(parts),
        "marks": _grouped(_marks(parts), lambda mark: mark.name, _mark),
        "corpus": _grouped(_each(records, "corpus"), lambda replay: replay.file, _replayed),
        "known": _grouped(_each(records, "known"), lambda defect: defect.id, _known),
        "launched": records_of(launches_of(_each(records, "launched"))),
    }


def _each(records: Iterable[CampaignRecord], name: str) -> list[Any]:
    return [item for record in records for item in getattr(record, name)]


def _grouped(
    items: Iterable[Item], key: Callable[[Item], Key], together: Callable[[list[Item]], Item]
) -> list[Item]:
    """One item for each key, in the order in which they came."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [together(group) for group in groups.values()]


def _joined(texts: Iterable[str]) -> str:
    """Each text once; most often all are equal."""
    return " | ".join(dict.fromkeys(filter(None, texts)))


def _total(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _environment(records: Sequence[CampaignRecord]) -> dict[str, str]:
    names = dict.fromkeys(name for record in records for name in record.environment)
    return {name: _joined(record.environment.get(name, "") for record in records) for name in names}


def _mixed_versions(records: Sequence[CampaignRecord]) -> dict[str, list[str]]:
    """The versions that are not the same in all records, by name."""
    found = {
        name: [*dict.fromkeys(record.environment.get(name, "unknown") for record in records)]
        for name in _VERSIONS
        if any(name in record.environment for record in records)
    }
    return {name: versions for name, versions in found.items() if len(versions) > 1}


def _rank(order: Sequence[str], value: str) -> int:
    return order.index(value) if value in order else len(order)


def _property(group: list[PropertyRecord]) -> PropertyRecord:
    strongest = min(group, key=lambda record: _rank(_STATUSES, record.status))
    sums: dict[str, Any] = {name: sum(getattr(record, name) for record in group) for name in _NUMBERS}
    counts: dict[str, Any] = {name: _summed(getattr(record, name) for record in group) for name in _COUNTS}
    launches = any(record.launches for record in group)
    texts: dict[str, Any] = {
        name: {key: text for record in group for key, text in getattr(record, name).items()}
        for name in ("unverified", "reasons")
    }
    statuses = {
        key: min(
            (record.statuses[key] for record in group if key in record.statuses),
            key=lambda status: _rank(_STATUSES, status),
        )
        for key in dict.fromkeys(key for record in group for key in record.statuses)
    }
    return replace(strongest, launches=launches, statuses=statuses, **sums, **counts, **texts)


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def _known(group: list[KnownRecord]) -> KnownRecord:
    """A defect that showed in one part showed."""
    strongest = min(group, key=lambda record: _rank(STANDINGS, record.standing))
    properties = _summed(record.properties for record in group)
    return replace(strongest, properties=properties)


def _buckets(parts: Sequence[Part]) -> list[BucketRecord]:
    """Each once, in the order in which they were found."""
    moved = [replace(bucket, at=part.after + bucket.at) for part in parts for bucket in part.record.buckets]
    return sorted(_grouped(moved, lambda bucket: bucket.id, _bucket), key=lambda bucket: bucket.at)


def _bucket(group: list[BucketRecord]) -> BucketRecord:
    smallest = min(group, key=lambda record: size_of(record.case))
    seen = [record.first_seen for record in group if record.first_seen]
    first = min(seen, key=lambda one: one.get("date") or "9999", default={})
    return replace(
        smallest,
        examples=sum(record.examples for record in group),
        at=min(record.at for record in group),
        first_seen=first,
        kept_before=any(record.kept_before for record in group),
    )


def size_of(case: dict[str, Any]) -> tuple[bool, int, str]:
    """What makes one case of a bucket preferable to another: that there is one, then fewer letters, then these."""
    text = json.dumps(case, sort_keys=True)
    return not case, len(text), text


def _marks(parts: Sequence[Part]) -> list[MarkRecord]:
    return [
        mark if mark.at is None else replace(mark, at=part.after + mark.at)
        for part in parts
        for mark in part.record.marks
    ]


def _mark(group: list[MarkRecord]) -> MarkRecord:
    reached = [record for record in group if record.examples]
    first = min(reached, key=lambda mark: float("inf") if mark.at is None else mark.at, default=group[0])
    return replace(first, examples=sum(record.examples for record in group))


def _replayed(group: list[CorpusRecord]) -> CorpusRecord:
    return min(group, key=lambda record: _rank(CORPUS_VERDICTS, record.verdict))


def _troubles(parts: Sequence[Part]) -> list[str]:
    commits = _joined(part.record.commit for part in parts)
    troubles = [f"{part.name}: {text}" for part in parts for text in part.record.troubles]
    if any(part.record.canary for part in parts):
        lacking = [part.name for part in parts if not part.record.canary]
        troubles += [f"{name}: the canary was not found" for name in lacking]
    return troubles if " | " not in commits else [f"the parts ran different commits: {commits}", *troubles]
