"""A nightly campaign on one machine, with a real worker: what becomes of a subject that is wrong, and then mended."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from statecheck.campaign.record import FILE, BucketRecord, CampaignRecord, PropertyRecord
from statecheck.case import Case
from statecheck.case.values import call
from statecheck.cli import campaign as cli_campaign
from statecheck.cli import main as cli
from tests.helpers.faulty import EXACT, ROUNDS_UP
from tests.helpers.modules import module
from tests.unit.campaign.pretended import COMMIT

LONG_AGO = {"date": "2026-01-31", "commit": "ba9876543210"}

DIVIDES = """
import os

import impl
from impl import *


def divide(x, y):
    right = impl.divide(x, y)
    return right + 1 if x >= 12 and "TOY_BROKEN" in os.environ else right
"""
"""A subject that is right, or wrong as a variable says."""


@dataclass(frozen=True)
class Night:
    """A campaign that was run from the command line."""

    code: int
    output: str
    id: str
    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "reports" / "campaigns" / self.id

    @property
    def record(self) -> CampaignRecord:
        return CampaignRecord.load(self.home / FILE)

    @property
    def bucket(self) -> BucketRecord:
        (found,) = self.record.buckets
        return found

    @property
    def page(self) -> str:
        return (self.home / "report.html").read_text(encoding="utf-8")

    def of(self, name: str) -> PropertyRecord:
        (found,) = (row for row in self.record.properties if row.id == name)
        return found


def night(folder: Path, name: str, *options: str, **variables: str) -> Night:
    """Run `nightly` in this process, with one worker of its own."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        for variable in ("SHARD", "CAMPAIGN", "TOY_BROKEN"):
            patch.delenv(variable, raising=False)
        for variable, value in variables.items():
            patch.setenv(variable, value)
        patch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "hypothesis"))
        patch.setattr(cli_campaign, "commit_of", lambda root: COMMIT)
        with module(folder, "toy_of_nights", DIVIDES) as subject:
            given = ["nightly", "--device", "cpu", "--workers", "1", "--id", name, "--subject", subject]
            given += ["--reports", str(folder / "reports"), "--corpus", str(folder / "corpus")]
            code = cli.main([*given, *options])
    return Night(code, printed.getvalue(), name, folder)


@pytest.mark.slow
def test_a_defect_is_met_is_still_there_the_next_night_and_is_mended(tmp_path: Path) -> None:
    options = ("--examples", "500", "--only", f"{EXACT} or {ROUNDS_UP}")
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
    rounds = [(ended.record.plan.first_round, ended.record.rounds) for ended in (first, second, third)]
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
