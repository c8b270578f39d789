"""Adds up the shards of a campaign to the record of the whole, and writes what they found where people of this machine look for it.

The unit of work on many machines is a shard: a `Plan` goes to a machine, and a `CampaignRecord` comes back. With `--shard 2/8` each job of a CI
matrix runs its shard, and `merge` adds up the records that it finds in folders. With `--ray` the shards are tasks of a cluster (`cluster`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from statecheck.campaign.corpus import CorpusWriter
from statecheck.campaign.plan import shard_name
from statecheck.campaign.record import (
    CORPUS_VERDICTS,
    DEFECT_STATUSES,
    BucketRecord,
    CampaignRecord,
    KnownRecord,
    MarkRecord,
    merge_rows,
)
from statecheck.campaign.report import write_reports
from statecheck.case import Case
from statecheck.subject import Subject, load
from statecheck.util.text import first_names

_SAME = (
    *("id", "subject", "device", "only", "profile", "commit", "seed", "shards"),
    *("as_new", "exhaustive", "sanitized"),
)
"""Fields of the plan that all shards of a campaign have in common."""
_VERSIONS = ("python", "torch", "triton", "numpy", "hypothesis", "statecheck")
"""Names of a record's environment on which the drawn examples and their outcomes depend."""

_MOST_NAMES = 5

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def merge_records(records: Sequence[CampaignRecord], names: Sequence[str] = ()) -> CampaignRecord:
    """The shards of one campaign, added up; `warnings` names those that are missing.

    Args:
        names: what people call the records, such as their files.

    Raises:
        ValueError: none, shards that do not belong together, or two different records of one shard.
    """
    if not records:
        raise ValueError("records = [], but should have one at least [merge_records]")
    first, found = records[0], dict[int, tuple[CampaignRecord, str]]()
    names = names or [f"record {number}" for number in range(len(records))]
    for other, name in zip(records, names, strict=True):
        for field in (*_SAME, "release"):
            mine, theirs = (
                getattr(record if field == "release" else record.plan, field) for record in (first, other)
            )
            if mine != theirs:
                raise ValueError(f"{field} = {theirs!r}, but should be {mine!r} as in {names[0]} [{name}]")
        alone = sorted({row.id for row in first.properties} ^ {row.id for row in other.properties})
        if alone:
            listed, rule = first_names(alone, _MOST_NAMES), "none: the properties of all shards are the same"
            raise ValueError(
                f"properties of one shard alone = {listed}, but should be {rule} [{names[0]}, {name}]"
            )
        # A folder of reports has its latest record twice. Of two that differ, either may be incomplete.
        known, where = found.setdefault(other.plan.shard, (other, name))
        if known != other:
            shard = shard_name(other.plan.shard, other.plan.shards)
            raise ValueError(f"shard = {shard}, but should be another one than in {where} [{name}]")
    count = first.plan.shards
    if count == 1:
        return first
    shards = [found[shard][0] for shard in sorted(found)]
    missing = [shard for shard in range(count) if shard not in found]
    has_canary = any(record.canary for record in shards)
    warnings = [(record.plan.shard, text) for record in shards for text in record.warnings]
    warnings += [
        (record.plan.shard, "the canary was not found")
        for record in shards
        if has_canary and not record.canary
    ]
    versions = {
        name: [*dict.fromkeys(record.environment.get(name, "unknown") for record in shards)]
        for name in _VERSIONS
        if any(name in record.environment for record in shards)
    }

    def every(name: str) -> list[Any]:
        return [item for record in shards for item in getattr(record, name)]

    def joined(texts: Iterable[str]) -> str:
        """Each text once; most often all are equal."""
        return " | ".join(dict.fromkeys(filter(None, texts)))

    return replace(
        shards[0],
        plan=replace(
            shards[0].plan,
            shard=0,
            shards=1,
            engines=sum(record.plan.engines for record in shards),
            budget=max(
                (record.plan.budget for record in shards if record.plan.budget is not None), default=None
            ),
            examples=sum(record.plan.examples or 0 for record in shards) or None,
            fail_on_untested=any(record.plan.fail_on_untested for record in shards),
        ),
        began=min(shards, key=lambda record: record.start).began,
        seconds=max(record.seconds for record in shards),
        rounds=sum(record.rounds for record in shards),
        complete=all(record.complete for record in shards) and not missing,
        interrupted=any(record.interrupted for record in shards),
        applicable=max(record.applicable for record in shards),
        first_failure=min(
            (record.first_failure for record in shards if record.first_failure),
            key=lambda failure: failure["seconds"],
            default={},
        ),
        devices={
            f"shard {shard_name(record.plan.shard, count)}: {key}": name
            for record in shards
            for key, name in record.devices.items()
        },
        environment={
            name: joined(record.environment.get(name, "") for record in shards)
            for name in dict.fromkeys(name for record in shards for name in record.environment)
        },
        mixed_versions={name: each for name, each in versions.items() if len(each) > 1},
        warnings=[f"shard {shard_name(shard, count)}: {text}" for shard, text in warnings]
        + [f"shard {shard_name(shard, count)} is missing" for shard in missing],
        canary=joined(record.canary for record in shards) if all(record.canary for record in shards) else "",
        properties=_grouped(every("properties"), lambda row: row.id, merge_rows),
        buckets=sorted(
            _grouped(every("buckets"), lambda bucket: bucket.id, _bucket), key=lambda bucket: bucket.at
        ),
        marks=_grouped(every("marks"), lambda mark: mark.name, _mark),
        corpus=_grouped(
            every("corpus"),
            lambda replay: replay.file,
            lambda group: _first(CORPUS_VERDICTS, group, "verdict"),
        ),
        known=_grouped(every("known"), lambda defect: defect.id, _known),
        launched=sorted(sum((Counter(dict(record.launched)) for record in shards), Counter()).items()),
    )


def _grouped(
    items: Iterable[Item], key: Callable[[Item], Key], merge: Callable[[list[Item]], Item]
) -> list[Item]:
    """One item for each key, in the order in which they came."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [merge(group) for group in groups.values()]


def _first(order: Sequence[str], group: Sequence[Item], name: str) -> Item:
    """The item whose field comes first in the order; what the order does not have comes last."""
    return min(group, key=lambda item: (*order, getattr(item, name)).index(getattr(item, name)))


def _known(group: list[KnownRecord]) -> KnownRecord:
    """A defect that showed in one shard showed."""
    shown: Counter[str] = sum((Counter(record.properties) for record in group), Counter())
    return replace(_first(DEFECT_STATUSES, group, "status"), properties=dict(shown))


def _bucket(group: list[BucketRecord]) -> BucketRecord:
    """The bucket with the smallest of its cases."""

    def weight(bucket: BucketRecord) -> tuple[bool, int, str]:
        text = json.dumps(bucket.case, sort_keys=True)
        return not bucket.case, len(text), text

    seen = [record.first_seen for record in group if record.first_seen]
    return replace(
        min(group, key=weight),
        examples=sum(record.examples for record in group),
        at=min(record.at for record in group),
        first_seen=min(seen, key=lambda first_seen: first_seen.get("date") or "9999", default={}),
        kept_before=any(record.kept_before for record in group),
    )


def _mark(group: list[MarkRecord]) -> MarkRecord:
    reached = [record for record in group if record.examples]
    first = min(reached, key=lambda mark: float("inf") if mark.at is None else mark.at, default=group[0])
    return replace(first, examples=sum(record.examples for record in group))


def write_merged(record: CampaignRecord, reports: Path, corpus: Path) -> CampaignRecord:
    """Write the buckets' cases and reports and the campaign's folder; the record as it is written, with what could not be.

    The corpus keeps the smallest case of each bucket.
    """
    warnings: list[str] = []

    @cache
    def subject() -> Subject | None:
        """None where it cannot be imported: on a machine that only adds up."""
        try:
            return load(record.plan.subject)
        except Exception as error:
            warnings.append(f"scripts that reproduce know no path of {record.plan.subject}: {error}")
            return None

    corpus_writer = CorpusWriter(corpus, reports, subject, warnings.append)

    def written(bucket: BucketRecord) -> BucketRecord:
        # What a machine calls its corpus and its reports is nothing to go by on another.
        here = replace(bucket, corpus="", report="")
        if not bucket.case:
            return here
        try:
            case = Case.from_data(bucket.case)
            here.corpus = corpus_writer.keep(case, bucket.first_seen)
            if here.corpus:
                here.first_seen = Case.load(Path(here.corpus)).first_seen or bucket.first_seen
            folder = corpus_writer.report(case, bucket.note)
            here.report = str(Path(folder).relative_to(reports)) if folder else ""
        except Exception as error:
            # A broken case of another machine keeps no other case from its file.
            warnings.append(f"bucket {bucket.id} was not written: {type(error).__name__}: {error}")
        return here

    buckets = [written(bucket) for bucket in record.buckets]
    plan = replace(record.plan, reports=str(reports), corpus=str(corpus))
    whole = replace(
        record, plan=plan, buckets=buckets, warnings=[*dict.fromkeys([*record.warnings, *warnings])]
    )
    write_reports(whole, plan.folder)
    return whole
