"""Campaigns made by hand, for tests of what is written about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

from statecheck.campaign.plan import Plan
from statecheck.campaign.record import BucketRecord, CampaignRecord, CorpusRecord, MarkRecord, PropertyRecord
from statecheck.campaign.state import CampaignState
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.case.timeline import Cell, Moment, TableRow, Timeline, WrongCell
from statecheck.case.values import call
from statecheck.execution.registry import Property
from statecheck.execution.verdict import Counts
from statecheck.kernels.launch_counts import EXECUTED, NOT_EXECUTED, How
from statecheck.util.files import in_file_name
from tests.helpers.cases import a_case

BEGAN = "2026-11-21T22:00:00+00:00"
HOSTILE = "<script>alert(1)</script> ]]> \"'`|\x00\x1b[31m\ud800\ufffe\u202e & {{ 7 * 7 }} ![x](http://example.org/x.png)"
"""What breaks pages, XML, Markdown and templates that trust what they show."""
_ROW = TableRow(
    "a", 0, 1, (Cell(1, "2 tokens", 2, "a"), Cell(2, "stale", wrong=True)), reads=(0,), writes=(1,)
)
TIMELINE = Timeline((Moment("step 1: a is computed", (_ROW,)),), WrongCell(0, "a", 0, 1, "stale"))


def bucket_with(case: Case, **changes: Any) -> BucketRecord:
    """The bucket of a case of the subject `toy`."""
    known = BucketRecord(
        bucket_of(case).id, case.property_id, "", "", "toy", case.sentence, case.message, 1, 0.0
    )
    return replace(known, case=case.to_data(), **changes)


def a_property(
    id_: str = "chunks/end", *, examples: int = 1200, compared: int | None = None, **changes: Any
) -> PropertyRecord:
    fields: dict[str, Any] = {
        "id": id_,
        "sentence": "Chunks end.",
        "kind": "agreement",
        "status": "passed",
        "counts": Counts(examples, examples if compared is None else compared),
        "seconds": 60.0,
    }
    return PropertyRecord(**fields | changes)


def a_state(properties: Iterable[Property], *, first_seen: dict[str, str] | None = None) -> CampaignState:
    """The state of a campaign of these properties that begins."""
    return CampaignState(CampaignRecord(Plan("night", "toy")), properties, {}, tuple, first_seen or {})


def record_of(**fields: Any) -> CampaignRecord:
    """A record with these fields, and with those of its plan."""
    own = {field.name for field in dataclasses.fields(CampaignRecord)}
    plan = Plan(**{name: value for name, value in fields.items() if name not in own})
    return CampaignRecord(plan, **{name: value for name, value in fields.items() if name in own})


def a_bucket(number: int = 0, case: Case | None = None, **changes: Any) -> BucketRecord:
    case = case or a_case()
    fields: dict[str, Any] = {
        "id": f"{number:010x}",
        "property": case.property_id,
        "rule": "divide: wrong exception",
        "fault": "",
        "subject": case.subject,
        "sentence": case.sentence,
        "message": case.message,
        "examples": 3,
        "at": 12.5,
        "corpus": f"corpus/{in_file_name(case.property_id)}-{number:010x}.json",
        "first_seen": {"date": "2026-11-21", "commit": "0123456789ab"},
        "case": case.to_data(),
    }
    return BucketRecord(**fields | changes)


def bucket_of_its_own(number: int, **changes: Any) -> BucketRecord:
    """A bucket with a cause of its own."""
    return a_bucket(number, a_case(steps=(call(f"divide_{number}", x=5, y=2),)), **changes)


def a_record(*buckets: BucketRecord, **changes: Any) -> CampaignRecord:
    """A clean campaign on a GPU, or one that has met `buckets`."""
    falsified = dict.fromkeys(bucket.property for bucket in buckets)
    fields: dict[str, Any] = {
        "id": "2026-11-21-night",
        "subject": "toy",
        "device": "cuda",
        "commit": "0123456789ab",
        "devices": {"0": "NVIDIA H200"},
        "began": BEGAN,
        "seconds": 120.0,
        "budget": 120.0,
        "rounds": 2,
        "complete": True,
        "environment": {"torch": "2.11.0"},
        "properties": [a_property(), a_property("copies/land", launches=True, examples=600)]
        + [a_property(id_, status="FALSIFIED", detail="wrong") for id_ in falsified],
        "buckets": list(buckets),
        "marks": [
            MarkRecord("empty batch", "batch", 5, 1.5, "chunks/end"),
            MarkRecord("null block", "align"),
        ],
        "corpus": [CorpusRecord("chunks-end-00000000aa.json", "FIXED", "toy now answers")],
        "canary": "found after 3 s by its worker",
    }
    return record_of(**fields | changes)


LAUNCHED = [
    (How("copy_kernel", EXECUTED, "", "toy/kernels.py:10"), 12_345),
    (How("move_kernel", NOT_EXECUTED, "tt.new", "toy/kernels.py:30"), 12),
]


def on_a_cpu(**changes: Any) -> CampaignRecord:
    fields = {"device": "cpu", "devices": {"cpu": "x86_64"}, "launched": LAUNCHED}
    return a_record(**fields | changes)


def empty() -> CampaignRecord:
    """A campaign that ended before it ran anything."""
    return CampaignRecord(Plan("nothing", "toy"))


def two_buckets() -> CampaignRecord:
    pictured = a_case(property_id="states/stay", timeline=TIMELINE, finding="Program 0 wrote it.")
    return a_record(a_bucket(1), a_bucket(2, pictured, fault="illegal access", note="It did not repeat."))


def hostile() -> CampaignRecord:
    """A record in which each name of a subject, a property or a person is an attack on the page."""
    case = a_case(message=HOSTILE, finding=HOSTILE, sentence=HOSTILE)
    bucket = a_bucket(
        3,
        case,
        property=HOSTILE,
        rule=HOSTILE,
        fault=HOSTILE,
        message=HOSTILE,
        note=HOSTILE,
        sentence=HOSTILE,
    )
    return a_record(
        bucket,
        a_bucket(4, id=HOSTILE, corpus=HOSTILE),
        id=HOSTILE,
        only=HOSTILE,
        commit=HOSTILE,
        subject=HOSTILE,
        canary=HOSTILE,
        warnings=[HOSTILE],
        devices={HOSTILE: HOSTILE},
        environment={HOSTILE: HOSTILE},
        launched=[(How(HOSTILE, NOT_EXECUTED, HOSTILE, HOSTILE), 1)],
        corpus=[CorpusRecord(HOSTILE, "FAILED", HOSTILE), CorpusRecord(HOSTILE, HOSTILE, HOSTILE)],
        marks=[MarkRecord(HOSTILE, HOSTILE, 1, 1.0, HOSTILE)],
        properties=[a_property(HOSTILE, status=HOSTILE, detail=HOSTILE, sentence=HOSTILE)],
    )


EXAMPLES = {
    "clean": a_record(),
    "two buckets": two_buckets(),
    "canary not found": a_record(canary=""),
    "interrupted": a_record(complete=False, interrupted=True, rounds=5),
    "empty": empty(),
    "CPU": on_a_cpu(),
    "hostile": hostile(),
}


def campaigns(reports: Path, *records: CampaignRecord) -> Path:
    """The folder of reports, with a campaign for each of `records`."""
    for record in records:
        record.save(reports / "campaigns" / record.plan.id / "campaign.json")
    return reports


def parsed(text: str) -> Element:
    """`text` as the bytes that a file has of it, parsed."""
    return fromstring(text.encode())  # noqa: S314 - we wrote it ourselves
