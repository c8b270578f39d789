"""What a campaign came to: the verdict with its reasons, failures by cause, and what was run.

Failures at the same call and place are one cause, however many properties they break.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath

from statecheck.campaign.plan import shard_name
from statecheck.campaign.record import (
    CORPUS_VERDICTS,
    NOT_REPLAYED,
    BucketRecord,
    CampaignRecord,
    CorpusRecord,
    bucket_in,
)
from statecheck.case import Case
from statecheck.case.bucket import cause_of
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE, Status
from statecheck.rooms import working_folder
from statecheck.util.command_lines import command_line
from statecheck.util.text import counted, first_names

WRONG = (Status.FALSIFIED.value, Status.UNEXPECTED_PASS.value)
UNDECIDED = (Status.ERROR.value, Status.NOT_FINISHED.value, Status.NOT_VERIFIED.value)
_MOST_NAMES, _MOST_MODELS = 5, 2
_MOST_READ = 1_000
"""Cases that are looked into; of more failures, each is an entry of its own."""


def duration(seconds: float) -> str:
    """Such as "8 h 1 min", "3 min 20 s" and "4.2 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


@dataclass(frozen=True)
class CampaignVerdict:
    """`word` in capital letters, and a sentence for each reason, the gravest first."""

    word: str
    reasons: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return self.word == "CLEAN"

    @property
    def exit_code(self) -> int:
        """Of every command that runs a campaign: 0 clean, 1 something is wrong, 2 it says too little to be clean."""
        return {"CLEAN": CLEAN, "NOT CLEAN": FALSIFIED}.get(self.word, INCOMPLETE)


def verdict(record: CampaignRecord) -> CampaignVerdict:
    """What the campaign says of the subject, or why it says nothing."""
    wrong, missing = list(_wrong(record)), list(_missing(record))
    lost = "The canary was NOT FOUND, or NOT RUN: the property that must fail was not reported, so nothing that passed is proof."
    untrusted = [] if record.canary else [lost]
    words = {"NOT CLEAN": wrong, "NOT TO BE TRUSTED": untrusted, "INCOMPLETE": missing}
    word = next((word for word, reasons in words.items() if reasons), "CLEAN")
    return CampaignVerdict(word, (*wrong, *untrusted, *missing))


def _wrong(record: CampaignRecord) -> Iterator[str]:
    if record.buckets:
        new = sum(is_new(bucket, record) for bucket in record.buckets)
        causes, properties = len(grouped(record.buckets)), len({bucket.property for bucket in record.buckets})
        failures = len(record.buckets)
        text = f"{counted(causes, 'cause')}, {counted(properties, 'property', 'properties')}"
        text += f" ({failures:,} failures)" if failures != properties else ""
        yield f"{text}: {new or 'none'} new.{_first_failure(record)}"
    met = {bucket.property for bucket in record.buckets}
    others = [row for row in record.properties if row.status in WRONG and row.id not in met]
    if others:
        listed = first_names([f"{row.id} ({row.status})" for row in others], _MOST_NAMES)
        yield f"{counted(len(others), 'property', 'properties')} without a saved input: {listed}."
    stale = [defect.id for defect in record.known if defect.stale]
    if stale and not record.plan.tolerates_fixed:
        yield f"{counted(len(stale), 'known defect no longer fails', 'known defects no longer fail')}: {', '.join(stale)}."
    ids = {bucket.id for bucket in record.buckets}
    failed = sum(replay.verdict == "FAILED" and bucket_in(replay.file) not in ids for replay in record.corpus)
    if failed:
        yield f"{counted(failed, 'case of the corpus fails', 'cases of the corpus fail')}."
    if record.plan.fail_on_untested and (untested := _untested(record)):
        yield untested


def _first_failure(record: CampaignRecord) -> str:
    first = record.first_failure
    if not first:
        return ""
    examples = counted(round(first["examples"]), "example", "examples")
    return f" The first failure came after {examples} and {duration(first['seconds'])}."


def _untested(record: CampaignRecord) -> str:
    """How many applicable properties were tried and not tested, or, where that is a failure, not tested for any reason."""
    without = [row for row in record.properties if row.status == Status.NOT_TESTED.value]
    if not record.plan.fail_on_untested:
        without = [row for row in without if not row.lacked_time]
    if not without:
        return ""
    listed = first_names([row.id for row in without], _MOST_NAMES)
    return f"{counted(len(without), 'applicable property was', 'applicable properties were')} not tested: {listed}."


def is_new(bucket: BucketRecord, record: CampaignRecord) -> bool:
    """Whether this bucket is new: its case was kept nowhere, and has no earlier date."""
    was_kept = bucket.kept_before or any(bucket_in(replay.file) == bucket.id for replay in record.corpus)
    # Dates of ISO 8601 sort as text.
    return not was_kept and not "" < bucket.first_seen.get("date", "") < record.began[:10]


def _missing(record: CampaignRecord) -> Iterator[str]:
    if not any(row.compared for row in record.properties):
        yield f"Nothing was compared: no property looked at anything that a function of {record.plan.subject} returned."
    untested = _untested(record)
    if untested and not record.plan.fail_on_untested:
        yield untested
    unverified = {
        model: why.removeprefix(f"{model}: not verified: ") for model, why in record.unverified.items()
    }
    if len(unverified) > _MOST_MODELS:
        named = [f"{model} ({why})" for model, why in unverified.items()]
        yield f"{len(unverified)} models cannot be verified: {first_names(named, _MOST_NAMES)}."
        unverified = {}
    for model, why in unverified.items():
        yield f"Model {model} cannot be verified: {why}."
    if record.interrupted:
        yield "The campaign was interrupted."
    elif not record.complete:
        yield "The campaign has not used up its budget."
    if record.mixed_versions:
        names = (f"{name} {' and '.join(versions)}" for name, versions in record.mixed_versions.items())
        yield f"The shards ran with different versions, so that no version had all examples: {', '.join(names)}."
    for status in UNDECIDED:
        count = sum(row.status == status for row in record.properties)
        if count:
            yield f"{counted(count, 'property', 'properties')}: {status}."
    unreadable = sum(replay.verdict == "UNREADABLE" for replay in record.corpus)
    if unreadable:
        yield f"{counted(unreadable, 'case')} of the corpus cannot be read."
    left_out = sum(replay.verdict == "LEFT OUT" for replay in record.corpus)
    if left_out:
        yield f"{counted(left_out, 'case')} of the corpus took too long and {'was' if left_out == 1 else 'were'} left out."
    waiting = [replay for replay in record.corpus if replay.verdict == NOT_REPLAYED]
    if waiting:
        yield _not_replayed(waiting)


def _not_replayed(waiting: Sequence[CorpusRecord]) -> str:
    """The cases of the corpus that were not replayed, those that failed last first."""
    ordered = sorted(waiting, key=lambda replay: replay.last != "FAILED")
    listed = first_names([replay.file for replay in ordered], _MOST_NAMES)
    count = counted(len(waiting), "case of the corpus was", "cases of the corpus were")
    failed = sum(replay.last == "FAILED" for replay in waiting)
    those = f" ({failed} of them failed last)" if failed else ""
    return f"{count} not replayed {waiting[0].message}{those}: {listed}."


def evidence(record: CampaignRecord) -> str:
    """How many of the applicable properties were selected, how many examples were compared, and what replayed cases came to: what the verdict rests on."""
    selected = f"{record.selected} of {record.applicable}" if record.applicable else f"{record.selected}"
    # A reason of the verdict names those that were not replayed.
    counts = Counter(replay.verdict for replay in record.corpus if replay.verdict != NOT_REPLAYED)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in CORPUS_VERDICTS if counts[verdict])
    replayed = f"; {counted(counts.total(), 'saved case')} replayed: {verdicts}" if verdicts else ""
    examples = f"{record.compared:,} of {counted(record.examples, 'example')} compared"
    return f"{selected} applicable properties selected; {examples}{replayed}"


def little_compared(record: CampaignRecord) -> str:
    """A warning that names the properties of whose examples fewer than half were compared; "" without any."""
    few = [row for row in record.properties if 0 < 2 * row.compared < row.examples]
    named = [f"{row.id} ({row.compared:,} of {row.examples:,})" for row in few]
    return (
        f"fewer than half of the examples were compared: {first_names(named, _MOST_NAMES)}" if named else ""
    )


def replay_line(bucket: BucketRecord, device: str) -> str:
    """The command that replays what the corpus has of a bucket."""
    path = PurePath(bucket.corpus)
    # Ids are looked up in this folder; a case that fails on another subject keeps the file of the bucket that it had before.
    looked_up = {working_folder(), working_folder() / "corpus"}
    by_id = working_folder() / path.parent in looked_up and path.stem.endswith(f"-{bucket.id}")
    return command_line("replay", bucket.id if by_id else path, subject=bucket.subject, device=device)


def facts(record: CampaignRecord) -> str:
    """What was run, in one line."""
    properties = counted(len(record.properties), "property", "properties")
    parts = [
        f"subject {record.plan.subject}",
        f"device {record.plan.device}",
        f"commit {record.plan.commit or 'unknown'}",
        f"began {record.began or 'at an unknown time'}",
        f"{counted(record.examples, 'example')} of {properties} in {duration(record.seconds)}",
    ]
    parts += [f"only {record.plan.only}"] if record.plan.only else []
    parts += [f"shard {shard_name(record.plan.shard, record.plan.shards)}"] if record.plan.shards > 1 else []
    return ", ".join(parts)


# Failures by cause.


Cause = tuple[BucketRecord, ...]
"""Failures that show one cause, the smallest input first."""


def grouped(buckets: Iterable[BucketRecord]) -> list[Cause]:
    """The buckets by cause, in their order."""
    by_cause: dict[tuple[str, ...], list[BucketRecord]] = {}
    for number, bucket in enumerate(buckets):
        case = case_of(bucket) if number < _MOST_READ else None
        key = (bucket.subject, *cause_of(case).key) if case is not None else (bucket.id, bucket.rule)
        by_cause.setdefault(key, []).append(bucket)
    return [tuple(sorted(members, key=_weight)) for members in by_cause.values()]


def _weight(bucket: BucketRecord) -> tuple[bool, int]:
    steps = bucket.case.get("steps")
    return not bucket.shrunk, len(steps) if isinstance(steps, list) else 0


def case_of(bucket: BucketRecord) -> Case | None:
    """Its case, None where there is none that can be read."""
    return _read(json.dumps(bucket.case)) if bucket.case else None


@lru_cache(maxsize=_MOST_READ)
def _read(text: str) -> Case | None:
    try:
        case = Case.from_json(text)
        cause_of(case)
        return case
    except Exception:
        # A record may hold a case of another version, or anything else.
        return None


def in_order(record: CampaignRecord) -> list[Cause]:
    """The causes, new ones first."""
    return sorted(
        grouped(record.buckets), key=lambda group: not any(is_new(bucket, record) for bucket in group)
    )


def known_since(group: Cause, record: CampaignRecord) -> str:
    """When the failures of a cause were first seen: "new" where one of them never was, or "since 2026-11-02 (0123456789ab)"."""
    if any(is_new(bucket, record) for bucket in group):
        return "new"
    seen = (group[0].first_seen.get(name, "") for name in ("date", "commit"))
    return f"since {' '.join(filter(None, seen)) or 'an unknown date'}"
