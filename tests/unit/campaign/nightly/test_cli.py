"""The command `nightly`: what it refuses, what it calls things, and how it goes on after it was interrupted."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign.plan import Plan, seed_of
from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.cli import campaign as cli_campaign
from statecheck.cli import main as cli
from statecheck.cli.campaign import commit_of, planned
from statecheck.cli.options import cores
from tests.helpers.faulty import EXACT
from tests.helpers.parsing import options_of
from tests.unit.campaign.nightly_examples import campaigns, on_a_cpu
from tests.unit.campaign.pretended import COMMIT, passes, stage

pytestmark = pytest.mark.usefixtures("default_signals")


@pytest.fixture(autouse=True)
def _nowhere_special(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SHARD", "CAMPAIGN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cli_campaign, "commit_of", lambda root: COMMIT)


def refused(folder: Path, *options: str) -> int:
    """The exit code; nothing may have been begun."""
    code = cli.main(["nightly", "--device", "cpu", "--reports", str(folder), "--corpus", "none", *options])
    assert not list(folder.glob(f"campaigns/*/{FILE}"))
    return code


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--budget 5s --examples 5", "examples = 5, but should not be given with a budget"),
        ("--budget soon", "Invalid value for '--budget': 'soon', but should be a positive duration"),
        ("--budget 0", "Invalid value for '--budget': '0', but should be a positive duration"),
        ("--examples 0", "examples = 0, but should be >= 1"),
        ("--workers 0", "workers = 0, but should be >= 1"),
        ("--workers 9999", f"workers = 9999, but should be at most {8 * cores()}, 8 for each of "),
        ("--gpus 0", "gpus = '0', but should be empty on a CPU"),
        ("--ray auto --gpus 0", "ray = 'auto', but should not be given with gpus"),
        ("--ray auto --shard 1/2", "ray = 'auto', but should not be given with shard"),
        ("--shards 2", "shards = 2, but should be given with ray"),
        ("--ray auto --shards 0", "shards = 0, but should be >= 1"),
        ("--shard 0/2", "shard = '0/2', but should be a shard and the number of shards, such as 2/8"),
        ("--gpus all", "gpus = 'all', but should be empty on a CPU"),
        ("--subject no_such_module", "subject = 'no_such_module', but should be impl, vllm, sglang,"),
        ("--only nothing_like_it", "only = 'nothing_like_it', but should match a property"),
        ("--only (", "only = '(', but should be an expression"),
        (
            "--time-limit never",
            "Invalid value for '--time-limit': 'never', but should be a positive duration",
        ),
        ("--id ../up --examples 5", "id = '../up', but should be letters"),
    ],
)
def test_options_that_cannot_be_run_exit_3_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, complaint: str
) -> None:
    assert refused(tmp_path, *options.split()) == 3
    assert capsys.readouterr().err.startswith(f"error: {complaint}")


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"CAMPAIGN": "../up"}, "CAMPAIGN = '../up', but should be letters"),
        ({"SHARD": "1/2"}, "CAMPAIGN = '', but should be the same name on every machine"),
    ],
    ids=str,
)
def test_variables_that_name_no_shard_exit_3_and_say_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    complaint: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert refused(tmp_path, "--examples", "5") == 3
    assert capsys.readouterr().err.startswith(f"error: {complaint}")


def plan_of(folder: Path, *options: str, **variables: str) -> Plan:
    given = ["nightly", "--device", "cpu", "--reports", str(folder), *options]
    return planned(options_of(given), variables)


def test_shards_share_the_name_that_a_scheduler_gives(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SHARD="3/4", CAMPAIGN="github-77")
    assert (plan.id, plan.name, plan.shard, plan.shards) == ("github-77", "github-77-shard3of4", 2, 4)


def test_a_shard_s_campaign_has_a_folder_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--device", "cpu", "--id", "sharded", "--examples", "20", "--only", EXACT, "--shard", "2/3"]
    places = ["--reports", str(tmp_path / "reports"), "--corpus", str(tmp_path / "corpus")]
    with stage(passes):
        code = cli.main(["nightly", *given, *places])
    folder = tmp_path / "reports/campaigns/sharded-shard2of3"
    record = CampaignRecord.load(folder / FILE)
    assert (code, record.plan.id, record.plan.shard, record.plan.shards) == (0, "sharded", 1, 3)
    assert (folder / "report.html").is_file()
    assert f"commit {COMMIT}, shard 2/3, round 0: seed " in capsys.readouterr().out


PLAN = Plan("night", commit=COMMIT, budget=60.0)


def test_the_seed_of_a_round_follows_from_commit_shard_round_and_name_alone() -> None:
    other = replace(PLAN, id="other", budget=None, examples=5, engines=9, reports="there", subject="toy")
    assert seed_of(PLAN, 3, "a") == seed_of(other, 3, "a")
    assert seed_of(PLAN, 3, "a") == seed_of(replace(PLAN, commit=f"{COMMIT}+"), 3, "a")


@pytest.mark.parametrize("changes", [{"shard": 1}, {"shards": 4}, {"commit": "ba9876543210"}], ids=str)
def test_another_shard_unit_or_commit_has_other_seeds(changes: dict[str, Any]) -> None:
    plan = replace(PLAN, shards=2)
    assert seed_of(plan, 3, "a") != seed_of(replace(plan, **changes), 3, "a")


EARLIER: dict[str, Any] = {"subject": "impl", "commit": COMMIT, "first_round": 4, "rounds": 3}


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({}, 7),
        ({"commit": f"{COMMIT}+"}, 7),
        ({"complete": False}, 7),
        ({"commit": "ba9876543210"}, 0),
        ({"subject": "toy"}, 0),
        ({"only": EXACT}, 0),
        ({"shard": 1, "shards": 2}, 0),
    ],
    ids=str,
)
def test_rounds_go_on_where_campaigns_of_the_same_kind_and_commit_ended(
    tmp_path: Path, changes: dict[str, Any], first: int
) -> None:
    campaigns(
        tmp_path, on_a_cpu(**EARLIER | changes), on_a_cpu(**EARLIER | changes | {"id": "b", "rounds": 1})
    )
    assert plan_of(tmp_path).first_round == first


def test_a_record_that_cannot_be_read_does_not_keep_a_campaign_from_being_planned(tmp_path: Path) -> None:
    campaigns(tmp_path, on_a_cpu(**EARLIER))
    (tmp_path / "campaigns" / "torn").mkdir()
    (tmp_path / "campaigns" / "torn" / FILE).write_text("{")
    assert plan_of(tmp_path).first_round == 7


def test_the_commit_of_a_checkout_has_a_plus_if_files_were_changed(tmp_path: Path) -> None:
    def git(*options: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *author, *options], check=True, capture_output=True)

    assert commit_of(tmp_path) == ""
    git("init")
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-m", "one")
    clean = commit_of(tmp_path)
    (tmp_path / "file").write_text("b")
    assert (len(clean), commit_of(tmp_path)) == (12, f"{clean}+")
