"""Campaigns that are killed lose no counterexample, and leave no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from properties.harness.campaign.record import BucketRecord, CampaignRecord
from properties.harness.case.bucket import bucket_of
from properties.harness.case.values import Returned, call
from properties.harness.execution.example import Bench
from properties.meta.breakages.broken import a_case
from properties.meta.campaign import kills
from properties.meta.campaign.kills import (
    CAMPAIGN,
    ENGINE,
    FAILING,
    WORKER,
    KillGround,
    Range,
    Seen,
    Trail,
    judge,
    unfinished,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, trial: Bench) -> Iterator[Range]:
    # One that answers wrongly, and one that ends its process.
    explored = (FAILING[0], FAILING[-1])
    folder, device = tmp_path_factory.mktemp("kills"), trial.port.device
    # Seeds follow from the commit: with 40 examples, the one that ends its process is not met in 7 of 100 commits.
    ground = KillGround(folder, device, engines=1, explored=explored, examples=200, warm=True)
    made = Range(ground, jobs=2, life=6.0)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [WORKER, ENGINE, CAMPAIGN])
def test_no_counterexample_that_was_announced_is_lost_by_a_kill(place: Range, kind: str) -> None:
    seen = place.moments(kind, 1, seed=1)
    assert [one.wrong for one in seen] == [[]]
    assert all(one.killed and one.orphans == 0 for one in seen)
    # Of a whole campaign nothing need have been announced yet.
    assert kind == CAMPAIGN or all(one.failed >= 2 for one in seen)


def judged(trail: Trail, place: Range, *pending: Path) -> Seen:
    seen = Seen(pending=set(pending))
    judge(trail, seen, place.jury)
    return seen


@pytest.fixture
def trail(tmp_path: Path) -> Trail:
    """What is left of a campaign that has announced nothing."""
    (tmp_path / "first.txt").write_text("subject toy\n", encoding="utf-8")
    return Trail(tmp_path)


def test_an_announcement_without_a_case_and_a_record_is_a_violation(trail: Trail, place: Range) -> None:
    with (trail.folder / "first.txt").open("a", encoding="utf-8") as output:
        output.write("FALSIFIED 0123456789: toys_divide: x\nFALSIFIED abcdef0123: not_printed_to_its_e")
    assert judged(trail, place).wrong == [
        "0123456789 was announced, but is not in the corpus",
        "0123456789 was announced, but is not in the record",
    ]


def test_a_bucket_of_the_record_without_its_report_is_a_violation(trail: Trail, place: Range) -> None:
    case = a_case(expected=(Returned(3),))
    bucket = bucket_of(case)
    case.save(trail.corpus / f"toys_divide-{bucket.id}.json")
    told = BucketRecord(
        bucket.id, "toys_divide", "", "", "", "", "", 1, 0.0, report=str(trail.reports / "gone")
    )
    record = CampaignRecord("first", "toy", "cpu", "", buckets=[told])
    record.save(trail.reports / "campaigns" / "first" / "campaign.json")
    missing = [f"{trail.reports / 'gone' / name} is missing" for name in ("report.md", "repro.py")]
    assert judged(trail, place).wrong == missing


def test_a_pending_case_that_is_gone_and_not_in_the_corpus_is_a_violation(trail: Trail, place: Range) -> None:
    path = trail.reports / "campaigns" / "first" / "pending" / "toys_divide.0123456789.7.json"
    assert judged(trail, place, path).wrong == [f"{path} was pending, and is lost"]


def test_a_pending_case_that_is_in_the_corpus_now_is_none(trail: Trail, place: Range) -> None:
    a_case(expected=(Returned(3),)).save(trail.corpus / "toys_divide-0123456789.json")
    path = trail.reports / "campaigns" / "first" / "pending" / "toys_divide.0123456789.7.json"
    seen = judged(trail, place, path)
    assert (seen.wrong, seen.failed, len(seen.announced)) == ([], 1, 1)


def test_a_case_that_does_not_fail_is_a_violation(trail: Trail, place: Range) -> None:
    right = a_case(steps=(call("divide", x=4, y=2),), expected=(Returned(2),))
    path = right.save(trail.reports / "campaigns" / "first" / "pending" / "toys_divide.0123456789.7.json")
    assert judged(trail, place).wrong == [f"{path}: FIXED"]


def test_a_case_that_cannot_be_read_is_a_violation(trail: Trail, place: Range) -> None:
    path = a_case().save(trail.reports / "campaigns" / "first" / "pending" / "toys_divide.0123456789.7.json")
    path.write_text(path.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    (told,) = judged(trail, place).wrong
    assert told.startswith(f"{path}: ValueError: {path}: text = no JSON (")


def test_an_input_that_was_being_run_need_not_fail(trail: Trail, place: Range) -> None:
    right = a_case(steps=(call("divide", x=4, y=2),), expected=(Returned(2),))
    path = right.save(trail.reports / "campaigns" / "first" / "pending" / "toys_divide.7.unfinished.json")
    seen = judged(trail, place)
    assert (seen.wrong, seen.announced, unfinished(trail.pending)) == ([], set(), {path})


def test_a_process_that_stays_behind_is_an_orphan_and_is_ended(
    trail: Trail, place: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kills, "_GONE_SECONDS", 0.1)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(
        command, env=os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": trail.mark}, start_new_session=True
    ) as stayed:
        seen = judged(trail, place)
        assert stayed.wait() == -9
    assert (seen.orphans, len(seen.wrong)) == (1, 1)
