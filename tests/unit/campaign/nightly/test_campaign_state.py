"""The state of a campaign, message by message."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign.corpus import kept_in
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord, CorpusRecord
from statecheck.campaign.state import CampaignState, PropertyState
from statecheck.campaign.summary import is_new
from statecheck.campaign.tasks import Explored, Found
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.case.values import Raised, call
from statecheck.execution.verdict import Status
from statecheck.reference.situations import Situation
from tests.helpers.cases import a_case, a_property

FIRST_SEEN = {"date": "2026-11-22", "commit": "0123456789ab"}
LONG_AGO = {"date": "2026-01-31", "commit": "ba9876543210"}
NAME = "toys/divide"
DIVIDED = a_case()
"""One thing that is wrong."""
ADDED = a_case(
    steps=(call("divide", x=50, y=2), call("add", x=5, y=2)),
    expected=DIVIDED.expected * 2,
    actual=(Raised("ValueError", "x"), Raised("KeyError", "out of order")),
    message="the call = KeyError: out of order, but should be ValueError that names x",
)
"""Another, with a longer case."""
ONE, OTHER = bucket_of(DIVIDED).id, bucket_of(ADDED).id


def a_record(**fields: Any) -> CampaignRecord:
    return CampaignRecord(Plan("night", "toy"), **fields)


def campaign_state(*marks: Situation, **skipped: str) -> CampaignState:
    names = (NAME, "toys/add", *skipped)
    properties = [a_property(id=name) for name in names]
    return CampaignState(a_record(), properties, skipped, lambda: marks, FIRST_SEEN)


def found(case: Case = DIVIDED, *others: str, **changes: Any) -> Found:
    fields: dict[str, Any] = {"report": "", "corpus": "", "note": ""} | changes
    return Found((bucket_of(case).id, *others), case.to_data(), **fields)


def explored(
    state: CampaignState, status: str = "passed", examples: int = 10, **fields: Any
) -> PropertyState:
    """Apply an exploration, which took a second, to the state."""
    state.progress(NAME, examples, examples)
    state.explored(Explored(NAME, status, 1.0, **fields), at=5.04)
    return state.property_states[NAME]


def status_of(state: CampaignState) -> Status:
    return state.property_states[NAME].status


def test_an_error_counts_once_it_came_again_and_the_third_closes_the_property() -> None:
    state = campaign_state()
    seen = []
    for _ in range(3):
        property_state = explored(state, "error", detail="Traceback")
        seen.append((property_state.status, property_state.open, property_state.detail))
    assert seen == [
        (Status.PASSED, True, ""),
        (Status.ERROR, True, "Traceback"),
        (Status.ERROR, False, "Traceback"),
    ]


def test_a_mark_has_the_number_of_its_examples_and_its_first_property() -> None:
    state = campaign_state(Situation("empty batch", "batch"), Situation("null block", "align"))
    explored(state, marks={"empty batch": 3, "an unknown mark": 1})
    state.explored(Explored("toys/add", "passed", 1.0, marks={"empty batch": 4}), at=9.0)
    reached, missed = state.marks.values()
    assert (reached.examples, reached.at, reached.property) == (7, 5.0, NAME)
    assert (missed.examples, missed.at, missed.property) == (0, None, "")


def test_a_failure_falsifies_its_property_and_is_gone_past() -> None:
    state = campaign_state()
    property_state = explored(state, "falsified", found=(found(),), failing={ONE: 7})
    assert (property_state.status, property_state.detail, property_state.known) == (
        Status.FALSIFIED,
        DIVIDED.message,
        frozenset({ONE}),
    )
    bucket = state.buckets[ONE]
    assert (bucket.examples, bucket.at, bucket.first_seen) == (7, 5.0, FIRST_SEEN)
    assert (bucket.property, bucket.subject, bucket.message) == (NAME, "toy", DIVIDED.message)


def test_failing_examples_of_a_known_bucket_are_counted_once_each() -> None:
    state = campaign_state()
    explored(state, "falsified", found=(found(),), failing={ONE: 7})
    explored(state, failing={ONE: 5})
    assert state.buckets[ONE].examples == 12


def test_a_bucket_keeps_the_shrunk_case_before_one_that_was_only_met() -> None:
    met, shrunk = (a_case(steps=(call("divide", x=x, y=2),)) for x in (5, 1))
    for order in ((met, shrunk), (shrunk, met)):
        state = campaign_state()
        for case in order:
            explored(state, "falsified", found=(found(case, shrunk=case is shrunk),))
        (bucket,) = state.buckets.values()
        assert (bucket.case, bucket.shrunk) == (shrunk.to_data(), True)


def test_a_bucket_keeps_the_smaller_case_whichever_was_first() -> None:
    longer = replace(DIVIDED, steps=(call("divide", x=5_000_000, y=2),))
    assert bucket_of(longer).id == ONE
    for cases in ((longer, DIVIDED), (DIVIDED, longer)):
        state = campaign_state()
        for case in cases:
            state.find(found(case), 1.0)
        assert Case.from_json(json.dumps(state.buckets[ONE].case)).steps == DIVIDED.steps


def test_messages_that_lead_to_a_case_twice_are_known_from_then_on() -> None:
    state = campaign_state()
    property_state = explored(state, "falsified", found=(found(DIVIDED, OTHER),))
    assert property_state.known == frozenset({ONE})
    property_state = explored(state, "falsified", found=(found(DIVIDED, OTHER),))
    assert property_state.known == frozenset({ONE, OTHER})
    assert list(state.buckets) == [ONE]


def test_a_bucket_is_as_old_as_the_corpus_says(tmp_path: Path) -> None:
    path = replace(DIVIDED, first_seen=LONG_AGO).save(tmp_path / "case.json")
    state = campaign_state()
    state.find(found(corpus=str(path)), 1.0)
    assert state.buckets[ONE].first_seen == LONG_AGO


@pytest.mark.parametrize(
    ("verdict", "buckets", "warnings"),
    [("FAILED", 1, 0), ("FIXED", 0, 0), ("NOT APPLICABLE", 0, 0), ("UNREADABLE", 0, 1)],
)
def test_the_failure_of_a_replayed_case_is_known_from_the_beginning(
    tmp_path: Path, verdict: str, buckets: int, warnings: int
) -> None:
    state, path = campaign_state(), DIVIDED.save(tmp_path / "case.json")
    content = DIVIDED.to_data() if verdict == "FAILED" else {}
    state.replayed(CorpusRecord("case.json", verdict, "a reason"), path, content)
    assert (len(state.buckets), len(state.record.warnings)) == (buckets, warnings)
    assert state.property_states[NAME].known == (frozenset({ONE}) if buckets else frozenset())
    assert status_of(state) is (Status.FALSIFIED if buckets else Status.NOT_TESTED)


def test_a_replayed_case_of_a_property_that_was_not_chosen_is_still_a_bucket(tmp_path: Path) -> None:
    other = replace(DIVIDED, property_id="toys/copy")
    state = campaign_state()
    state.replayed(CorpusRecord("a", "FAILED", ""), tmp_path / "a", other.to_data())
    assert [bucket.property for bucket in state.buckets.values()] == ["toys/copy"]


def test_failing_examples_of_known_defects_are_counted_by_name() -> None:
    state = campaign_state()
    explored(state, known={"one": 2, "other": 1})
    property_state = explored(state, known={"one": 3})
    assert property_state.record.known == {"one": 5, "other": 1}
    assert (property_state.status, property_state.current().known) == (Status.KNOWN, {"one": 5, "other": 1})


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        ("falsified", {"found": (found(),), "known": {"one": 1}}),
        ("error", {"detail": "Traceback", "known": {"one": 1}}),
    ],
)
def test_a_known_defect_hides_no_other_failure(status: str, wrong: dict[str, Any]) -> None:
    state = campaign_state()
    explored(state, status, **wrong)
    property_state = explored(state, status, **wrong)
    property_state.stale = "declared as known"
    assert property_state.status is {"falsified": Status.FALSIFIED, "error": Status.ERROR}[status]


def test_a_bucket_that_was_not_shrunk_is_not_gone_past_until_it_is() -> None:
    state = campaign_state()
    property_state = explored(state, "falsified", found=(found(shrunk=False),))
    assert (property_state.status, property_state.known, property_state.unshrunk) == (
        Status.FALSIFIED,
        frozenset(),
        {ONE},
    )
    explored(state, "falsified", found=(found(),))
    assert (property_state.known, property_state.unshrunk) == (frozenset({ONE}), set())


@pytest.mark.parametrize("kept_before", [True, False])
def test_a_failure_whose_case_was_kept_before_is_not_new(kept_before: bool) -> None:
    ids = {ONE} if kept_before else set()
    record = a_record(began=f"{FIRST_SEEN['date']}T10:00:00")
    state = CampaignState(record, [a_property(id=NAME)], {}, tuple, FIRST_SEEN, kept_before=ids)
    state.replayed(CorpusRecord("a.json", "FAILED", ""), Path("corpus/a.json"), DIVIDED.to_data())
    state.record.corpus.clear()
    assert is_new(state.buckets[ONE], CampaignRecord.from_json(state.current().to_json())) is not kept_before


def test_the_cases_of_a_folder_are_listed_by_the_ids_of_their_buckets(tmp_path: Path) -> None:
    assert kept_in(tmp_path / "nothing") == frozenset()
    for name in (f"one-{ONE}.json", "notes.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    assert kept_in(tmp_path) == {ONE}
