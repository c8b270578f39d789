"""What a record from elsewhere may say: types as annotated, counts that are counts, and names that lead to no other folder."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from properties.harness.case.rules import require_path
from properties.harness.data.typed import refused, require, require_once, spelled

if TYPE_CHECKING:
    from properties.harness.campaign.record import CampaignRecord

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
        raise refused(place, name, ID_RULE)


def check_record(record: CampaignRecord) -> None:
    """Refuse what has all the fields of a record and is none.

    Raises:
        ValueError: names the place, the value and the rule.
    """
    require(record, type(record), "")
    for place, number in _numbers(record, ""):
        if not 0 <= number < _MOST:
            raise refused(place, number, "a number from 0 to 10^300")
    require_id(record.id, "id")
    require_path(record.subject, "subject", indices=False)
    if not _COMMIT.fullmatch(record.commit):
        raise refused("commit", record.commit, "the digits of a commit")
    if not 1 <= record.shards <= _MOST_SHARDS or record.shard >= record.shards:
        told = f"{record.shard} of {record.shards}"
        raise refused("shard", told, f"one of 1 to {_MOST_SHARDS} shards, counted from 0")
    _check_time(record.began)
    _check_buckets(record)
    _check_kernels(record.kernels)
    require_once((one.name for one in record.properties), "properties")
    require_once((one.name for one in record.marks), "marks")
    require_once((one.id for one in record.known), "known")
    for at, one in enumerate(record.corpus):
        if PurePath(one.file).name != one.file:
            raise refused(f"corpus[{at}].file", one.file, "the name of a file")


def _check_time(began: str) -> None:
    try:
        if began:
            dt.datetime.fromisoformat(began)
    except ValueError:
        raise refused("began", began, "a time as in ISO 8601") from None


def _check_buckets(record: CampaignRecord) -> None:
    for at, one in enumerate(record.buckets):
        if not _BUCKET.fullmatch(one.id):
            raise refused(f"buckets[{at}].id", one.id, "ten hexadecimal digits")
        for name in ("report", "corpus"):
            path = getattr(one, name)
            if _HIDDEN.search(path):
                raise refused(f"buckets[{at}].{name}", path, "a path without control characters")
    require_once((one.id for one in record.buckets), "buckets")


def _check_kernels(kernels: dict[str, dict[str, Any]]) -> None:
    for name, one in kernels.items():
        place = f"kernels[{spelled(name)}]"
        require(one.get("compilations", 0), int, f"{place}.compilations")
        require(one.get("variants", []), list[str | list[str]], f"{place}.variants")


def _numbers(value: object, place: str) -> Iterator[tuple[str, int | float]]:
    """The numbers in dataclasses, lists and dicts, each with its place; not those in the JSON of a case."""
    if type(value) in (int, float):
        yield place, value  # type: ignore[misc]
    elif is_dataclass(value):
        for one in fields(value):
            if one.name != "case":
                yield from _numbers(getattr(value, one.name), f"{place}.{one.name}".lstrip("."))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _numbers(item, f"{place}[{at}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{place}[{spelled(key)}]")
