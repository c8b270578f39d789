"""Since when a case is wrong: the line, the table, and what a report makes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from statecheck.case.values import call, int32
from statecheck.report.bisection import (
    FILE,
    ROOM,
    TITLE,
    Bisection,
    TriedVersion,
    save,
    saved,
    section_of,
    with_section,
)
from statecheck.report.markdown import add_bisection, report_text, write_report
from statecheck.report.sections import MOST
from subjects import load
from tests.breakages.broken import a_case, module

VERDICTS = {
    "+": "FIXED",
    "-": "FAILED",
    "k": "KNOWN",
    "n": "NOT APPLICABLE",
    "s": "CANNOT BE SET UP",
    "o": "LEFT OUT",
}


def bisected(verdicts: str, *, complete: bool = True) -> Bisection:
    """Releases 1, 2, …, each with a verdict; "." was not tried."""
    names = tuple(str(number + 1) for number in range(len(verdicts)))
    pairs = zip(names, verdicts, strict=True)
    tried = tuple(TriedVersion(name, VERDICTS[one], "x = 1") for name, one in pairs if one != ".")
    return Bisection("releases", names, tried, complete=complete)


LINES = {
    "+--+": "wrong since 2, right since 4",
    "++-k": "wrong since 3",
    "--++": "wrong since 1 or before, right since 3",
    "-.-++": "wrong since 1 or before, right since 4",
    "nn--+": "wrong since 3 (not applicable before), right since 5",
    "-nn+": "wrong since 1 or before, not applicable since 2, right since 4 (not applicable before)",
    "+s-": "wrong since 3 at the latest (no verdict on 2)",
    "+o.-": "wrong since 4 at the latest (no verdict on 2, 3)",
    "+-+-+": "wrong since 2, right since 3, wrong since 4, right since 5",
    "++": "right in all 2 releases that gave a verdict, 1 to 2",
    "-": "wrong in 1, the only one of 1 releases tried that gave a verdict",
    "s-o": "wrong in 2, the only one of 3 releases tried that gave a verdict",
    "so": "not known: none of 2 releases gave a verdict",
    "nn": "not applicable in all 2 releases that gave a verdict, 1 to 2",
}


@pytest.mark.parametrize(("verdicts", "line"), LINES.items(), ids=LINES)
def test_the_line_names_every_change(verdicts: str, line: str) -> None:
    assert bisected(verdicts).line == line


def test_the_line_names_commits_with_their_titles_and_says_what_is_not_exact() -> None:
    assert bisected("+-", complete=False).line == "wrong since 2 at the latest"
    commits = replace(bisected("+-"), over="commits", titles={"2": "Copy states\nfaster"})
    assert commits.line == "wrong since 2 (Copy states faster)"


@pytest.mark.parametrize(
    ("verdicts", "message"), [("+-+", False), ("--", False), ("-+-", True), ("+-n-", False), ("+-+-", True)]
)
def test_what_is_wrong_again_after_it_was_right_is_told(verdicts: str, message: bool) -> None:
    assert any("wrong again" in one for one in bisected(verdicts).remarks) == message


def test_what_was_not_tried_is_counted_and_named() -> None:
    found = bisected("+..-")
    assert found.rows == [
        ("1", "right", ""),
        ("2 to 3", "not tried", "2 releases"),
        ("4", "wrong", "x = 1"),
    ]
    assert found.remarks[0].startswith("2 of 4 releases were not tried")


def test_what_gave_no_verdict_is_neither_right_nor_wrong() -> None:
    assert [state for _, state, _ in bisected("sno").rows] == [
        "cannot be set up",
        "not applicable",
        "left out",
    ]


def test_bisections_of_releases_and_of_commits_are_kept_side_by_side(tmp_path: Path) -> None:
    releases, commits = bisected("+-"), replace(bisected("-+"), over="commits", titles={"1": "a"})
    save(tmp_path, bisected("++"))
    save(tmp_path, commits)
    save(tmp_path, releases)
    assert saved(tmp_path) == [releases, commits]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"bisections": 5}', '{"bisections": [{"over": "months", "names": [], "tried": []}]}']
)
def test_a_file_that_is_none_of_ours_is_left_aside(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    assert saved(tmp_path) == []


def reported(folder: Path) -> Path:
    with module(folder, "toy_halves", "def halved(x):\n    return x // 2\n"):
        case = a_case(subject="toy_halves", steps=(call("halved", x=4),))
        return write_report(case, folder / "reports", load("toy_halves").module)


def test_a_report_says_nothing_before_it_is_known(tmp_path: Path) -> None:
    assert TITLE not in (reported(tmp_path) / "report.md").read_text(encoding="utf-8")


def test_a_report_says_what_was_found_last_and_nothing_else_changes(tmp_path: Path) -> None:
    folder = reported(tmp_path)
    before = (folder / "report.md").read_text(encoding="utf-8")
    for verdicts in ("++", "+-"):
        add_bisection(folder, bisected(verdicts))
    text, page = ((folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("md", "html"))
    assert "**wrong since 2**" in text
    assert "wrong since 2" in page
    assert text.count(TITLE) == 1
    assert text.replace(f"{section_of(folder)}\n\n", "") == before


def test_a_report_that_is_written_again_keeps_what_is_known(tmp_path: Path) -> None:
    add_bisection(reported(tmp_path), bisected("+-"))
    assert "**wrong since 2**" in (reported(tmp_path) / "report.md").read_text(encoding="utf-8")


def test_a_report_has_room_for_it(tmp_path: Path) -> None:
    many = bisected("+-" * 300)
    long = replace(many, titles=dict.fromkeys(many.names, "why " * 40))
    save(tmp_path, long)
    save(tmp_path, replace(long, over="commits"))
    case = a_case(steps=(*(call("divide", x=int32(range(300)), y=n) for n in range(200)),)[:1])
    big = replace(case, steps=case.steps * 200, expected=case.expected * 200, actual=case.actual * 200)
    text = report_text(big, tmp_path)
    assert len(section_of(tmp_path)) <= ROOM
    assert ROOM < len(text) <= MOST
    assert f"`{FILE}` has the whole table." in text


def test_what_a_commit_says_is_no_markup(tmp_path: Path) -> None:
    found = replace(bisected("+-"), over="commits", titles={"2": "![x](http://a) <b> | # y\n## z"})
    save(tmp_path, found)
    section = section_of(tmp_path)
    assert "![" not in section
    assert r"\<b" in section
    assert all(line.count(" | ") == 2 for line in section.splitlines() if line.startswith("| 2"))


def test_a_text_without_the_place_for_it_stays_as_it_is(tmp_path: Path) -> None:
    save(tmp_path, bisected("+-"))
    assert with_section("# Something else\n", tmp_path) == "# Something else\n"


def test_the_file_has_the_line_too(tmp_path: Path) -> None:
    save(tmp_path, bisected("+-"))
    assert json.loads((tmp_path / FILE).read_text())["bisections"][0]["line"] == "wrong since 2"
