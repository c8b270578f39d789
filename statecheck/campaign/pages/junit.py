"""A campaign as JUnit XML, which CI systems show as a list of tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from statecheck.campaign.pages.summary import WRONG
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import BucketRecord, CorpusRecord, PropertyRecord
from statecheck.execution.verdict import Status
from statecheck.text import brief, visible

_TITLE, _TEXT = 300, 4000
_SKIPPED = (Status.NOT_APPLICABLE.value, Status.NOT_TESTED.value, Status.RUNNING.value)


def junit(record: CampaignRecord) -> str:
    """A test for each property, for each replayed case of the corpus, and for the canary.

    A property has a failure for each bucket; one that was not reached, or does not apply, was skipped.
    """
    root = Element("testsuites", name="statecheck")
    buckets = _by_property(record.buckets)
    names = {row.name for row in record.properties}
    properties = [_property(row, buckets.get(row.name, ())) for row in record.properties]
    properties += [_failing(name, found) for name, found in buckets.items() if name not in names]
    _suite(root, "properties", properties, record)
    _suite(root, "corpus", [_replayed(replay) for replay in record.corpus], record)
    _suite(root, "canary", [_canary(record)], record)
    for kind in ("tests", "failures", "errors", "skipped"):
        root.set(kind, f"{sum(int(suite.get(kind, '0')) for suite in root)}")
    root.set("time", f"{record.seconds:.3f}")
    indent(root, " ")
    return "<?xml version='1.0' encoding='UTF-8'?>\n" + tostring(root, encoding="unicode") + "\n"


def _by_property(buckets: Sequence[BucketRecord]) -> dict[str, list[BucketRecord]]:
    found: dict[str, list[BucketRecord]] = defaultdict(list)
    for bucket in buckets:
        found[bucket.property].append(bucket)
    return found


def _suite(root: Element, name: str, cases: Sequence[Element], record: CampaignRecord) -> None:
    counts = {
        "tests": len(cases),
        "failures": _having(cases, "failure"),
        "errors": _having(cases, "error"),
        "skipped": _having(cases, "skipped"),
    }
    suite = _element(root, "testsuite", name=name, timestamp=record.began)
    suite.attrib |= {kind: f"{number}" for kind, number in counts.items()}
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
    for case in cases:
        case.set("classname", f"statecheck.{name}")
        suite.append(case)


def _having(cases: Sequence[Element], kind: str) -> int:
    """How many have such a child, however many of it."""
    return sum(case.find(kind) is not None for case in cases)


def _case(name: str, seconds: float = 0.0) -> Element:
    return Element("testcase", name=visible(name), time=f"{seconds:.3f}")


def _element(parent: Element, tag: str, text: str = "", **attributes: str) -> Element:
    found = SubElement(parent, tag, {name: brief(value, _TITLE) for name, value in attributes.items()})
    found.text = visible(text[:_TEXT]) or None
    return found


def _property(row: PropertyRecord, buckets: Sequence[BucketRecord]) -> Element:
    case = _failing(row.name, buckets, row.seconds)
    if row.status in (Status.ERROR.value, Status.NOT_FINISHED.value):
        _element(case, "error", row.detail, message=row.detail or row.status, type=row.status)
    elif row.status in WRONG and not buckets:
        _element(case, "failure", row.detail, message=row.detail or row.status, type=row.status)
    elif row.status in _SKIPPED and not buckets:
        _element(case, "skipped", message=f"{row.status}: {row.detail}" if row.detail else row.status)
    _element(
        case,
        "system-out",
        f"{row.sentence}{f' ({row.id})' if row.id else ''}\n{row.status}, {row.examples} examples",
    )
    return case


def _failing(name: str, buckets: Sequence[BucketRecord], seconds: float = 0.0) -> Element:
    case = _case(name, seconds)
    for bucket in buckets:
        _element(
            case,
            "failure",
            "\n".join(_told(bucket)),
            message=bucket.message,
            type=bucket.fault or bucket.rule,
        )
    return case


def _told(bucket: BucketRecord) -> Iterator[str]:
    yield bucket.message
    yield f"bucket {bucket.id}: {bucket.rule}, seen {bucket.examples} times"
    rows = {
        "first seen": " ".join(bucket.first_seen.values()),
        "case": bucket.corpus,
        "report": bucket.report,
        "note": bucket.note,
    }
    yield from (f"{name}: {value}" for name, value in rows.items() if value)


def _replayed(replay: CorpusRecord) -> Element:
    case = _case(replay.file)
    kind = {
        "FAILED": "failure",
        "UNREADABLE": "error",
        "NOT APPLICABLE": "skipped",
        "NOT REPRODUCED": "skipped",
        "LEFT OUT": "skipped",
    }.get(replay.verdict)
    if kind is not None:
        _element(case, kind, replay.message, message=replay.message or replay.verdict, type=replay.verdict)
    return case


def _canary(record: CampaignRecord) -> Element:
    case = _case("the property that must fail is found")
    if record.canary:
        _element(case, "system-out", record.canary)
    else:
        why = "NOT FOUND: it was not reported, so that nothing in this campaign that passed is proof"
        _element(case, "failure", message=why, type="canary")
    return case
