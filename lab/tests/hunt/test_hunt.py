"""Hunts: what is counted until the first failure, what stands in a file, and what the table and the curve say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from lab.hunt import page, results
from lab.hunt.__main__ import main
from lab.hunt.defects import GROUPS, Planted, planted_defects
from lab.hunt.trial import Hunt, hunt
from tests.helpers.planted import planted

DEFECT = "query lengths are the ends of the queries"


def a_hunt(defect: str, seed: int, failure: float | None, examples: int = 7) -> Hunt:
    return Hunt(defect, "stateless", seed, examples, failure, (failure or 60.0) + 1, "p" if failure else "")


def test_every_planted_defect_of_impl_is_hunted_for() -> None:
    defects = planted_defects()
    assert len(defects) == sum(len(planted(group)) for group in GROUPS)
    assert len({defect.name for defect in defects}) == len(defects)
    with pytest.raises(ValueError, match=r"^groups = \['none'\], but should be some of stateless, "):
        planted_defects(["none"])


@pytest.mark.slow
def test_a_hunt_ends_when_the_defect_has_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--only", DEFECT, "--seeds", "1", "--workers", "1", "--out", str(tmp_path)]
    assert main(options) == 0
    (found,) = results.load(tmp_path)
    assert found.found
    assert found.failure is not None
    assert 0 < found.failure <= found.report
    assert found.examples > 0
    assert "Each hunt found its defect." in capsys.readouterr().out
    assert "<path" in (tmp_path / "survival.svg").read_text(encoding="utf-8")
    # What stands there is not done again.
    before = (tmp_path / "shard-1-of-1.json").read_text(encoding="utf-8")
    assert main(options) == 0
    assert (tmp_path / "shard-1-of-1.json").read_text(encoding="utf-8") == before


@pytest.mark.slow
def test_a_campaign_that_cannot_run_is_an_error_and_no_hunt(monkeypatch: pytest.MonkeyPatch) -> None:
    (defect,) = planted_defects(only=DEFECT)
    monkeypatch.setattr(type(defect), "plant", lambda self, folder: Planted("no_such_module"))
    with pytest.raises(RuntimeError, match="exit 3 of the hunt for"):
        hunt(defect, 1, 5.0)


def test_the_time_may_be_up_before_the_first_hunt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results.save([a_hunt("one", 1, 3.0)], tmp_path / "shard-2-of-2.json", {})
    options = [
        "--only",
        DEFECT,
        "--seeds",
        "2",
        "--workers",
        "1",
        "--budget",
        "0.000001s",
        "--out",
        str(tmp_path),
    ]
    assert main([*options, "--shard", "1/2"]) == 2
    assert "1 hunts were left out" in capsys.readouterr().out


def test_shards_are_one_and_a_hunt_counts_once(tmp_path: Path) -> None:
    hunts = [a_hunt("one", seed, 3.0) for seed in (1, 2)]
    results.save(hunts, tmp_path / "a.json", {})
    results.save(hunts[1:], tmp_path / "b.json", {})
    assert results.load(tmp_path) == hunts
    (tmp_path / "c.json").write_text(json.dumps({"hunts": [{"defect": "x"}]}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"^out = .*c\.json'"):
        results.load(tmp_path)


def test_a_hunt_that_found_nothing_takes_longer_than_all_others() -> None:
    hunts = [a_hunt("one", seed, failure) for seed, failure in enumerate((4.0, 1.0, None, 2.0))]
    row = page.table(hunts).splitlines()[2]
    assert row == "| stateless | 1 | 4 | 3 | 7 | not found | 2.0 | not found | 3.0 | not found |"
    assert "- stateless: one: not found by 1 of 4 seeds" in page.table(hunts)
    assert page.quantile([3.0, 1.0, math.inf], 0.5) == 3.0


def test_versions_are_compared_by_the_hunts_that_both_have() -> None:
    before = [a_hunt("one", 1, 6.0), a_hunt("two", 1, 9.0), a_hunt("three", 1, None)]
    after = [a_hunt("one", 1, 2.0), a_hunt("two", 1, 3.0), a_hunt("three", 1, 1.0)]
    assert page.ratio(before, after) == "2 hunts of both: median 7.5 and 2.5 CPU s, 3.00 times"


def test_the_curve_falls_by_each_hunt_that_found_something() -> None:
    hunts = [a_hunt("one", seed, failure) for seed, failure in enumerate((4.0, 20.0, None))]
    svg = page.curve({"now": hunts})
    assert svg.count(" V ") == 2
    assert svg.startswith("<svg")
