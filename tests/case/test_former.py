"""Files that call a property by the name that it had once still mean it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from statecheck import rooms
from statecheck.campaign.corpus import file_name
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import BucketRecord, KnownRecord, PropertyRecord
from statecheck.case.bucket import bucket_of
from statecheck.case.case import Case
from statecheck.case.former import FORMER_NAMES
from statecheck.case.values import call
from statecheck.execution.registry import found, load_properties
from statecheck.subject.deviation import KnownDeviation, Symptom
from tests.breakages.broken import a_case

FORMER, TODAY = next(iter(FORMER_NAMES.items()))
OF_A_CAMPAIGN = sorted((rooms.FOLDER / "corpus").glob("requests_without_copies_live*.json"))
OF_FINDINGS = sorted((rooms.FOLDER / "docs" / "findings").glob("*.json"))


def test_every_former_name_leads_to_a_property_of_today() -> None:
    tested = load_properties()
    assert [name for name in FORMER_NAMES.values() if name not in tested] == []
    assert [name for name in FORMER_NAMES if name in tested] == []
    assert len(set(FORMER_NAMES.values())) == len(FORMER_NAMES)
    assert found(FORMER).name == TODAY


@pytest.mark.parametrize("path", [*OF_A_CAMPAIGN, *OF_FINDINGS], ids=lambda path: path.stem)
def test_a_saved_case_is_of_the_property_by_its_name_of_today(path: Path) -> None:
    case, saved = Case.load(path), json.loads(path.read_text())["property_name"]
    assert case.property_name == FORMER_NAMES.get(saved, saved)
    assert case.property_name in load_properties()


def test_a_bucket_keeps_its_id_and_its_file_in_the_corpus() -> None:
    (path,) = OF_A_CAMPAIGN
    case = Case.load(path)
    assert path.name == file_name(case)
    assert (
        bucket_of(case).id
        == bucket_of(replace(case, property_name=json.loads(path.read_text())["property_name"])).id
    )


def test_a_declaration_covers_the_property_under_its_former_name() -> None:
    symptom = Symptom("value", "cdiv", "result")
    assert KnownDeviation(FORMER, "https://example.org/1", symptom).covers(TODAY)
    assert KnownDeviation(("other", FORMER), "https://example.org/1", symptom).names == ("other", TODAY)


def test_an_earlier_campaign_is_read_with_the_names_of_today() -> None:
    earlier = CampaignRecord("first", "impl", "cpu", "")
    earlier.properties.append(PropertyRecord(FORMER, "Sentence.", "provenance", "passed"))
    earlier.buckets.append(BucketRecord("0" * 10, FORMER, "", "", "impl", "Sentence.", "wrong", 1, 0.0))
    earlier.known.append(KnownRecord("defect", properties={FORMER: 2}))
    record = CampaignRecord.from_json(earlier.to_json())
    names = record.properties[0].name, record.buckets[0].property, *record.known[0].properties
    assert set(names) == {TODAY}


def test_calls_of_a_saved_case_name_the_functions_of_today() -> None:
    case = a_case(steps=(call("harness.canary_identity", x=1),))
    data = json.loads(case.to_json().replace("harness.canary_identity", "harness.sing"))
    assert Case.from_data(data).steps == case.steps
