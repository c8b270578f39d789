"""The commands `conform` and `xfails`, as the CI of a port calls them."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from statecheck.campaign.conformance import profile_of
from statecheck.cli import main as cli
from statecheck.cli.conform import RESULT
from statecheck.execution.verdict import CLEAN, FALSIFIED, MISCONFIGURED
from statecheck.util.files import mark

pytestmark = pytest.mark.usefixtures("executed")

WRONG, FIXED = "examples.off_by_one", "tests.unit.cli.right_offsets"
OFFSETS, IN_PLACE = "fla-chunks/offsets", "chunk-metadata/changed-in-place"


def run(*arguments: str) -> tuple[int, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = cli.main(arguments)
    return code, printed.getvalue()


def conform(folder: Path, subject: str, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the result."""
    reports = folder / "reports"
    known = set(reports.glob(f"campaigns/*/{RESULT}"))
    code, printed = run(
        "conform", "--subject", subject, "--workers", "1", "--reports", str(reports), *options
    )
    new = set(reports.glob(f"campaigns/*/{RESULT}")) - known
    assert len(new) == 1, printed
    return code, json.loads(new.pop().read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("wrong")
    return folder, *conform(folder, WRONG)


@pytest.fixture(scope="module")
def xfails(wrong: tuple[Path, int, dict[str, Any]]) -> Path:
    """The file that `xfails --update` writes of it, completed by its author."""
    folder = wrong[0]
    file = folder / "statecheck-xfails.toml"
    code, _ = run(
        "xfails", "--campaign", str(folder / "reports/campaign.json"), "--file", str(file), "--update"
    )
    assert code == CLEAN
    text = file.read_text(encoding="utf-8")
    file.with_suffix(".new").write_text(text, encoding="utf-8")
    complete = text.replace('why = ""', 'why = "empty sequences"').replace('link = ""', 'link = "issue 1"')
    file.write_text(complete, encoding="utf-8")
    return file


def test_a_wrong_port_does_not_conform(wrong: tuple[Path, int, dict[str, Any]]) -> None:
    _, code, result = wrong
    assert (code, result["verdict"], result["counts"]["FALSIFIED"]) == (FALSIFIED, "NOT CLEAN", 2)
    assert result["properties"][OFFSETS] == {"status": "FALSIFIED"}
    version = profile_of("functions").version
    assert (result["profile"], result["profile_version"], result["subject"]) == ("functions", version, WRONG)


def test_an_entry_whose_place_matches_no_failure_is_named_beside_the_failure(
    xfails: Path, tmp_path: Path
) -> None:
    slip = tmp_path / "slip.toml"
    slip.write_text(
        xfails.read_text(encoding="utf-8").replace('place = "result"', 'place = "resutl"'), encoding="utf-8"
    )
    reports = str(tmp_path / "reports")
    code, printed = run(
        "conform", "--subject", WRONG, "--workers", "1", "--reports", reports, "--xfails", str(slip)
    )
    assert code == FALSIFIED
    assert "place = 'resutl'. This failure has place = 'result', and differs in nothing else." in printed
    [summary] = tmp_path.glob("reports/campaigns/*/summary.md")
    assert "resutl" in summary.read_text(encoding="utf-8")


def test_a_ci_system_sees_a_test_for_each_property(wrong: tuple[Path, int, dict[str, Any]]) -> None:
    folder, _, result = wrong
    [file] = folder.glob("reports/campaigns/*/junit.xml")
    suite = ET.parse(file).getroot()  # noqa: S314 - made above
    failed = {test.get("name") for test in suite if test.find("failure") is not None}
    assert failed == {OFFSETS, IN_PLACE}
    counts = tuple(suite.get(name) for name in ("tests", "failures", "skipped"))
    assert counts == (str(len(result["properties"])), "2", str(result["counts"]["not applicable"]))


def test_a_step_has_a_summary_that_says_where_its_reports_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    conform(tmp_path, WRONG)
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert text.startswith("# NOT CLEAN: ")
    assert "in the artifact of this run" in text


def test_an_entry_without_a_reason_is_refused(xfails: Path, wrong: tuple[Path, int, dict[str, Any]]) -> None:
    folder = str(wrong[0] / "refused")
    new = str(xfails.with_suffix(".new"))
    code, printed = run("conform", "--subject", WRONG, "--reports", folder, "--xfails", new)
    assert code == MISCONFIGURED
    assert "link = '', but should be text that is not empty" in printed


@pytest.mark.slow
def test_expected_failures_make_a_port_conform_with_the_same_counts_each_time(
    xfails: Path, tmp_path: Path
) -> None:
    (code, first), (_, second) = (conform(tmp_path, WRONG, "--xfails", str(xfails)) for _ in range(2))
    assert (code, first["verdict"], first["counts"]["known"]) == (CLEAN, "CLEAN", 2)
    assert first["properties"] == second["properties"]
    assert first["properties"][OFFSETS]["examples"] == 200
    assert {row["status"] for row in first["expected_failures"]} == {"showed"}


@pytest.mark.slow
def test_an_expected_failure_that_no_longer_fails_is_reported_and_may_be_a_failure(
    xfails: Path, tmp_path: Path
) -> None:
    code, result = conform(tmp_path, FIXED, "--xfails", str(xfails))
    assert (code, result["verdict"], result["properties"][OFFSETS]["status"]) == (CLEAN, "CLEAN", "passed")
    [status] = [row["status"] for row in result["expected_failures"] if row["id"].startswith("fla")]
    assert status == "no longer fails"
    code, result = conform(tmp_path, FIXED, "--xfails", str(xfails), "--fail-on-fixed")
    assert (code, result["verdict"]) == (FALSIFIED, "NOT CLEAN")
    assert all(part in result["reasons"][0] for part in ("no longer fail", "fla-chunks-offsets"))


@pytest.mark.slow
def test_properties_declared_as_unsupported_are_not_applicable(tmp_path: Path) -> None:
    file = tmp_path / "xfails.toml"
    entry = f'[[unsupported]]\nproperties = ["{OFFSETS}", "chunk-metadata/*"]\nwhy = "no empty sequences"\n'
    file.write_text(entry, encoding="utf-8")
    code, result = conform(tmp_path, WRONG, "--xfails", str(file))
    assert code == FALSIFIED, "nothing was compared"
    assert {result["properties"][name]["status"] for name in (OFFSETS, IN_PLACE)} == {"not applicable"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[unsupported]]\nproperties = ["nosuch/*"]\nwhy = "no"\n', "should match a property"),
        ('[[unsupported]]\nproperties = ["split/*"]\nwhy = ""\n', "why = '', but should be text"),
        ("[[unsupported]]\n", "unsupported"),
    ],
)
def test_a_file_that_says_nothing_true_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "xfails.toml"
    file.write_text(text, encoding="utf-8")
    code, printed = run(
        "conform", "--subject", WRONG, "--reports", str(tmp_path / "r"), "--xfails", str(file)
    )
    assert (code, message in printed) == (MISCONFIGURED, True), printed


def test_a_campaign_that_is_not_there_has_no_entries(tmp_path: Path) -> None:
    code, printed = run("xfails", "--campaign", str(tmp_path / "campaign.json"))
    assert (code, "should be the record of a campaign" in printed) == (MISCONFIGURED, True)


@pytest.mark.slow
def test_a_result_that_the_reports_folder_does_not_take_is_named(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    mark(reports, "reports")
    (reports / "campaigns").touch()  # a file, below which no folder can be made, whatever the user's rights
    code, printed = run("conform", "--subject", FIXED, "--workers", "1", "--reports", str(reports))
    assert code == 1
    for name in ("report.html was not written", f"{RESULT} could not be written"):
        assert f"{name}: " in printed
    assert "Not a directory" in printed
