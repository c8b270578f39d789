"""What is known of a campaign, as data: what reports are made from, what shards add up to, what the next campaign goes on from.

A campaign that runs writes into these records, and saves them as they are.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from statecheck.campaign.plan import Plan
from statecheck.case.case import require_subject
from statecheck.execution.verdict import WORST_FIRST, Counts, Status
from statecheck.kernels.launch_counts import How
from statecheck.subject.known import GONE, NOT_ENOUGH, NOT_TRIED, SHOWED
from statecheck.util.decode import Decoder, Misfit, format_value, require_once
from statecheck.util.files import load_json, parse_json, write_whole
from statecheck.util.text import first_names

SCHEMA = 8
FILE = "campaign.json"
_RULE = f"a campaign's record of schema {SCHEMA}"
_LARGEST = 1 << 28


_ID_RULE = "letters, digits, '.', '_' and '-', at most 100, and begin with one of the first two"
_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
_BUCKET = re.compile(r"[0-9a-f]{10}")
_COMMIT = re.compile(r"[\w+ |]{0,1000}", re.ASCII)
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MOST = 10**300
_MOST_SHARDS = 1_000_000
_MOST_NAMES, _SEVERAL = 6, 2


@dataclass
class PropertyRecord:
    """One property: what became of it, with how many examples in how many seconds of an engine's time.

    Of a subject with configurations, such as the models of a library: `statuses` has the status of each, and `reasons` why it is so.
    `status` is then the worst of them that says something.

    `status` is a value of `verdict.Status`. `launches`: its examples launch kernels. `counts` is what became of the examples. `known` are
    failing examples of known defects, by the defect's name, and `report` is the folder of the latest report.
    `lacks` are functions that the subject does not offer, and without which it is not applicable.
    """

    id: str
    sentence: str
    kind: str
    status: str
    counts: Counts = field(default_factory=Counts)
    seconds: float = 0.0
    launches: bool = False
    detail: str = ""
    known: Counter[str] = field(default_factory=Counter)
    report: str = ""
    statuses: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    lacks: list[str] = field(default_factory=list)

    @property
    def examples(self) -> int:
        return self.counts.examples

    @property
    def compared(self) -> int:
        """Examples in which something was compared."""
        return self.counts.compared

    def with_status(self, *wanted: Status) -> list[str]:
        """The configurations with one of these statuses."""
        values = {status.value for status in wanted}
        return [name for name, status in self.statuses.items() if status in values]

    @property
    def share(self) -> str:
        """Such as "passed for 17 of 30 models; FALSIFIED for 1: mamba; not tested for 12"; "" with one configuration or none."""
        if len(self.statuses) < _SEVERAL:
            return ""
        passed = f"passed for {len(self.with_status(Status.PASSED))} of {len(self.statuses)} models"
        others = {status: self.with_status(status) for status in Status if status is not Status.PASSED}
        # Of many models that nothing was seen of, the number says enough.
        counted = (Status.NOT_TESTED, Status.NOT_APPLICABLE)
        shown = (
            f"{status.value} for {len(names)}"
            + (
                ""
                if status in counted and len(names) > _MOST_NAMES
                else f": {first_names(names, _MOST_NAMES)}"
            )
            for status, names in others.items()
            if names
        )
        return "; ".join([passed, *shown])

    @property
    def lacked_time(self) -> bool:
        """Whether it is not tested because there were too few examples to say why not."""
        few = self.counts.telling * max(1, len(self.statuses))
        return self.status == Status.NOT_TESTED.value and self.examples < few

    @property
    def rate(self) -> float:
        """Examples per second of an engine's time."""
        return self.examples / self.seconds if self.seconds > 0 else 0.0


def merge_rows(rows: Sequence[PropertyRecord]) -> PropertyRecord:
    """One record of a property: of those of its configurations, or of several shards."""
    if len(rows) == 1:
        return rows[0]
    rank = [status.value for status in WORST_FIRST].index
    counts, known = Counts(), Counter[str]()
    for row in rows:
        counts.add(row.counts)
        known.update(row.known)
    statuses: dict[str, str] = {}
    for name, status in (item for row in rows for item in row.statuses.items()):
        statuses[name] = min(statuses.get(name, status), status, key=rank)
    return replace(
        min(rows, key=lambda row: rank(row.status)),
        counts=counts,
        known=known,
        seconds=sum(row.seconds for row in rows),
        launches=any(row.launches for row in rows),
        statuses=statuses,
        reasons={name: reason for row in rows for name, reason in row.reasons.items()},
    )


@dataclass
class BucketRecord:
    """One thing that is wrong: every failing example of the same property, rule, fault and subject.

    Args:
        id: of the bucket; the name of its file in the corpus begins with the property's and ends with it.
        rule: what the subject broke, see `bucket.Bucket`.
        fault: kind of device fault or of the sanitizer's finding, "" for a wrong answer.
        message: what was seen instead.
        examples: failing examples that were seen of it.
        at: seconds from the campaign's beginning to the first of them.
        report: folder of its own report below the folder of reports; "" where none could be written.
        corpus: its file in the corpus; "" where none could be written.
        first_seen: {"date": "2026-11-21", "commit": "0123456789ab"} of the first campaign that met it.
        note: such as that it did not repeat.
        shrunk: its case is the smallest that was found, and not only one that was met.
        case: the JSON of its shrunk `Case`.
        kept_before: the folder in which this campaign keeps its cases had one of the bucket when the campaign began.
    """

    id: str
    property: str
    rule: str
    fault: str
    subject: str
    sentence: str
    message: str
    examples: int
    at: float
    report: str = ""
    corpus: str = ""
    first_seen: dict[str, str] = field(default_factory=dict)
    note: str = ""
    case: dict[str, Any] = field(default_factory=dict)
    shrunk: bool = True
    kept_before: bool = False


EFFECTS = "effects of features"
"""The topic of marks that are what features of a port of sequences have done, see docs/sequences.md."""


@dataclass
class MarkRecord:
    """A named situation, the topic that declares it, how many examples reached it, and which property did so first."""

    name: str
    topic: str
    examples: int = 0
    at: float | None = None
    property: str = ""


def bucket_in(file: str) -> str:
    """The id of the bucket that a file of a corpus is of, with which its name ends, or which a number follows; "" without any."""
    found = re.search(r"-([0-9a-f]{10})(-\d+)?$", PurePath(file).stem)
    return found[1] if found else ""


NOT_REPLAYED = "NOT REPLAYED"
"""The verdict on a case of the corpus that the campaign had no time for."""
CORPUS_VERDICTS = (
    "FAILED",
    "UNREADABLE",
    "KNOWN",
    "FIXED",
    "NOT REPRODUCED",
    "NOT APPLICABLE",
    "LEFT OUT",
    NOT_REPLAYED,
)
"""All verdicts on cases of a corpus. Of the verdicts of several shards on a case, the first in this order counts: another shard may have
replayed what there was no time for in this one."""


@dataclass
class CorpusRecord:
    """What became of a case of the corpus: "UNREADABLE", "NOT REPLAYED", or as `ReplayVerdict` says.

    `last`: of a case that was not replayed to its end, its verdict when it last was, "" if that is not known.
    """

    file: str
    verdict: str
    message: str
    last: str = ""


DEFECT_STATUSES = (SHOWED, NOT_ENOUGH, GONE, NOT_TRIED)
"""All statuses of known defects. Of those of several shards, the first in this order counts."""


@dataclass
class KnownRecord:
    """A known defect as the campaign met it.

    `status` is one of `DEFECT_STATUSES`; `properties` has its failing examples by property.
    """

    id: str
    title: str = ""
    link: str = ""
    status: str = NOT_TRIED
    properties: dict[str, int] = field(default_factory=dict)
    note: str = ""

    @property
    def examples(self) -> int:
        return sum(self.properties.values())

    @property
    def stale(self) -> bool:
        """Whether it is declared, and no longer fails."""
        return self.status == GONE


@dataclass
class CampaignRecord:
    """One campaign, or one shard of it.

    Args:
        plan: what it was asked to do. Of shards that were added up, that of the whole.
        devices: their names by index, such as {"0": "NVIDIA H200"}; {"cpu": "..."} without a GPU.
        began: when, ISO 8601 with time zone. For people only: durations are measured, not subtracted.
        seconds: how long it ran.
        rounds: how many were begun; `plan.first_round` is the number of the first.
        complete: the budget was used up.
        launched: kernels that were executed or should have been; empty where they are compiled.
        warnings: what went wrong on the campaign's own side, a sentence each.
        canary: how the property that must fail was found; "" while it was not.
        known: the defects that the subject declares.
        release: of the subject, such as "0.33.0", "" where it is not known.
        applicable: properties that apply to the subject on the device, those that were not chosen among them; 0 where that is not known.
        first_failure: examples and seconds until an example failed for the first time; empty where none did.
        mixed_versions: of a campaign of several shards, the versions that were not the same in all of them, by name.
        marks: every declared one that the chosen properties could reach; `examples` 0 is a missed one.
    """

    plan: Plan
    release: str = ""
    devices: dict[str, str] = field(default_factory=dict)
    began: str = ""
    seconds: float = 0.0
    rounds: int = 0
    complete: bool = False
    interrupted: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    properties: list[PropertyRecord] = field(default_factory=list)
    buckets: list[BucketRecord] = field(default_factory=list)
    marks: list[MarkRecord] = field(default_factory=list)
    corpus: list[CorpusRecord] = field(default_factory=list)
    launched: list[tuple[How, int]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    canary: str = ""
    known: list[KnownRecord] = field(default_factory=list)
    first_failure: dict[str, float] = field(default_factory=dict)
    mixed_versions: dict[str, list[str]] = field(default_factory=dict)
    applicable: int = 0

    @property
    def examples(self) -> int:
        return sum(row.examples for row in self.properties)

    @property
    def compared(self) -> int:
        """Examples in which something was compared."""
        return sum(row.compared for row in self.properties)

    @property
    def selected(self) -> int:
        """Applicable properties that were chosen."""
        return sum(row.status != Status.NOT_APPLICABLE.value or row.examples > 0 for row in self.properties)

    @property
    def unverified(self) -> dict[str, str]:
        """Models that no property could say anything of, since they cannot be verified, and why."""
        rows = self.properties
        reasons = {name: why for row in rows for name, why in row.counts.unverified.items()}
        compared = {name for row in rows for name, count in row.counts.configurations.items() if count}
        return {name: why for name, why in reasons.items() if name not in compared}

    @property
    def start(self) -> dt.datetime:
        """When it began, in UTC if the text has no time zone; if it is not known, the latest moment of all."""
        moment = dt.datetime.fromisoformat(self.began or "9999-12-31")
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA, **vars(self)}, default=vars, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> CampaignRecord:
        """The record in `text`.

        Raises:
            ValueError: not JSON, another schema, or not the fields of a record.
        """
        return cls.from_data(parse_json(text, _RULE))

    @classmethod
    def from_data(cls, data: Any) -> CampaignRecord:
        """As `from_json`, of parsed JSON; `data` is not changed."""
        content = dict(data) if isinstance(data, dict) else {}
        schema = content.pop("schema", None)
        if type(schema) is not int or schema != SCHEMA:
            known = type(schema) is int
            why = f": {'a newer' if schema > SCHEMA else 'an older'} version has written it" if known else ""
            raise ValueError(
                f"schema = {format_value(schema)}, but should be {SCHEMA} [Record.from_json]{why}"
            )
        try:
            record: CampaignRecord = Decoder(check=_check_number).build(cls, content)
            _check(record)
        except ValueError as error:
            raise ValueError(f"{error} [Record.from_json]") from error
        return record

    def save(self, path: Path) -> Path:
        """Write it so that at every moment `path` holds a whole record or the one before."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, self.to_json(), durable=False)
        return path

    @classmethod
    def load(cls, path: Path) -> CampaignRecord:
        """The record in a file.

        Raises:
            OSError: there is no such file, or it may not be read.
            ValueError: no regular file, too large, or no record; names the file.
        """
        try:
            return cls.from_data(load_json(path, _RULE, largest=_LARGEST))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def saved_records(reports: Path) -> Iterator[CampaignRecord]:
    """The records of campaigns in a folder of reports, the latest first. A file that cannot be read says nothing."""
    paths: list[tuple[float, Path]] = []
    for path in (reports / "campaigns").glob(f"*/{FILE}"):
        with suppress(OSError):
            paths.append((path.stat().st_mtime, path))
    for _, path in sorted(paths, reverse=True):
        with suppress(OSError, ValueError):
            yield CampaignRecord.load(path)


def require_id(name: str, place: str) -> None:
    """Raise a ValueError if a campaign's name may not name a folder."""
    if not _ID.fullmatch(name):
        raise Misfit(place, name, _ID_RULE)


def _check_number(place: str, number: float) -> None:
    """Refuse a number that counts or measures nothing."""
    if not 0 <= number < _MOST:
        raise Misfit(place, number, "a number from 0 to 10^300")


def _check(record: CampaignRecord) -> None:
    """Refuse a record whose fields contradict each other, name another folder, or have a word that no version has."""
    plan = record.plan
    require_id(plan.id, "plan.id")
    require_subject(plan.subject, "plan.subject")
    if not _COMMIT.fullmatch(plan.commit):
        raise Misfit("plan.commit", plan.commit, "the digits of a commit")
    if not 1 <= plan.shards <= _MOST_SHARDS or plan.shard >= plan.shards:
        shard = f"{plan.shard} of {plan.shards}"
        raise Misfit("plan.shard", shard, f"one of 1 to {_MOST_SHARDS} shards, counted from 0")
    try:
        if record.began:
            dt.datetime.fromisoformat(record.began)
    except ValueError:
        raise Misfit("began", record.began, "a time as in ISO 8601") from None
    # A status that no version has would count for nothing, and so as passed.
    statuses = [status.value for status in Status]
    words: list[tuple[str, str, Sequence[str]]] = [
        *((f"properties[{at}].status", row.status, statuses) for at, row in enumerate(record.properties)),
        *((f"corpus[{at}].verdict", row.verdict, CORPUS_VERDICTS) for at, row in enumerate(record.corpus)),
        *((f"known[{at}].status", row.status, DEFECT_STATUSES) for at, row in enumerate(record.known)),
    ]
    words += [
        (f"properties[{at}].statuses[{name!r}]", status, statuses)
        for at, row in enumerate(record.properties)
        for name, status in row.statuses.items()
    ]
    for place, word, known in words:
        if word not in known:
            raise Misfit(place, word, f"one of {', '.join(known)}")
    rank = [status.value for status in WORST_FIRST].index
    for at, row in enumerate(record.properties):
        place, worst = f"properties[{at}].status", min(row.statuses.values(), key=rank, default=row.status)
        if rank(worst) < rank(row.status):
            raise Misfit(place, row.status, f"{worst!r} as for one of its models")
        if row.status == Status.PASSED.value and not row.compared:
            raise Misfit(place, row.status, "another one: no example was compared")
        if row.compared > row.examples:
            rule = f"at most {row.examples}, the number of examples"
            raise Misfit(f"properties[{at}].counts.compared", row.compared, rule)
    for at, bucket in enumerate(record.buckets):
        if not _BUCKET.fullmatch(bucket.id):
            raise Misfit(f"buckets[{at}].id", bucket.id, "ten hexadecimal digits")
        for name in ("report", "corpus"):
            path = getattr(bucket, name)
            if _HIDDEN.search(path):
                raise Misfit(f"buckets[{at}].{name}", path, "a path without control characters")
    for at, case in enumerate(record.corpus):
        if PurePath(case.file).name != case.file:
            raise Misfit(f"corpus[{at}].file", case.file, "the name of a file")
    require_once((bucket.id for bucket in record.buckets), "buckets")
    require_once((row.id for row in record.properties), "properties")
    require_once((mark.name for mark in record.marks), "marks")
    require_once((defect.id for defect in record.known), "known")
