"""A campaign beside the one before."""

from __future__ import annotations

from pathlib import Path

from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import BucketRecord, CorpusRecord, MarkRecord
from statecheck.campaign.shards.comparison import (
    ABSENT,
    StatusChange,
    compared,
    find_previous,
)
from tests.campaign.nightly_examples import (
    BEGAN,
    a_bucket,
    a_night,
    a_property,
    a_record,
    campaigns,
    empty,
)

BEFORE, NOW = "2026-11-20T22:00:00+00:00", BEGAN
OLD = {"date": "2026-10-02", "commit": "aaaaaaaaaaaa"}


def night(*buckets: BucketRecord, **changes: object) -> CampaignRecord:
    return a_night(*buckets, began=BEFORE, **changes)


def ids(buckets: tuple[BucketRecord, ...]) -> list[str]:
    return [bucket.id for bucket in buckets]


def test_a_bucket_that_was_never_met_before_is_new() -> None:
    found = compared(a_record(a_bucket(1), a_bucket(2)), night(a_bucket(1)))
    assert (ids(found.new), ids(found.still)) == (["0000000002"], ["0000000001"])
    assert found.standings == {"0000000001": "still there", "0000000002": "new"}


def test_a_bucket_of_an_older_campaign_is_not_new() -> None:
    found = compared(a_record(a_bucket(1, first_seen=OLD)), night())
    assert (ids(found.new), ids(found.known)) == ([], ["0000000001"])


def test_without_an_earlier_campaign_a_bucket_is_new_unless_its_first_day_is_earlier() -> None:
    found = compared(a_record(a_bucket(1), a_bucket(2, first_seen=OLD), a_bucket(3, first_seen={})), None)
    assert (ids(found.new), ids(found.known)) == (["0000000001", "0000000003"], ["0000000002"])


def test_a_saved_case_that_fails_again_is_a_regression_unless_it_failed_last_night() -> None:
    bucket = a_bucket(1, first_seen=OLD)
    replays = [CorpusRecord(f"corpus/chunks_end-{bucket.id}.json", "FAILED", "wrong")]
    found = compared(a_record(bucket, corpus=replays), night())
    assert (ids(found.regressions), found.known, found.new) == ([bucket.id], (), ())
    assert compared(a_record(bucket, corpus=replays), night(bucket)).regressions == ()


def test_a_bucket_is_gone_only_if_its_property_ran_examples() -> None:
    ran, idle = a_bucket(1, property="ran"), a_bucket(2, property="idle")
    removed = a_bucket(3, property="removed")
    now = a_record(properties=[a_property("ran"), a_property("idle", examples=0)])
    found = compared(now, night(ran, idle, removed))
    assert (found.gone, found.still) == ((ran,), ())


def test_a_bucket_whose_saved_case_still_fails_is_not_gone() -> None:
    bucket = a_bucket(1, property="chunks_end")
    replays = [CorpusRecord(f"corpus/chunks_end-{bucket.id}.json", "FAILED", "wrong")]
    found = compared(a_record(corpus=replays), night(bucket))
    assert (found.gone, found.still) == ((), (bucket,))


def test_every_bucket_says_since_when_it_is_there() -> None:
    found = compared(a_record(a_bucket(1, first_seen=OLD)), night(a_bucket(2, first_seen={})))
    assert found.since["0000000001"] == "2026-10-02 (aaaaaaaaaaaa)"
    assert found.since["0000000002"] == "2026-11-20 (0123456789ab)"


def test_a_bucket_without_a_date_has_that_of_the_campaign_before() -> None:
    found = compared(a_record(a_bucket(1, first_seen={})), night(a_bucket(1, first_seen=OLD)))
    assert found.since == {"0000000001": "2026-10-02 (aaaaaaaaaaaa)"}


def test_properties_whose_status_changed_have_both_statuses() -> None:
    before = night(properties=[a_property("one"), a_property("two"), a_property("three")])
    now = a_record(properties=[a_property("one"), a_property("two", status="ERROR"), a_property("four")])
    assert set(compared(now, before).statuses) == {
        StatusChange("two", "passed", "ERROR"),
        StatusChange("three", "passed", ABSENT),
        StatusChange("four", ABSENT, "passed"),
    }


def test_marks_are_lost_by_what_examples_reach() -> None:
    before = night(marks=[MarkRecord("a", "t", 1), MarkRecord("b", "t"), MarkRecord("dropped", "t", 1)])
    now = a_record(marks=[MarkRecord("a", "t"), MarkRecord("b", "t", 2), MarkRecord("c", "t", 1)])
    assert compared(now, before).marks_lost == ("a",)


def test_speed_is_compared_where_both_had_five_seconds() -> None:
    now, before = [a_property(examples=50)], [a_property(examples=100)]
    found = compared(a_record(properties=now), night(properties=before))
    assert found.rate == (100 / 120, 50 / 120)


def test_the_speed_of_a_campaign_that_hardly_ran_is_not_compared() -> None:
    assert compared(a_record(), night(seconds=4.9)).rate is None
    assert compared(a_record(), empty()).rate is None


def test_the_previous_campaign_is_the_latest_earlier_one_of_the_same_choice(tmp_path: Path) -> None:
    now = a_record()
    right = a_night(began="2026-11-21T22:30:00+01:00")
    others = [
        a_night(began="2026-11-21T20:00:00+00:00"),
        a_night(began="2026-11-22T22:00:00+00:00"),
        a_night(began="2026-11-21T21:40:00+00:00", subject="other"),
        a_night(began="2026-11-21T21:41:00+00:00", device="cpu"),
        a_night(began="2026-11-21T21:42:00+00:00", only="gather"),
    ]
    assert find_previous(campaigns(tmp_path, now, right, *others), now) == (right, ())


def test_campaigns_of_the_same_moment_come_in_order_of_their_folders(tmp_path: Path) -> None:
    first, second, now = (a_record(id=name) for name in ("a", "b", "c"))
    campaigns(tmp_path, first, second, now, a_record(id="d"))
    assert find_previous(tmp_path, now) == (second, ())


def test_there_is_no_previous_campaign_where_there_are_no_reports(tmp_path: Path) -> None:
    assert find_previous(tmp_path / "nothing", a_record()) == (None, ())
