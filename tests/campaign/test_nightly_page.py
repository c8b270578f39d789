"""What people read of a campaign in the morning: the page and the summary, and how they are written."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from statecheck.campaign.pages import charts, summary
from statecheck.campaign.pages.page import page, write_reports
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import (
    BucketRecord,
    CorpusRecord,
    KnownRecord,
    MarkRecord,
    ProgressPoint,
)
from statecheck.campaign.shards.comparison import compared
from statecheck.case import Case
from statecheck.case.values import Returned, call
from statecheck.report.line_chart import ticks
from statecheck.report.markdown import write_report
from statecheck.text import command_lines, visible
from statecheck.text.command_lines import command_line
from subjects import load
from tests.breakages.broken import ROOT, a_case, module
from tests.campaign.nightly_examples import (
    EXAMPLES,
    HOSTILE,
    LAUNCHED,
    a_bucket,
    a_night,
    a_property,
    a_record,
    bucket_of_its_own,
    empty,
    hostile,
    on_a_cpu,
    parsed,
    two_buckets,
)

HTML = "{http://www.w3.org/1999/xhtml}"
DIRECTORY = Path("reports/campaigns/2026-11-21-night")
BEFORE = "2026-11-20T22:00:00+00:00"
FILES = Path(__file__).with_name("golden")
LOADING = {"script", "img", "link", "iframe", "object", "embed", "video", "audio", "base", "form"}
every_example = pytest.mark.parametrize("name", EXAMPLES)


def html(record: CampaignRecord, previous: CampaignRecord | None = None, directory: Path = DIRECTORY) -> str:
    return page(record, compared(record, previous), directory)


def markdown(record: CampaignRecord, previous: CampaignRecord | None = None) -> str:
    return summary.markdown(record, compared(record, previous), DIRECTORY)


def words(element: Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def part(record: CampaignRecord, name: str, previous: CampaignRecord | None = None) -> str:
    """The words of the section with that heading."""
    sections = parsed(html(record, previous)).iter(f"{HTML}section")
    return next(words(one) for one in sections if one.attrib["aria-labelledby"] == name)


def first_screen(record: CampaignRecord, previous: CampaignRecord | None = None) -> str:
    """Everything before the table of contents."""
    text = re.sub("<style>.*?</style>", "", html(record, previous), flags=re.DOTALL)
    return words(parsed(text.partition("<nav")[0] + "</main></body></html>"))


def verdict_of(record: CampaignRecord) -> str:
    return summary.verdict(record, compared(record, None)).word


@every_example
def test_the_page_is_a_document_that_loads_nothing_and_can_be_read_aloud(name: str) -> None:
    text = html(EXAMPLES[name])
    root = parsed(text)
    attributes = [pair for one in root.iter() for pair in one.attrib.items()]
    ids = [value for key, value in attributes if key == "id"]
    links = [value for key, value in attributes if key.endswith(("href", "src"))]
    assert root.attrib == {"lang": "en"}
    assert not LOADING & {one.tag.removeprefix(HTML) for one in root.iter()}
    assert not any(key.startswith("on") for key, _ in attributes)
    assert not re.search(r"@import|url\((?!#)", text)
    assert len(set(ids)) == len(ids)
    assert {link.removeprefix("#") for link in links} <= set(ids)
    for table in root.iter(f"{HTML}table"):
        # The report of a bucket has tables of its own, without a caption.
        captioned = table.find(f"{HTML}caption") is not None
        scopes = {one.attrib.get("scope") for one in table.iter(f"{HTML}th")}
        assert scopes <= {"col", "row"} if captioned else table.find(f"{HTML}thead") is not None
    levels = [int(tag) for tag in re.findall(r"<h([1-6])[ >]", text)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(levels))


def golden_text(record: CampaignRecord, previous: CampaignRecord | None = None) -> str:
    """The summary and the words of the page, but for the reports of buckets, which are tested where they are written."""
    comparison = compared(record, previous)
    root = parsed(page(record, comparison, DIRECTORY))
    lines = [summary.markdown(record, comparison, DIRECTORY), first_screen(record, previous)]
    for section in root.iter(f"{HTML}section"):
        if section.attrib["aria-labelledby"] != "reports":
            lines += [f"## {section.attrib['aria-labelledby']}", *map(words, section)]
    return "\n".join([*lines, ""]).replace(command_lines.python(), "python")


REPLAYED = [
    CorpusRecord(f"{verdict}.json", verdict, "")
    for verdict in ("FIXED", "NOT APPLICABLE", "UNREADABLE", "FAILED")
]
GOLDEN = {
    "canary-not-found": (a_record(canary="", corpus=REPLAYED), None),
    "new-and-still-there": (
        a_record(*two_buckets().buckets, bucket_of_its_own(3)),
        a_night(
            a_bucket(1),
            a_bucket(7, property="chunks_end"),
            began=BEFORE,
            marks=[MarkRecord("null block", "align", 1)],
        ),
    ),
    "interrupted-on-a-cpu": (on_a_cpu(complete=False, interrupted=True), None),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_page_and_the_summary_are_those_of_the_golden_file(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m tests.campaign.test_nightly_page` writes the golden files."""
    for variable in (command_lines.COMMAND, command_lines.FOLDER, *command_lines.IMPORTS):
        monkeypatch.delenv(variable, raising=False)
    assert golden_text(*GOLDEN[name]) == (FILES / f"{name}.txt").read_text(encoding="utf-8")


_ERROR = a_property("b", status="ERROR", examples=0)
_UNTESTED = a_property("b", status="not tested", examples=0)
_GONE = KnownRecord("old", standing="no longer fails")
_SHOWN = KnownRecord("old", standing="showed", properties={"chunks_end": 3})


@pytest.mark.parametrize(
    ("record", "word", "code"),
    [
        (a_record(), "CLEAN", 0),
        (on_a_cpu(), "CLEAN", 0),
        (a_record(properties=[a_property(status="known")], known=[_SHOWN]), "CLEAN", 0),
        (a_record(properties=[a_property(), a_property("b", status="not applicable")]), "CLEAN", 0),
        # A lack of time is no error, as long as something was compared.
        (a_record(properties=[a_property(), _UNTESTED]), "CLEAN", 0),
        (two_buckets(), "NOT CLEAN", 1),
        (a_record(a_bucket(1), canary=""), "NOT CLEAN", 1),
        (a_record(a_bucket(1), interrupted=True, complete=False), "NOT CLEAN", 1),
        (a_record(a_bucket(1), properties=[_ERROR]), "NOT CLEAN", 1),
        (a_record(properties=[a_property(status="UNEXPECTED PASS")]), "NOT CLEAN", 1),
        (a_record(properties=[a_property(status="FALSIFIED")]), "NOT CLEAN", 1),
        (a_record(known=[_GONE]), "NOT CLEAN", 1),
        (a_record(corpus=[CorpusRecord("a.json", "FAILED", "")]), "NOT CLEAN", 1),
        (a_record(canary=""), "NOT TO BE TRUSTED", 2),
        (empty(), "NOT TO BE TRUSTED", 2),
        (a_record(complete=False), "INCOMPLETE", 2),
        (a_record(interrupted=True, complete=False), "INCOMPLETE", 2),
        (a_record(properties=[a_property(), _ERROR]), "INCOMPLETE", 2),
        (a_record(properties=[_UNTESTED]), "INCOMPLETE", 2),
        (a_record(properties=[a_property(compared=0)]), "INCOMPLETE", 2),
        (a_record(properties=[a_property(status="not applicable", examples=0)]), "INCOMPLETE", 2),
        (a_record(corpus=[CorpusRecord("a.json", "UNREADABLE", "")]), "INCOMPLETE", 2),
        (a_record(corpus=[CorpusRecord("a.json", "KNOWN", "")]), "CLEAN", 0),
    ],
)
def test_the_verdict_is_the_gravest_of_what_was_seen(record: CampaignRecord, word: str, code: int) -> None:
    assert verdict_of(record) == word
    assert summary.verdict(record, compared(record, None)).exit_code == code


def test_a_scenario_in_a_release_s_own_engine_is_shown_with_its_calls_and_its_picture() -> None:
    record = a_record(a_bucket(1, Case.load(ROOT / "docs" / "findings" / "one-token-prompt.json")))
    result = first_screen(record)
    assert "smallest input: LiveEngine(settings=LiveSettings(kinds=('gdn',), num_blocks=24" in result
    assert "step 3, the forward: r0 computes 1 and 1 draft; r1 computes 1 and 1 draft" in html(record)


def test_failures_at_the_same_call_and_place_are_one_entry() -> None:
    named = [a_bucket(number, property=f"property_{number}") for number in range(8)]
    record = a_record(*named, bucket_of_its_own(9, property="another"))
    assert summary.verdict(record, compared(record, None)).reasons[0] == "2 causes, 9 properties: 9 new."
    text = html(record)
    assert text.count("<article") == 2
    assert text.count('<details class="same">') == 7
    result = first_screen(record)
    assert result.count("breaks 8 properties:") == result.count("breaks 1 property:") == 1
    (line,) = [line for line in markdown(record).splitlines() if "and 3 more" in line]
    assert line.startswith("- **divide: the call** (new; property_0, property_1,")


def test_failures_of_subjects_or_places_of_their_own_are_entries_of_their_own() -> None:
    elsewhere = a_bucket(2, subject="other")
    returned = a_case(actual=(Returned(1),), message="result = 1, but should be ValueError that names x")
    assert (
        len(summary.in_order([a_bucket(1), elsewhere, a_bucket(3, returned)], compared(a_record(), None)))
        == 3
    )


def test_a_saved_case_that_fails_again_is_one_regression() -> None:
    bucket = a_bucket(1, first_seen={"date": "2026-10-02", "commit": "aaaaaaaaaaaa"})
    record = a_record(bucket, corpus=[CorpusRecord(bucket.corpus, "FAILED", "wrong")])
    reasons = summary.verdict(record, compared(record, None)).reasons
    assert reasons == ("1 cause, 1 property: none new, 1 regression.",)
    assert "regression: a saved case fails, first seen 2026-10-02 (aaaaaaaaaaaa)" in first_screen(record)
    assert "Regressions: a saved case fails again (1)" in part(record, "comparison", a_night(began=BEFORE))


def test_the_report_of_a_bucket_is_complete() -> None:
    message = part(two_buckets(), "reports")
    pieces = (
        "Should hold: Toys divide.",
        "Seen instead: the call = ValueError",
        "Who did it Program 0 wrote it.",
        "Input divide(x=5, y=2)",
        "expected ValueError that names x",
        "It did not repeat.",
        "illegal access",
        "-m statecheck replay 0000000002 --subject toy --device cuda",
        "repro.py: exits 1",
        '"""Counterexample to: states_stay',
    )
    assert [piece for piece in pieces if piece not in message] == []


def test_the_picture_of_a_bucket_stands_in_the_page() -> None:
    text = html(two_buckets())
    assert text.count("<figure><svg") == 1
    assert "![" not in text


def test_a_case_that_cannot_be_shown_is_shown_as_json() -> None:
    message = part(a_record(a_bucket(1, case=a_case()), a_bucket(2)), "reports")
    assert "cannot be shown" not in message
    bucket = a_bucket(1)
    bucket.case["schema"] = 99
    message = part(a_record(bucket), "reports")
    assert "The case cannot be shown in words: ValueError: schema = 99" in message
    assert '"property_name": "toys_divide"' in message


def test_a_case_of_which_no_file_is_there_can_be_copied_from_the_page() -> None:
    message = part(a_record(a_bucket(1, corpus="")), "reports")
    assert "No file of its input is on this machine." in message
    assert "-m statecheck replay case.json --subject toy --device cuda runs it" in message


def test_what_is_hostile_stays_text() -> None:
    text = html(hostile())
    assert "<script" not in text
    assert "{{ 7 * 7 }}" in text
    assert "\\x00\\x1b[31m\\ud800\\ufffe\\u202e" in text
    assert visible(text) == text


def test_the_summary_escapes_what_tables_and_code_are_made_of() -> None:
    text = markdown(hostile())
    cells = [line for line in text.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in cells)
    outside = "".join(line.partition("`")[0] for line in text.splitlines() if "Everything else" not in line)
    assert "<script" not in re.sub(r"\\<", "", outside)
    assert visible(text) == text


def test_the_summary_of_much_that_is_wrong_is_short() -> None:
    buckets = [bucket_of_its_own(number) for number in range(50)]
    statuses = (
        "FALSIFIED",
        "ERROR",
        "not reached",
        "running",
        "UNEXPECTED PASS",
        "passed",
        "known deviation",
    )
    properties = [a_property(f"p{number}", status=one) for number, one in enumerate(statuses)]
    corpus = [CorpusRecord("a", "FAILED", ""), CorpusRecord("b", "UNREADABLE", "")]
    changes = {
        "properties": properties,
        "corpus": corpus,
        "troubles": ["t"] * 50,
        "canary": "",
        "complete": False,
        "launched": [replace(LAUNCHED[0], branches=LAUNCHED[0].branches * 50), LAUNCHED[1]],
    }
    text = markdown(
        a_record(*buckets, **changes), a_night(began=BEFORE, marks=[MarkRecord("null block", "a", 1)])
    )
    assert len(text.splitlines()) <= 75
    assert "and 38 more" in text


@pytest.mark.parametrize(
    ("most", "whole", "shown"),
    [
        (0.0, False, [0.0]),
        (1.0, True, [0.0, 1.0]),
        (7.0, True, [0.0, 2.0, 4.0, 6.0]),
        (480.0, False, [0.0, 100.0, 200.0, 300.0, 400.0]),
        (0.5, False, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
    ],
)
def test_axes_have_round_numbers(most: float, whole: bool, shown: list[float]) -> None:
    assert ticks(most, whole=whole) == pytest.approx(shown)


def test_a_long_series_becomes_a_short_table_that_ends_with_the_end() -> None:
    series = [ProgressPoint(float(second), second, 0, 0) for second in range(28_800)]
    found = charts.thinned(series)
    assert (len(found), found[0].at, found[-1].at) == (20, 0.0, 28_799.0)


def test_a_series_out_of_order_has_no_negative_speed() -> None:
    series = [
        ProgressPoint(9.0, 90, 0, 0),
        ProgressPoint(3.0, 30, 0, 0),
        ProgressPoint(3.0, 31, 0, 0),
        ProgressPoint(12.0, 80, 0, 0),
    ]
    assert charts.rates(charts.thinned(series)) == [31 / 3, 59 / 6, 0.0]


@pytest.mark.slow
def test_ten_thousand_buckets_make_a_page_that_opens() -> None:
    large = "wrong " * 200
    record = a_record(*(bucket_of_its_own(number, message=large) for number in range(10_000)))
    text = html(record)
    assert len(text.encode()) < 20_000_000
    assert text.count("<article") == 200
    assert f"replay {9999:010x}" in text


def test_reports_that_are_too_large_are_left_to_their_files() -> None:
    case = a_case(steps=(call("divide", x="long " * 400_000, y=1),))
    text = html(a_record(*(a_bucket(number, case) for number in range(9))))
    assert len(text) < 1_000_000
    assert "too large for this page" in text


@pytest.mark.parametrize("name", ["campaign.json", "report.html", "summary.md", "junit.xml"])
def test_a_file_that_cannot_be_written_keeps_no_other_from_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "in the way").mkdir(parents=True)
    record = a_record()
    write_reports(record, tmp_path)
    assert sum(one.is_file() for one in tmp_path.iterdir()) == 3
    assert record.troubles == [f"{tmp_path / name} was not written: IsADirectoryError: Is a directory"]
    if name != "campaign.json":
        assert CampaignRecord.load(tmp_path / "campaign.json").troubles == record.troubles


@every_example
def test_four_files_are_written(tmp_path: Path, name: str) -> None:
    record = EXAMPLES[name]
    troubles = list(record.troubles)
    path = write_reports(record, tmp_path / "campaigns" / "one")
    assert path == tmp_path / "campaigns" / "one" / "report.html"
    names = sorted(one.name for one in path.parent.iterdir())
    assert names == ["campaign.json", "junit.xml", "report.html", "summary.md"]
    assert record.troubles == troubles


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    # Names are held to rules when they are read; everything else may be any text.
    buckets = [a_bucket(3, message=HOSTILE, rule=HOSTILE)]
    record = replace(hostile(), id="night", subject="toy", commit="", corpus=[], buckets=buckets)
    write_reports(record, tmp_path)
    assert CampaignRecord.load(tmp_path / "campaign.json") == record


def test_the_page_before_stays_where_a_new_one_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_reports(a_record(), tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr("statecheck.campaign.pages.page._entries", lambda *_: 1 / 0)
    record = two_buckets()
    write_reports(record, tmp_path)
    assert path.read_bytes() == before
    assert "ZeroDivisionError" in record.troubles[0]


DIVIDE = "def divide(x, y):\n    return x // y\n"


def test_commands_name_what_differs_from_what_is_usual() -> None:
    plain = a_bucket(1, subject="impl", corpus="corpus/a-0000000001.json")
    assert summary.commands(plain, on_a_cpu(), Path("reports")) == (
        command_line("replay", "0000000001", device="cpu"),
    )
    fallback = a_bucket(1, subject="my.engine", corpus="reports/corpus/it's $1.json")
    path = Path("reports/corpus/it's $1.json")
    assert summary.commands(fallback, on_a_cpu(), Path("reports")) == (
        command_line("replay", path, subject="my.engine", device="cpu"),
    )


@pytest.fixture
def reported(tmp_path: Path) -> tuple[BucketRecord, Path]:
    """A bucket with everything that a campaign writes of it, of a subject whose fault is still there."""
    case = a_case(subject="toy_divides", actual=(Returned(2),), device="cpu")
    with module(tmp_path, "toy_divides", DIVIDE):
        folder = write_report(case, tmp_path / "reports", load("toy_divides").module)
    file = case.save(tmp_path / "corpus" / "toys_divide-00000000ff.json")
    return a_bucket(255, case, corpus=str(file), report=folder.name), tmp_path


def test_the_page_has_the_report_and_the_script_that_were_written(
    reported: tuple[BucketRecord, Path],
) -> None:
    bucket, folder = reported
    text = html(a_record(bucket), directory=folder / "reports" / "campaigns" / "one")
    assert f"{folder}/reports/{bucket.report}/repro.py" in text
    assert "Environment" not in text[text.index('id="reports"') : text.index('id="buckets"')]
    assert text.count("Run it again") == 1


def test_a_report_that_was_written_is_shown_as_it_was(reported: tuple[BucketRecord, Path]) -> None:
    bucket, folder = reported
    (folder / "reports" / bucket.report / "report.md").write_text("# title\n\nAs it was written.\n")
    assert "As it was written." in html(a_record(bucket), directory=folder / "reports" / "campaigns" / "one")


def test_the_report_of_another_input_is_not_shown(reported: tuple[BucketRecord, Path]) -> None:
    bucket, folder = reported
    smaller = a_case(steps=(call("divide", x=1, y=0),))
    bucket.case = smaller.to_data()
    text = html(a_record(bucket), directory=folder / "reports" / "campaigns" / "one")
    assert "divide(x=1, y=0)" in text
    assert "x = 5" not in text


if __name__ == "__main__":
    FILES.mkdir(exist_ok=True)
    for name, records in GOLDEN.items():
        (FILES / f"{name}.txt").write_text(golden_text(*records), encoding="utf-8")
