"""Since when a case is wrong: the line, the table, and what a report makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statecheck.case.values import call, int32
from statecheck.report.bisection import FILE, ROOM, TITLE, Bisection, TriedRelease, save, with_section
from statecheck.report.render import MOST, add_bisection, report_text, write_report
from subjects import load
from tests.helpers.cases import a_case, subject_of
from tests.helpers.modules import module

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
    tried = tuple(TriedRelease(name, VERDICTS[sign], "x = `1`") for name, sign in pairs if sign != ".")
    return Bisection(names, tried, complete=complete)


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
    "-": "wrong in 1, the only release that gave a verdict",
    "s-o": "wrong in 2, the only release that gave a verdict",
    "so": "not known: none of 2 releases gave a verdict",
    "nn": "not applicable in all 2 releases that gave a verdict, 1 to 2",
}


@pytest.mark.parametrize(("verdicts", "line"), LINES.items(), ids=LINES)
def test_the_line_names_every_change(verdicts: str, line: str) -> None:
    assert bisected(verdicts).line == line


def test_a_change_between_releases_that_were_picked_is_not_exact() -> None:
    assert bisected("+-", complete=False).line == "wrong since 2 at the latest"


def test_releases_that_were_not_tried_are_counted() -> None:
    found = bisected("+..-")
    assert found.rows == [("1", "right", ""), ("4", "wrong", "x = `1`")]
    assert found.note.startswith("2 of 4 releases were not tried")


def reported(folder: Path) -> Path:
    with module(folder, "toy_halves", "def halved(x):\n    return x // 2\n"):
        case = a_case(subject="toy_halves", steps=(call("halved", x=4),))
        return write_report(case, folder / "reports", load("toy_halves"))


def test_a_report_says_what_was_found_last_and_nothing_else_changes(tmp_path: Path) -> None:
    folder = reported(tmp_path)
    before = (folder / "report.md").read_text(encoding="utf-8")
    for verdicts in ("++", "+-"):
        add_bisection(folder, bisected(verdicts))
    text, page = ((folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("md", "html"))
    assert "**wrong since 2**" in text
    assert "wrong since 2" in page
    assert text.count(TITLE) == 1
    assert text.replace(f"{bisected('+-').section}\n\n", "") == before


def test_a_report_has_room_for_it(tmp_path: Path) -> None:
    save(tmp_path, bisected("+-" * 300))
    case = a_case(steps=(*(call("divide", x=int32(range(300)), y=n) for n in range(200)),)[:1])
    big = replace(case, steps=case.steps * 200, expected=case.expected * 200, actual=case.actual * 200)
    text = with_section(report_text(big, subject_of(big)), tmp_path)
    assert len((tmp_path / FILE).read_text(encoding="utf-8")) <= ROOM
    assert ROOM < len(text) <= MOST
    assert "570 older rows are left out here." in text
