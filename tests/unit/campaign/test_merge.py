"""Shards of a campaign, made by hand, as one campaign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign.corpus import Corpus
from statecheck.campaign.merge import merge_records
from statecheck.campaign.record import (
    BucketRecord,
    CampaignRecord,
    CorpusRecord,
    KnownRecord,
    MarkRecord,
    PropertyRecord,
)
from statecheck.cli import main as cli
from statecheck.execution.verdict import Counts
from statecheck.kernels.launch_counts import EXECUTED, How
from tests.helpers.cases import a_case
from tests.unit.campaign.nightly_examples import bucket_with, record_of

OLD = {"date": "2026-11-02", "commit": "0123456789ab"}
NEW = {"date": "2026-11-21", "commit": "ba9876543210"}


def a_bucket(finding: str = "", *, at: float = 5.0, first_seen: dict[str, str] = NEW) -> BucketRecord:
    return bucket_with(a_case(finding=finding), examples=3, at=at, first_seen=first_seen)


def a_property(status: str = "passed", **changes: Any) -> PropertyRecord:
    fields: dict[str, Any] = {"counts": Counts(10, 10), "seconds": 2.0}
    return PropertyRecord("toys/divide", "Toys divide.", "algebra", status, **fields | changes)


def a_shard(shard: int = 0, shards: int = 2, **changes: Any) -> CampaignRecord:
    fields: dict[str, Any] = {
        "began": f"2026-11-21T01:0{shard}:00+00:00",
        "seconds": 100.0 + shard,
        "budget": 100.0,
        "complete": True,
        "canary": "found after 10 examples",
        "properties": [a_property()],
    }
    named = {"id": "night", "subject": "toy", "commit": "ba9876543210", "shard": shard, "shards": shards}
    return record_of(**named | fields | changes)


def pair(shard: dict[str, Any], other: dict[str, Any]) -> CampaignRecord:
    """Both shards of a campaign, which differ in these fields, merged."""
    return merge_records([a_shard(0, **shard), a_shard(1, **other)])


def test_examples_and_seconds_of_shards_add_up() -> None:
    whole = pair({}, {"properties": [a_property(launches=True)]})
    assert whole.properties == [a_property(counts=Counts(20, 20), seconds=4.0, launches=True)]
    assert (whole.examples, whole.seconds, whole.complete, whole.warnings) == (20, 101.0, True, [])
    assert (whole.plan.shard, whole.plan.shards, whole.plan.budget) == (0, 1, 100.0)
    assert whole.began == "2026-11-21T01:00:00+00:00"


def test_the_order_of_shards_does_not_matter() -> None:
    shards = [a_shard(0, 3, buckets=[a_bucket()]), a_shard(1, 3, warnings=["slow disk"]), a_shard(2, 3)]
    assert merge_records(shards) == merge_records(shards[::-1])


def test_a_bucket_of_several_shards_is_one_with_the_smallest_case_and_the_first_date() -> None:
    large, small = a_bucket("seen " * 9, at=2.0, first_seen=OLD), a_bucket("seen", at=7.0)
    (found,) = pair({"buckets": [large]}, {"buckets": [small]}).buckets
    assert found == replace(small, examples=6, at=2.0, first_seen=OLD)


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        (("passed", "FALSIFIED"), "FALSIFIED"),
        (("FALSIFIED", "ERROR"), "FALSIFIED"),
        (("passed", "ERROR"), "ERROR"),
        (("UNEXPECTED PASS", "known"), "known"),
        (("UNEXPECTED PASS", "UNEXPECTED PASS"), "UNEXPECTED PASS"),
        (("not tested", "passed"), "passed"),
        (("not applicable", "not tested"), "not tested"),
    ],
)
def test_the_gravest_status_is_that_of_the_property(statuses: tuple[str, str], status: str) -> None:
    shard, other = ({"properties": [a_property(each)]} for each in statuses)
    assert [each.status for each in pair(shard, other).properties] == [status]
    assert [each.status for each in pair(other, shard).properties] == [status]


def test_marks_are_reached_where_any_shard_reached_them_first() -> None:
    mark = MarkRecord("a tie", "types", 2, 9.0, "second")
    other = MarkRecord("a tie", "types", 3, 4.0, "first")
    missed = MarkRecord("an end", "types")
    whole = pair({"marks": [mark, missed]}, {"marks": [other, missed]})
    assert whole.marks == [MarkRecord("a tie", "types", 5, 4.0, "first"), missed]


def test_replays_are_those_of_all() -> None:
    fixed, failed = CorpusRecord("a.json", "FIXED", ""), CorpusRecord("a.json", "FAILED", "differs")
    whole = pair({"corpus": [fixed]}, {"corpus": [failed]})
    assert whole.corpus == [failed]


def test_launches_of_shards_add_up() -> None:
    copied, moved = How("copy", EXECUTED, place="copy.py:1"), How("move", EXECUTED, place="copy.py:10")
    whole = pair({"launched": [(copied, 2)]}, {"launched": [(copied, 5), (moved, 1)]})
    assert whole.launched == [(copied, 7), (moved, 1)]


def test_warnings_name_their_shard() -> None:
    assert pair({}, {"warnings": ["slow disk"]}).warnings == ["shard 2/2: slow disk"]


def test_a_canary_that_one_shard_did_not_find_was_not_found() -> None:
    whole = pair({}, {"canary": ""})
    assert (whole.canary, whole.warnings) == ("", ["shard 2/2: the canary was not found"])


def test_a_missing_shard_leaves_the_campaign_incomplete() -> None:
    whole = merge_records([a_shard(0, 3), a_shard(2, 3)])
    assert (whole.complete, whole.warnings) == (False, ["shard 2/3 is missing"])


def test_a_copy_of_a_record_counts_once() -> None:
    assert merge_records([a_shard(0), a_shard(1), a_shard(0)]) == merge_records([a_shard(0), a_shard(1)])


@pytest.mark.parametrize(
    "change", [{"complete": False}, {"complete": False, "interrupted": True}], ids=["early", "interrupted"]
)
def test_a_shard_that_did_not_end_leaves_the_campaign_incomplete(change: dict[str, Any]) -> None:
    whole = pair({}, change)
    assert (whole.complete, whole.interrupted) == (False, change.get("interrupted", False))


def test_a_campaign_without_shards_is_left_as_it_is() -> None:
    alone = a_shard(0, 1, warnings=["slow disk"])
    assert merge_records([alone]) == alone


class Desk:
    """A folder with records of shards, and what `merge` makes of them."""

    def __init__(self, folder: Path, records: Sequence[CampaignRecord]) -> None:
        self.shards, self.reports, self.corpus = folder / "shards", folder / "reports", folder / "corpus"
        for number, record in enumerate(records):
            record.save(self.shards / f"job {number}" / "campaign.json")

    def merge(self, *more: str) -> int:
        places = ["--reports", str(self.reports), "--corpus", str(self.corpus)]
        return cli.main(["merge", str(self.shards), *more, *places])

    @property
    def written(self) -> CampaignRecord:
        return CampaignRecord.load(self.reports / "campaigns/night/campaign.json")


def test_shards_that_found_nothing_are_a_clean_campaign(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [a_shard(0), a_shard(1)])
    assert desk.merge() == 0
    assert desk.written.examples == 20
    files = {path.name for path in (desk.reports / "campaigns/night").iterdir()}
    assert files == {"campaign.json", "report.html", "summary.md"}


def test_a_failure_of_a_shard_has_its_report_and_its_case_here(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [a_shard(0), a_shard(1, buckets=[a_bucket()])])
    assert desk.merge() == 1
    (bucket,) = desk.written.buckets
    assert (desk.reports / bucket.report / "repro.py").is_file()
    (entry,) = Corpus(desk.corpus).entries()
    assert str(entry.path) == bucket.corpus
    assert entry.case is not None
    assert entry.case.first_seen == NEW


def test_an_unreadable_record_is_named_and_the_others_are_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(tmp_path, [a_shard(0), a_shard(1)])
    path = desk.shards / "job 7" / "campaign.json"
    path.parent.mkdir()
    path.write_text("{", encoding="utf-8")
    assert desk.merge() == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert "cannot be read" in error
    assert desk.written.examples == 20


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"id": "day"}, "id = '', but should be the name of one of the campaigns in the folders, day, night"),
        ({"subject": "impl"}, "subject = 'impl', but should be 'toy'"),
        ({"commit": "0123456789ab"}, "commit = '0123456789ab', but should be 'ba9876543210'"),
        ({"seed": 5}, "seed = 5, but should be None"),
        ({"shards": 3}, "shards = 3, but should be 2"),
        ({"device": "cuda"}, "device = 'cuda', but should be 'cpu'"),
        ({"only": "chunk"}, "only = 'chunk', but should be ''"),
        ({"shard": 0}, "shard = 1/2, but should be another one"),
        ({"release": "0.33.0"}, "release = '0.33.0', but should be ''"),
        ({"profile": "engines"}, "profile = 'engines', but should be ''"),
        ({"as_new": True}, "as_new = True, but should be False"),
        ({"exhaustive": True}, "exhaustive = True, but should be False"),
        ({"sanitized": False}, "sanitized = False, but should be True"),
        ({"properties": []}, "properties of one shard alone = toys/divide, but should be none"),
    ],
    ids=str,
)
def test_shards_that_do_not_belong_together_are_refused_before_a_file_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: dict[str, Any], message: str
) -> None:
    desk = Desk(tmp_path, [a_shard(0), a_shard(**{"shard": 1, "seconds": 101.0} | other)])
    assert desk.merge() == 3
    assert message in capsys.readouterr().err
    assert (desk.reports.exists(), desk.corpus.exists()) == (False, False)


@pytest.mark.parametrize("name", ["torch", "triton", "python", "hypothesis"])
@pytest.mark.parametrize("other", ["2.12.0", None], ids=["another one", "unknown"])
def test_shards_with_other_versions_leave_the_campaign_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, other: str | None
) -> None:
    first = a_shard(0, environment={name: "2.13.0", "platform": "Linux-1"})
    second = a_shard(1, environment={"platform": "Linux-2"} | ({name: other} if other else {}))
    assert Desk(tmp_path, [first, second]).merge() == 2
    printed = capsys.readouterr().out
    assert f"different versions, so that no version had all examples: {name} 2.13.0 and " in printed
    assert "platform" not in printed


@pytest.mark.parametrize(
    "row",
    [
        {"properties": [a_property("PASED")]},
        {"corpus": [CorpusRecord("a.json", "FAIL", "")]},
        {"known": [KnownRecord("a", status="gone")]},
        {"properties": [a_property(statuses={"mamba": "PASED", "jamba": "passed"})]},
    ],
    ids=["property", "corpus", "known defect", "model"],
)
def test_a_row_of_an_unknown_status_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, Any]
) -> None:
    desk = Desk(tmp_path, [a_shard(0), a_shard(1, **row)])
    assert desk.merge() == 2
    assert "but should be one of" in capsys.readouterr().err
    assert desk.written.complete is False


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"counts": Counts(10, 0)}, "properties[0].status = 'passed', but should be another one: no example"),
        ({"counts": Counts(1, 9)}, "properties[0].counts.compared = 9, but should be at most 1"),
        (
            {"statuses": {"mamba": "FALSIFIED", "jamba": "passed"}},
            "properties[0].status = 'passed', but should be 'FALSIFIED' as for one of its models",
        ),
    ],
    ids=["passed without a comparison", "more compared than examples", "a model that failed"],
)
def test_a_row_that_contradicts_itself_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, Any], message: str
) -> None:
    desk = Desk(tmp_path, [a_shard(0), a_shard(1, properties=[a_property(**row)])])
    assert desk.merge() == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("order", [1, -1])
def test_a_case_that_one_shard_replayed_counts_although_another_had_no_time(order: int) -> None:
    rows = [CorpusRecord("a.json", "FIXED", ""), CorpusRecord("a.json", "NOT REPLAYED", "", "FAILED")]
    shard, other = ({"corpus": [row]} for row in rows[::order])
    assert pair(shard, other).corpus == [rows[0]]


def test_a_campaign_among_several_can_be_chosen(tmp_path: Path) -> None:
    days = [a_shard(shard, id="day") for shard in (0, 1)]
    assert Desk(tmp_path, [*days, a_shard(0), a_shard(1)]).merge("--id", "night") == 0


def test_merging_again_counts_nothing_twice(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [a_shard(0), a_shard(1)])
    assert [desk.merge(), desk.merge(str(desk.reports), str(desk.shards))] == [0, 0]
    assert desk.written.examples == 20


def test_a_merged_campaign_is_rendered_again_as_it_is(tmp_path: Path) -> None:
    desk = Desk(tmp_path, [a_shard(0), a_shard(1, buckets=[a_bucket()])])
    desk.merge()
    before, page = desk.written, desk.reports / "campaigns/night/report.html"
    page.unlink()
    again = ["--reports", str(desk.reports), "--corpus", str(desk.corpus)]
    assert cli.main(["merge", str(page.parent), *again]) == 1
    assert (desk.written, page.is_file()) == (before, True)


def test_a_folder_without_a_campaign_is_a_mistake(tmp_path: Path) -> None:
    assert Desk(tmp_path, []).merge() == 3


def test_a_hostile_case_costs_the_others_nothing(tmp_path: Path) -> None:
    hostile = replace(a_bucket(), id="0000000000", case={"schema": 99})
    desk = Desk(tmp_path, [a_shard(0, buckets=[hostile]), a_shard(1, buckets=[a_bucket()])])
    assert desk.merge() == 1
    assert len(desk.written.buckets) == 2
    assert len(Corpus(desk.corpus).entries()) == 1
    assert any("bucket 0000000000 was not written" in message for message in desk.written.warnings)
