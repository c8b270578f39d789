"""What is known of a campaign, as data: what reports are made from, what shards add up to, what the next campaign goes on from."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

from statecheck.campaign.launched import KernelRecord
from statecheck.campaign.record_parts import (
    CORPUS_VERDICTS,
    STANDINGS,
    BucketRecord,
    CorpusRecord,
    KnownRecord,
    MarkRecord,
    PropertyRecord,
)
from statecheck.case.rules import require_path
from statecheck.execution.verdict import Status
from statecheck.util.decode import Decoder, Misfit, format_value, require_once
from statecheck.util.files import write_whole
from statecheck.util.json_files import load, parse

SCHEMA = 3
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


@dataclass
class CampaignRecord:
    """One campaign, or one shard of it.

    Args:
        id: the campaign's name, also that of its folder; shards of one campaign have it in common.
        commit: of the repository, 12 hexadecimal digits, with "+" behind them where files were changed; "" unknown.
        gpus: device names by index, such as {"0": "NVIDIA H200"}; {"cpu": "..."} without a GPU.
        began: when, ISO 8601 with time zone. For people only: durations are measured, not subtracted.
        seconds: how long it ran.
        budget: seconds, or None where `examples_wanted` says how much work it is.
        rounds: how many were begun; `first_round` is the number of the first.
        complete: the budget was used up.
        launched: kernels that were executed or interpreted; empty where they are compiled.
        troubles: what went wrong on the campaign's own side, a sentence each.
        remarks: what the subject did to its process beside returning results, a sentence each; no part of the verdict.
        canary: how the property that must fail was found; "" while it was not.
        known: the defects that the subject declares.
        seed: from which the random choices of all tasks follow, None where they follow from the commit.
        fail_on_untested: an applicable property that is not tested is a failure.
        profile: the conformance profile that it was run for, "" for none.
        tolerates_fixed: a declared defect that no longer fails is no failure.
        release: of the subject, such as "0.33.0", "" where it is not known.
        applicable: properties that apply to the subject on the device, those that were not chosen among them; 0 where that is not known.
        first_failure: examples and seconds until an example failed for the first time; empty where none did.
        mixed_versions: of a campaign of several shards, the versions that were not the same in all of them, by name.
        marks: every declared one that the chosen properties could reach; `examples` 0 is a missed one.
    """

    id: str
    subject: str
    device: str
    commit: str
    only: str = ""
    shard: int = 0
    shards: int = 1
    gpus: dict[str, str] = field(default_factory=dict)
    engines: int = 1
    began: str = ""
    seconds: float = 0.0
    budget: float | None = None
    examples_wanted: int | None = None
    first_round: int = 0
    rounds: int = 0
    complete: bool = False
    interrupted: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    properties: list[PropertyRecord] = field(default_factory=list)
    buckets: list[BucketRecord] = field(default_factory=list)
    marks: list[MarkRecord] = field(default_factory=list)
    corpus: list[CorpusRecord] = field(default_factory=list)
    launched: list[KernelRecord] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    canary: str = ""
    known: list[KnownRecord] = field(default_factory=list)
    seed: int | None = None
    fail_on_untested: bool = False
    profile: str = ""
    tolerates_fixed: bool = False
    release: str = ""
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
        reasons = {name: why for row in self.properties for name, why in row.unverified.items()}
        compared = {name for row in self.properties for name, count in row.configurations.items() if count}
        return {name: why for name, why in reasons.items() if name not in compared}

    @property
    def start(self) -> dt.datetime:
        """When it began, in UTC if the text has no time zone; if it is not known, the latest moment of all."""
        moment = dt.datetime.fromisoformat(self.began or "9999-12-31")
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> CampaignRecord:
        """The record in `text`.

        Raises:
            ValueError: not JSON, another schema, or not the fields of a record.
        """
        return cls.from_data(parse(text, _RULE))

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
            return cls.from_data(load(path, _RULE, largest=_LARGEST))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def require_id(name: str, place: str) -> None:
    """Raise a ValueError if a campaign's name may not name a folder."""
    if not _ID.fullmatch(name):
        raise Misfit(place, name, _ID_RULE)


def _check_number(place: str, number: float) -> None:
    """Refuse a number that counts or measures nothing."""
    if not 0 <= number < _MOST:
        raise Misfit(place, number, "a number from 0 to 10^300")


def _check(record: CampaignRecord) -> None:
    """Refuse a record whose fields contradict each other, or name another folder."""
    require_id(record.id, "id")
    require_path(record.subject, "subject", indices=False)
    if not _COMMIT.fullmatch(record.commit):
        raise Misfit("commit", record.commit, "the digits of a commit")
    if not 1 <= record.shards <= _MOST_SHARDS or record.shard >= record.shards:
        shard = f"{record.shard} of {record.shards}"
        raise Misfit("shard", shard, f"one of 1 to {_MOST_SHARDS} shards, counted from 0")
    _check_time(record.began)
    _check_words(record)
    _check_buckets(record)
    require_once((row.name for row in record.properties), "properties")
    require_once((mark.name for mark in record.marks), "marks")
    require_once((defect.id for defect in record.known), "known")
    for at, case in enumerate(record.corpus):
        if PurePath(case.file).name != case.file:
            raise Misfit(f"corpus[{at}].file", case.file, "the name of a file")


def _check_words(record: CampaignRecord) -> None:
    """Refuse a status, a verdict or a standing that no version has: what counts for nothing would count as passed."""
    statuses = [status.value for status in Status]
    words: list[tuple[str, str, Sequence[str]]] = [
        *((f"properties[{at}].status", row.status, statuses) for at, row in enumerate(record.properties)),
        *((f"corpus[{at}].verdict", row.verdict, CORPUS_VERDICTS) for at, row in enumerate(record.corpus)),
        *((f"known[{at}].standing", row.standing, STANDINGS) for at, row in enumerate(record.known)),
    ]
    for place, word, known in words:
        if word not in known:
            raise Misfit(place, word, f"one of {', '.join(known)}")


def _check_time(began: str) -> None:
    try:
        if began:
            dt.datetime.fromisoformat(began)
    except ValueError:
        raise Misfit("began", began, "a time as in ISO 8601") from None


def _check_buckets(record: CampaignRecord) -> None:
    for at, one in enumerate(record.buckets):
        if not _BUCKET.fullmatch(one.id):
            raise Misfit(f"buckets[{at}].id", one.id, "ten hexadecimal digits")
        for name in ("report", "corpus"):
            path = getattr(one, name)
            if _HIDDEN.search(path):
                raise Misfit(f"buckets[{at}].{name}", path, "a path without control characters")
    require_once((bucket.id for bucket in record.buckets), "buckets")
