"""A campaign as JUnit XML, which CI systems show as a list of tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import BucketRecord, PropertyRecord
from statecheck.execution.verdict import Status
from statecheck.text import brief, visible

_TITLE, _TEXT = 300, 4000
_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}
_KINDS = {
    Status.FALSIFIED.value: "failure",
    Status.UNEXPECTED_PASS.value: "failure",
    Status.ERROR.value: "error",
    Status.NOT_FINISHED.value: "error",
    Status.NOT_APPLICABLE.value: "skipped",
    Status.NOT_TESTED.value: "skipped",
    "FAILED": "failure",
    "UNREADABLE": "error",
    "NOT APPLICABLE": "skipped",
    "NOT REPRODUCED": "skipped",
    "LEFT OUT": "skipped",
}
"""What the test of a property with that status, or of a replay with that verdict, comes to; others passed."""


def junit(record: CampaignRecord) -> str:
    """A test for each property, for each replayed case of the corpus, and for the canary.

    A property has a failure for each bucket; one that was not reached, or does not apply, was skipped.
    """
    root = Element("testsuites", name="statecheck", time=f"{record.seconds:.3f}")
    buckets: dict[str, list[BucketRecord]] = defaultdict(list)
    for bucket in record.buckets:
        buckets[bucket.property].append(bucket)
    rows = {row.name: row for row in record.properties}
    names = dict.fromkeys((*rows, *buckets))
    _suite(root, "properties", (_property(name, rows.get(name), buckets[name]) for name in names), record)
    replays = (_test(one.file, _KINDS.get(one.verdict), one.verdict, one.message) for one in record.corpus)
    _suite(root, "corpus", replays, record)
    _suite(root, "canary", [_canary(record)], record)
    for kind in ("tests", *_COUNTED.values()):
        root.set(kind, f"{sum(int(suite.get(kind, '0')) for suite in root)}")
    indent(root, " ")
    return "<?xml version='1.0' encoding='UTF-8'?>\n" + tostring(root, encoding="unicode") + "\n"


def _suite(root: Element, name: str, tests: Iterable[Element], record: CampaignRecord) -> None:
    suite = SubElement(root, "testsuite", name=name, timestamp=brief(record.began, _TITLE))
    suite.extend(tests)
    suite.set("tests", f"{len(suite)}")
    for kind, plural in _COUNTED.items():
        # How many have such a child, however many of it.
        suite.set(plural, f"{sum(test.find(kind) is not None for test in suite)}")
    suite.set("time", f"{sum(float(test.get('time', '0')) for test in suite):.3f}")
    for test in suite:
        test.set("classname", f"statecheck.{name}")


def _test(name: str, kind: str | None, type_: str = "", message: str = "", seconds: float = 0.0) -> Element:
    """A test, with a child that says what it came to unless it passed."""
    test = Element("testcase", name=visible(name), time=f"{seconds:.3f}")
    if kind is not None:
        _add(test, kind, message, message=message or type_, type=type_)
    return test


def _add(parent: Element, tag: str, text: str, **attributes: str) -> None:
    child = SubElement(parent, tag, {name: brief(value, _TITLE) for name, value in attributes.items()})
    child.text = visible(text[:_TEXT]) or None


def _property(name: str, row: PropertyRecord | None, buckets: Iterable[BucketRecord]) -> Element:
    test = _test(name, None)
    if row is not None:
        kind = _KINDS.get(row.status)
        # What a bucket says is not said twice.
        shown = kind if not buckets or kind == "error" else None
        test = _test(name, shown, row.status, row.detail, row.seconds)
    for bucket in buckets:
        text = "\n".join(_lines(bucket))
        _add(test, "failure", text, message=bucket.message, type=bucket.fault or bucket.rule)
    if row is not None:
        id_ = f" ({row.id})" if row.id else ""
        _add(test, "system-out", f"{row.sentence}{id_}\n{row.status}, {row.examples} examples")
    return test


def _lines(bucket: BucketRecord) -> Iterator[str]:
    yield bucket.message
    yield f"bucket {bucket.id}: {bucket.rule}, seen {bucket.examples} times"
    rows = {
        "first seen": " ".join(bucket.first_seen.values()),
        "case": bucket.corpus,
        "report": bucket.report,
        "note": bucket.note,
    }
    yield from (f"{name}: {value}" for name, value in rows.items() if value)


def _canary(record: CampaignRecord) -> Element:
    why = "NOT FOUND: it was not reported, so that nothing in this campaign that passed is proof"
    name = "the property that must fail is found"
    test = _test(name, None if record.canary else "failure", "canary", "" if record.canary else why)
    if record.canary:
        _add(test, "system-out", record.canary)
    return test
