"""A campaign as JUnit XML."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import pytest

from statecheck.campaign.pages.junit import junit
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import CorpusRecord
from tests.campaign.nightly_examples import (
    EXAMPLES,
    a_bucket,
    a_property,
    a_record,
    hostile,
    parsed,
    two_buckets,
)

every_example = pytest.mark.parametrize("name", EXAMPLES)


def suites(record: CampaignRecord) -> dict[str, Element]:
    return {suite.attrib["name"]: suite for suite in parsed(junit(record))}


def cases(record: CampaignRecord, suite: str) -> dict[str, Element]:
    return {case.attrib["name"]: case for case in suites(record)[suite]}


def kinds(case: Element) -> list[str]:
    return [child.tag for child in case if child.tag != "system-out"]


@every_example
def test_the_counts_of_a_suite_are_those_of_its_cases(name: str) -> None:
    for suite in suites(EXAMPLES[name]).values():
        found = {
            kind: sum(case.find(kind) is not None for case in suite)
            for kind in ("failure", "error", "skipped")
        }
        messages = [int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped")]
        assert messages == [len(suite), *found.values()]


def test_a_property_has_a_failure_for_each_bucket() -> None:
    found = cases(a_record(a_bucket(1), a_bucket(2)), "properties")["toys_divide"]
    assert kinds(found) == ["failure", "failure"]
    assert "bucket 0000000001" in (found[0].text or "")
    assert found[0].attrib["message"] == a_bucket(1).message


def test_a_bucket_of_a_property_that_is_not_in_the_table_is_a_failure_too() -> None:
    found = cases(a_record(a_bucket(1), properties=[]), "properties")
    assert kinds(found["toys_divide"]) == ["failure"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("passed", []),
        ("known", []),
        ("not applicable", ["skipped"]),
        ("not tested", ["skipped"]),
        ("ERROR", ["error"]),
        ("FALSIFIED", ["failure"]),
        ("UNEXPECTED PASS", ["failure"]),
    ],
)
def test_the_status_of_a_property_decides_what_its_test_is(status: str, kind: list[str]) -> None:
    found = cases(a_record(properties=[a_property(status=status, detail="why")]), "properties")["chunks_end"]
    assert kinds(found) == kind
    assert all("why" in child.attrib["message"] for child in found if child.tag != "system-out")


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [("FIXED", []), ("FAILED", ["failure"]), ("NOT APPLICABLE", ["skipped"]), ("UNREADABLE", ["error"])],
)
def test_the_verdict_of_a_replay_decides_what_its_test_is(verdict: str, kind: list[str]) -> None:
    found = cases(a_record(corpus=[CorpusRecord("a.json", verdict, "a reason")]), "corpus")["a.json"]
    assert kinds(found) == kind


def test_a_canary_that_was_not_found_is_a_failure() -> None:
    (missing,) = cases(a_record(canary=""), "canary").values()
    (found,) = cases(a_record(), "canary").values()
    assert (kinds(missing), kinds(found)) == (["failure"], [])


def test_characters_that_xml_forbids_are_shown_as_escapes() -> None:
    text = junit(hostile())
    assert "\\x00\\x1b[31m\\ud800\\ufffe\\u202e" in text
    assert "<script>" not in text


def test_a_failure_says_where_its_case_is() -> None:
    found = cases(two_buckets(), "properties")["states_stay"]
    assert "case: corpus/states_stay-0000000002.json" in (found[0].text or "")
