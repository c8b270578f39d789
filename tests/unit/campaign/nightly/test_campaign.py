"""Nightly campaigns on one machine, with real workers: what becomes of a subject that is right, wrong, or mended."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.values import call
from tests.helpers.faulty import EXACT, ROUNDS_UP
from tests.unit.campaign.nights import Night, night
from tests.unit.campaign.pretended import COMMIT

LONG_AGO = {"date": "2026-01-31", "commit": "ba9876543210"}


DIVISIONS = ("--only", f"{EXACT} or {ROUNDS_UP}")


@pytest.mark.slow
def test_a_clean_campaign_explores_in_rounds_until_its_budget_is_used_up(tmp_path: Path) -> None:
    clean = night(tmp_path, "clean", "--examples", "600", "--workers", "2", *DIVISIONS)
    record = clean.record
    assert clean.code == 0, clean.output
    assert "\nCLEAN\n" in clean.output
    assert f"report: {clean.home / 'report.html'}\n" in clean.output
    assert "CLEAN" in clean.page
    assert (record.buckets, record.warnings) == ([], [])
    assert record.canary.startswith("found and shrunk to 10 in ")
    assert len(list((clean.home / "canary").glob("*/case.json"))) == 1
    assert (record.complete, record.interrupted, record.plan.examples) == (True, False, 600)
    assert 570 <= record.examples <= 630
    assert record.rounds > 1
    assert all(row.status == "passed" and row.compared >= 80 for row in record.properties)


@pytest.mark.slow
def test_a_defect_is_met_is_still_there_the_next_night_and_is_mended(tmp_path: Path) -> None:
    options = ("--examples", "500", *DIVISIONS)
    first = night(tmp_path, "night1", *options, TOY_BROKEN="1")
    _found_shrunk_reported_and_kept(first)
    (kept,) = (tmp_path / "corpus").glob("*.json")
    replace(Case.load(kept), first_seen=LONG_AGO).save(kept)
    second = night(tmp_path, "night2", *options, TOY_BROKEN="1")
    assert [replay.verdict for replay in second.record.corpus] == ["FAILED"]
    assert (second.bucket.at, second.bucket.note) == (0.0, "Replayed from the corpus.")
    assert (second.code, second.bucket.first_seen, second.bucket.examples > 20) == (1, LONG_AGO, True)
    assert "since 2026-01-31" in second.page
    third = night(tmp_path, "night3", *options)
    assert third.code == 0, third.output
    assert [replay.verdict for replay in third.record.corpus] == ["FIXED"]
    assert third.of(EXACT).status == "passed"
    # Later campaigns of the same commit go on with later rounds.
    rounds = [(one.record.plan.first_round, one.record.rounds) for one in (first, second, third)]
    assert rounds[0][0] == 0
    assert all(sum(before) == begun for before, (begun, _) in pairwise(rounds))


def _found_shrunk_reported_and_kept(first: Night) -> None:
    bucket, other = first.bucket, first.of(ROUNDS_UP)
    assert first.code == 1, first.output
    assert Case.from_json(json.dumps(bucket.case)).calls[0] == call("divide", x=12, y=1)
    assert f" ({EXACT})\n" in first.output
    assert bucket.id in first.page
    assert Path(bucket.corpus).name == f"divide-exact-{bucket.id}.json"
    assert Case.load(Path(bucket.report) / "case.json").calls[0].named == {"x": 12, "y": 1}
    assert bucket.first_seen["commit"] == COMMIT
    # It goes on after the failure, and counts further examples of it.
    assert bucket.examples > 20
    assert first.record.rounds > 1
    assert first.of(EXACT).status == "FALSIFIED"
    assert (other.status, other.examples > 100) == ("passed", True)
