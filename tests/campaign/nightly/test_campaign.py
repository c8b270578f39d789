"""Nightly campaigns on one machine, with real workers: what becomes of a subject that is right, wrong, or mended."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from statecheck.campaign.coordinator import Campaign
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.campaign.record_parts import BucketRecord, PropertyRecord
from statecheck.case import Case
from statecheck.case.values import call
from statecheck.cli import campaign as cli_campaign
from statecheck.cli import main as cli
from tests.breakages.broken import EXACT, ROUNDS_UP, module
from tests.campaign.pretended import COMMIT

LONG_AGO = {"date": "2026-01-31", "commit": "ba9876543210"}
SURROUNDINGS = "SHARD CAMPAIGN"
"""Variables of the shell that runs these tests, which are about none of them."""

DIVIDES = """
import os
import time

import impl
from impl import *


def divide(x, y):
    time.sleep(float(os.environ.get("TOY_SECONDS", "0")))
    right = impl.divide(x, y)
    return right + 1 if x >= 12 and "TOY_BROKEN" in os.environ else right
"""
"""A subject that is right, or wrong, as slow as it is told."""


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
        (found,) = (row for row in self.record.properties if row.name == name)
        return found


def night(folder: Path, name: str, *options: str, source: str = DIVIDES, **variables: str) -> Night:
    """Run `nightly` in this process, with one worker of its own, on a subject made of `source`."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        for variable in (*SURROUNDINGS.split(), "TOY_BROKEN", "TOY_SECONDS"):
            patch.delenv(variable, raising=False)
        for variable, value in variables.items():
            patch.setenv(variable, value)
        patch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "hypothesis"))
        patch.setattr(cli_campaign, "commit_of", lambda root: COMMIT)
        with module(folder, "toy_of_nights", source) as subject:
            code = cli.main([*arguments(folder, name, subject), *options])
    return Night(code, printed.getvalue(), name, folder)


def arguments(folder: Path, name: str, subject: str) -> list[str]:
    found = ["nightly", "--device", "cpu", "--engines", "1", "--id", name, "--subject", subject]
    return [*found, "--reports", str(folder / "reports"), "--corpus", str(folder / "corpus")]


def once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], tuple[Night, ...]]
) -> tuple[Night, ...]:
    """What `make` comes to in a folder of its own: of all processes that run tests, the first one makes it."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / name
    folder.mkdir(exist_ok=True)
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done.json"
        if not done.exists():
            nights = make(folder)
            done.write_text(json.dumps([(one.code, one.output, one.id) for one in nights]))
    return tuple(Night(code, message, one, folder) for code, message, one in json.loads(done.read_text()))


DIVISIONS = ("--only", f"{EXACT} or {ROUNDS_UP}")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Night:
    def make(folder: Path) -> tuple[Night, ...]:
        return (night(folder, "clean", "--examples", "600", "--engines", "2", *DIVISIONS),)

    return once(tmp_path_factory, "clean", make)[0]


def test_a_clean_campaign_exits_0_with_a_canary_that_was_found(clean: Night) -> None:
    assert clean.code == 0, clean.output
    assert "\nCLEAN\n" in clean.output
    assert f"report: {clean.home / 'report.html'}\n" in clean.output
    assert "CLEAN" in clean.page
    assert (clean.record.buckets, clean.record.troubles) == ([], [])
    assert clean.record.canary.startswith("found and shrunk to 10 in ")
    assert len(list((clean.home / "canary").glob("*/case.json"))) == 1


def test_a_campaign_explores_its_properties_in_rounds_until_its_budget_is_used_up(clean: Night) -> None:
    record = clean.record
    assert (record.complete, record.interrupted, record.examples_wanted) == (True, False, 600)
    assert 570 <= record.examples <= 630
    assert record.rounds > 1
    assert all(row.status == "passed" and row.compared >= 80 for row in record.properties)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Night, ...]:
    """Three of them: a defect is met, is still there, and is mended."""

    def make(folder: Path) -> tuple[Night, ...]:
        options = ("--examples", "500", *DIVISIONS)
        first = night(folder, "night1", *options, TOY_BROKEN="1")
        (kept,) = (folder / "corpus").glob("*.json")
        replace(Case.load(kept), first_seen=LONG_AGO).save(kept)
        return first, night(folder, "night2", *options, TOY_BROKEN="1"), night(folder, "night3", *options)

    return once(tmp_path_factory, "nights", make)


def test_a_defect_is_found_shrunk_reported_and_kept(nights: tuple[Night, ...]) -> None:
    first, bucket = nights[0], nights[0].bucket
    assert first.code == 1, first.output
    assert Case.from_json(json.dumps(bucket.case)).calls[0] == call("divide", x=12, y=1)
    assert f"FALSIFIED {bucket.id}: {EXACT} (divide/exact): " in first.output
    assert bucket.id in first.page
    assert Path(bucket.corpus).name == f"{EXACT}-{bucket.id}.json"
    assert Case.load(Path(bucket.report) / "case.json").calls[0].named == {"x": 12, "y": 1}
    assert bucket.first_seen["commit"] == COMMIT


def test_a_campaign_goes_on_after_a_failure_and_counts_further_examples_of_it(
    nights: tuple[Night, ...],
) -> None:
    first, other = nights[0], nights[0].of(ROUNDS_UP)
    assert first.bucket.examples > 20
    assert first.record.rounds > 1
    assert first.of(EXACT).status == "FALSIFIED"
    assert (other.status, other.examples > 100) == ("passed", True)
    assert [round(one.record.examples / 500, 1) for one in nights] == [1.0, 1.0, 1.0]


def test_a_defect_of_the_night_before_is_replayed_first_and_still_there(nights: tuple[Night, ...]) -> None:
    second = nights[1]
    assert [replay.verdict for replay in second.record.corpus] == ["FAILED"]
    assert (second.bucket.at, second.bucket.note) == (0.0, "Replayed from the corpus.")
    assert (second.code, second.bucket.first_seen, second.bucket.examples > 20) == (1, LONG_AGO, True)
    assert "since 2026-01-31" in second.page


def test_a_mended_defect_is_fixed_and_gone(nights: tuple[Night, ...]) -> None:
    third = nights[2]
    assert third.code == 0, third.output
    assert [replay.verdict for replay in third.record.corpus] == ["FIXED"]
    assert third.of(EXACT).status == "passed"


def test_a_later_campaign_of_the_same_commit_goes_on_with_later_rounds(nights: tuple[Night, ...]) -> None:
    rounds = [(one.record.first_round, one.record.rounds) for one in nights]
    assert rounds[0][0] == 0
    assert all(sum(before) == first for before, (first, _) in pairwise(rounds))


@pytest.mark.slow
def test_a_process_that_shares_workers_is_started_again_without_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    def watch(campaign: Campaign) -> None:
        (gpu,) = campaign._gpus.every
        if campaign.examples >= 50 and not killed:
            killed.append(campaign.examples)
            assert gpu.process is not None
            gpu.process.kill()

    monkeypatch.setenv("TOY_SECONDS", "0.005")
    with module(tmp_path, "toy_isolated", DIVIDES) as subject:
        plan = Plan("isolated", subject, EXACT, examples=300, isolated=True, commit=COMMIT, canary=False)
        plan = replace(plan, reports=str(tmp_path / "reports"), corpus=str(tmp_path / "corpus"))
        record = Campaign(plan, watch).run()
    ended = "cpu: the process that shares its workers ended with -9, and was started again"
    assert (record.troubles, record.buckets) == ([ended], [])
    assert (record.properties[0].status, record.properties[0].detail) == ("passed", "")
    assert killed[0] < 285 <= record.examples <= 315
