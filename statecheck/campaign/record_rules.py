"""What a campaign record from outside may say: counts that are counts, and names that lead to no other folder."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from statecheck.case.rules import require_path
from statecheck.data.decode import Misfit, require_once

if TYPE_CHECKING:
    from statecheck.campaign.record import CampaignRecord

ID_RULE = "letters, digits, '.', '_' and '-', at most 100, and begin with one of the first two"
_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
_BUCKET = re.compile(r"[0-9a-f]{10}")
_COMMIT = re.compile(r"[\w+ |]{0,1000}", re.ASCII)
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MOST = 10**300
_MOST_SHARDS = 1_000_000


def require_id(name: str, place: str) -> None:
    """Refuse a name of a campaign that is no name for a folder.

    Raises:
        ValueError: names the place, the value and the rule.
    """
    if not _ID.fullmatch(name):
        raise Misfit(place, name, ID_RULE)


def check_number(place: str, number: float) -> None:
    """Refuse a number that counts or measures nothing."""
    if not 0 <= number < _MOST:
        raise Misfit(place, number, "a number from 0 to 10^300")


def check_record(record: CampaignRecord) -> None:
    """Refuse a record whose fields contradict each other, or name another folder.

    Raises:
        ValueError: names the place, the value and the rule.
    """
    require_id(record.id, "id")
    require_path(record.subject, "subject", indices=False)
    if not _COMMIT.fullmatch(record.commit):
        raise Misfit("commit", record.commit, "the digits of a commit")
    if not 1 <= record.shards <= _MOST_SHARDS or record.shard >= record.shards:
        shard = f"{record.shard} of {record.shards}"
        raise Misfit("shard", shard, f"one of 1 to {_MOST_SHARDS} shards, counted from 0")
    _check_time(record.began)
    _check_buckets(record)
    require_once((one.name for one in record.properties), "properties")
    require_once((one.name for one in record.marks), "marks")
    require_once((one.id for one in record.known), "known")
    for at, case in enumerate(record.corpus):
        if PurePath(case.file).name != case.file:
            raise Misfit(f"corpus[{at}].file", case.file, "the name of a file")


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
    require_once((one.id for one in record.buckets), "buckets")
