"""The table of releases, from campaigns that were written by hand."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.compatibility import __main__ as compatibility_run
from lab.compatibility import record as compatibility
from lab.compatibility.__main__ import campaign_on, main
from lab.compatibility.record import by_release, collected, loaded
from lab.compatibility.table import FILES, parts, table
from lab.marked_parts import MarkedPart
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord, KnownRecord, PropertyRecord
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE, Counts
from statecheck.subject.loading import PROJECTS

VLLM = PROJECTS["vllm"]
TOPICS = {"counts_add_up": "batch", "rows_are_whole": "batch", "copies_are_exact": "align"}
IN_PLACE = {"id": "in-place", "title": "Counts | in place", "link": "https://example.org/1"}
OVERLAP = {"id": "overlap", "title": "Overlapping move", "link": "https://example.org/2"}


def saved(folder: Path, release: str, properties: Mapping[str, Any], *known: dict[str, Any]) -> Path:
    """A campaign's file: `properties` has the fields of each, or its status."""
    counts = {"passed": Counts(1, 1)}
    fields = {
        name: {"status": row, "counts": counts.get(row, Counts())} if isinstance(row, str) else row
        for name, row in properties.items()
    }
    record = CampaignRecord(
        Plan(release, "vllm", budget=60.0),
        properties=[PropertyRecord(name, "", "", **one) for name, one in fields.items()],
        known=[KnownRecord(**defect) for defect in known],
    )
    return record.save(folder / release / "campaign.json").parent


def three_releases(folder: Path) -> list[Path]:
    """One with two defects, of which one shows in two properties; one without; one that could not be set up."""
    shown = {"status": "known", "counts": Counts(40), "known": {"overlap": 2, "in-place": 5}}
    new = {
        "status": "FALSIFIED",
        "counts": Counts(2),
        "known": {"in-place": 1},
        "detail": "x = 1,\n but should be 2",
    }
    rows = {"copies_are_exact": shown, "counts_add_up": new, "rows_are_whole": "passed"}
    defects = (IN_PLACE | {"status": "showed"}, OVERLAP | {"status": "showed"})
    saved(folder, "0.9.0", rows, *defects)
    rows = {"copies_are_exact": "passed", "counts_add_up": "not applicable", "rows_are_whole": "passed"}
    saved(folder, "0.10.0", rows, OVERLAP | {"status": "no longer fails"})
    (folder / "0.11.0").mkdir()
    (folder / "0.11.0" / "log.txt").write_text("error: no wheel\n", encoding="utf-8")
    return by_release(folder)


GOLDEN = Path(__file__).with_name("compatibility.md")


def test_the_table_of_three_releases_is_the_one_that_is_kept(tmp_path: Path) -> None:
    """Known defects by number, new ones beside them, what passes everywhere only counted, and why a release has no column."""
    assert f"{table(collected(three_releases(tmp_path), TOPICS))}\n" == GOLDEN.read_text(encoding="utf-8")


def rows_of(folders: list[Path]) -> dict[str, list[str]]:
    """The table's rows, by what stands first."""
    lines = table(collected(folders, TOPICS)).splitlines()
    cells = [
        line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines if line.startswith("|")
    ]
    return {first: rest for first, *rest in cells}


@pytest.mark.parametrize(
    ("status", "message"),
    [("ERROR", "error"), ("not tested", "?"), ("UNEXPECTED PASS", "gone")],
)
def test_what_came_to_no_end_is_not_counted_as_passed(tmp_path: Path, status: str, message: str) -> None:
    rows = rows_of([saved(tmp_path, "1.0", {"counts_add_up": status})])
    assert (rows["properties: passed"], rows["`counts_add_up`"]) == (["0"], [message])


def test_a_broken_file_is_named_in_place_of_its_column(tmp_path: Path) -> None:
    path = saved(tmp_path, "1.0", {}) / "campaign.json"
    path.write_text("{", encoding="utf-8")
    assert "1.0 could not be tried: no campaign was saved" in table(collected([path.parent], TOPICS))


def test_what_was_kept_makes_the_same_table(tmp_path: Path) -> None:
    found = collected(three_releases(tmp_path), TOPICS)
    found.save(tmp_path / "kept.json")
    assert loaded(tmp_path / "kept.json") == found


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docs").mkdir()
    for name, file in FILES.items():
        with (tmp_path / file).open("a", encoding="utf-8") as page:
            page.write("\n".join((*MarkedPart(name, tmp_path, file).marks, "")))
    for module in (compatibility, compatibility_run):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    return tmp_path


def told_from(folder: Path, *options: str) -> int:
    return main(["--from", str(folder), *options])


def test_saved_campaigns_are_written_into_the_page_of_releases(root: Path) -> None:
    folder = root / "reports"
    saved(folder, "1.0", {"counts_add_up": "passed"})
    assert told_from(folder, "--write") == CLEAN
    assert "| **others** | 1 of 1 |" in (root / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert "| 1.0 | cpu | 1 | 0 | 0 | 0 |" in (root / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for name, text in parts(loaded(compatibility.results_of(VLLM))).items():
        assert MarkedPart(name, root, FILES[name]).differences(text, "again") == []


def test_columns_of_releases_before_the_oldest_supported_are_kept(root: Path) -> None:
    three_releases(root / "old")
    told_from(root / "old", "--write")
    saved(root / "new", VLLM.oldest, {"rows_are_whole": "passed"})
    assert told_from(root / "new", "--write") == CLEAN
    found = loaded(compatibility.results_of(VLLM))
    assert [release.release for release in found.releases] == ["0.9.0", "0.10.0", "0.11.0", VLLM.oldest]
    assert [defect.id for defect in found.known] == ["in-place", "overlap"]
    assert found.topics.keys() == {"copies_are_exact", "counts_add_up", "rows_are_whole"}


def test_another_project_has_a_table_and_a_file_of_its_own(root: Path) -> None:
    folder = root / "reports"
    saved(folder, "1.0", {"counts_add_up": "passed"})
    assert told_from(folder, "--write", "--subject", "sglang") == CLEAN
    path = compatibility.results_of(PROJECTS["sglang"])
    assert path.name == "compatibility-sglang.json"
    assert not compatibility.results_of(VLLM).exists()
    ((name, text),) = parts(loaded(path), PROJECTS["sglang"]).items()
    assert MarkedPart(name, root, FILES[name]).differences(text, "again") == []


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("passed", CLEAN),
        ("known", CLEAN),
        ("FALSIFIED", FALSIFIED),
        ("UNEXPECTED PASS", FALSIFIED),
        ("ERROR", INCOMPLETE),
        ("not tested", INCOMPLETE),
    ],
)
def test_the_exit_code_tells_the_worst(root: Path, status: str, code: int) -> None:
    saved(root / "reports", "1.0", {"counts_add_up": status})
    assert told_from(root / "reports") == code


def test_a_folder_without_campaigns_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told_from(tmp_path) == 3
    assert f"from = '{tmp_path}', but should be a folder with" in capsys.readouterr().err


_CAMPAIGN = """
import pathlib, shutil, sys
print("said", flush=True)
if sys.argv[-1] != "0.2":
    shutil.copy(pathlib.Path(sys.argv[2]).with_name("template") / "campaign.json", sys.argv[2])
sys.exit("broke")
"""
PROGRAM = (sys.executable, "-c", _CAMPAIGN)


def test_a_campaign_runs_on_its_release_and_leaves_its_log(tmp_path: Path) -> None:
    saved(tmp_path, "template", {"counts_add_up": "passed"})
    folder = campaign_on(VLLM, "0.3", tmp_path / "0.3", (), PROGRAM)
    (column,) = collected([folder], {}).releases
    assert (column.problem, list(column.cells)) == ("", ["counts_add_up"])
    assert "said" in (folder / "log.txt").read_text(encoding="utf-8")


def test_a_campaign_that_broke_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    saved(tmp_path, "0.2", {"counts_add_up": "passed"})
    (column,) = collected([campaign_on(VLLM, "0.2", tmp_path / "0.2", (), PROGRAM)], {}).releases
    assert (column.problem, dict(column.cells)) == ("no campaign was saved: broke", {})


@pytest.mark.parametrize(("releases", "budget"), [("0.25.1,latest", "3m"), ("", "3m"), ("0.25.1", "soon")])
def test_what_cannot_be_is_refused_before_the_first_campaign(
    releases: str, budget: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compatibility_run, "campaign_on", lambda *_: pytest.fail("ran"))
    assert main(["--releases", releases, "--budget", budget]) == 3
    assert "but should be" in capsys.readouterr().err
