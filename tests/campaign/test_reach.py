"""`statecheck reach`: what a campaign came to, and what it did not."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.situations.registry import Situation
from statecheck.campaign.pages.reach import reach_page
from statecheck.campaign.record_parts import MarkRecord
from statecheck.cli.main import main
from statecheck.kernels.coverage import Branch, Coverage
from statecheck.reach.source import source

TEXT = "def halved(number):\n    if number < 0:\n        return None\n    return number // 2\n"
TAKEN, MISSED = (Branch("kernel", "impl/k.py:1", "impl/k.py", line, "then", f"if {line}:") for line in (2, 3))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "halves.py"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def refusals(**never: str) -> dict[str, Situation]:
    return {name: Situation(name, "batch", None, why) for name, why in never.items()}


def page_of(file: str, *reached: str, never: str = "") -> str:
    """Of three refusals of which `reached` were, and of a function that was never called with a negative number."""
    points = {one for one in source(file).points() if one.line != 3 and one.way != "true"}
    marks = {name: MarkRecord(name, "batch", 7, 1.0, "chunks_are_cut") for name in reached}
    covered = Coverage(branches=frozenset({TAKEN, MISSED}), taken=frozenset({TAKEN}))
    named = refusals(first="", second="", third=never)
    page = reach_page(named, marks, points, {"the rules": [file]}, covered)
    return page.markdown()


def test_the_page_counts_what_was_reached_and_lists_what_was_not(file: str) -> None:
    page = page_of(file, "first")
    for line in (
        "| refusals | 1 | 3 |",
        "| lines of the rules | 2 | 3 |",
        "| branches of the rules | 1 | 2 |",
        "| branches of kernels that were launched | 1 | 2 |",
        "- `second`",
        f"- `{file}:3` `return None`",
        f"- `{file}:2` never true: `number < 0:`",
        "- `impl/k.py:3` kernel, never then: `if 3:`",
        "| first | 7 | chunks_are_cut |",
    ):
        assert line in page.splitlines()


def test_a_refusal_with_a_reason_is_not_missed(file: str) -> None:
    page = page_of(file, "first", never="no call gets there")
    assert "| refusals | 1 | 2 |" in page
    assert page.count("`third`") == 1
    assert page.index("no call gets there") < page.index("`third`")


def test_a_reason_for_a_refusal_that_was_reached_is_shown_as_wrong(file: str) -> None:
    wrong = (
        "third: an example reached it, so that it should not be among the refusals that no property reaches"
    )
    assert wrong in page_of(file, "third", never="no call gets there")
    assert wrong not in page_of(file, "first", never="no call gets there")


def test_a_campaign_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only = "split/decodes-first or bad-input/forms"
    options = ["--budget", "6s", "--workers", "1", "--seed", "5", "--reports", str(tmp_path), "--only", only]
    assert main(["reach", *options]) == 0
    written = list(tmp_path.glob("campaigns/*/reach.md"))
    assert [str(path) for path in written] == [
        str(tmp_path / line.removeprefix("reached: "))
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("reached: ")
    ]
    page = written[0].read_text(encoding="utf-8")
    reached = {
        cells[1].strip(): int(cells[2].replace(",", ""))
        for line in page.splitlines()[4:10]
        if (cells := line.split("|"))
    }
    assert {name for name, number in reached.items() if number} == {
        "refusals",
        "lines of the rules",
        "branches of the rules",
        "lines of impl",
        "branches of impl",
    }
    assert "`oracle/align/" in page


def test_a_subject_in_processes_of_its_own_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reach", "--isolated"]) == 3
    assert "isolated = True, but should be False where lines are noted" in capsys.readouterr().err
