"""The page of a report, and its picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from statecheck.case import Case
from statecheck.case.failure import stated
from statecheck.report.markdown import write_report
from statecheck.report.picture import svg
from tests.breakages.broken import a_case
from tests.report.test_picture import STORY, TITLES, parsed


def reported(folder: Path, **changes: object) -> Path:
    case = replace(a_case(), **changes)  # type: ignore[arg-type]
    return write_report(case, folder, pytest, note="A <b>note</b>.")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a case with a timeline."""
    return reported(
        tmp_path_factory.mktemp("story"), timeline=STORY, failure=stated("a < b \x1b[0m", "should be `c`")
    )


def page(report: Path) -> Element:
    return parsed((report / "report.html").read_text(encoding="utf-8"))


def test_the_page_has_the_picture_after_what_was_seen_and_then_the_report(story: Path) -> None:
    body = page(story)[1]
    kinds = [element.tag for element in body]
    first = kinds.index("figure")
    assert kinds[: first + 2] == ["h1", *["p"] * (first - 1), "figure", "p"]
    assert [child.tag for child in body[first]] == ["svg"]
    assert [heading.text for heading in body.iter("h2")][:3] == [
        "What happened",
        "Expected and actual",
        "Input",
    ]
    assert [item.text for item in body.iter("li")] == list(TITLES)
    assert any((code.text or "").startswith("expected ") for code in body.iter("code"))
    assert {"device", "revision", "torch"} <= {cell.text for cell in body.iter("td")}


def test_markup_in_a_case_is_text_on_the_page(story: Path) -> None:
    body = "".join(page(story)[1].itertext())
    assert "a < b \\x1b[0m" in body
    assert "A <b>note</b>." in body


def test_the_report_has_the_story_and_its_tables_in_words_before_what_came_of_it(story: Path) -> None:
    text = (story / "report.md").read_text(encoding="utf-8")
    listed = "\n".join(f"- {title}" for title in TITLES)
    assert f"\n\n## What happened\n\n{listed}\n\n<details>\n<summary>Block tables" in text
    assert text.index(listed) < text.index("\n\n## Expected and actual\n\n")
    row = "r0, group 0: 0 null | 1 #5 8 tokens r0 published R | 2 #7 10 tokens r0 W"
    assert f"step 2, after the forward\n  {row}" in text


def test_the_report_shows_the_picture_that_stands_beside_it(story: Path) -> None:
    text = (story / "report.md").read_text(encoding="utf-8")
    assert text.count("\n\n![block tables over time](timeline.svg)\n\n") == 1
    assert (story / "timeline.svg").read_text(encoding="utf-8") == svg(STORY) + "\n"
    assert Case.load(story / "case.json").timeline == STORY


def test_reporting_again_without_a_timeline_takes_the_picture_away(tmp_path: Path) -> None:
    reported(tmp_path, timeline=STORY)
    report = reported(tmp_path)
    text = (report / "report.md").read_text(encoding="utf-8")
    assert not (report / "timeline.svg").exists()
    assert not list(page(report).iter("svg"))
    assert "timeline" not in text
    assert "What happened" not in text
