"""The page and the summary of a campaign, and how they are written."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from statecheck.campaign import summary
from statecheck.campaign.display import print_sections
from statecheck.campaign.record import BucketRecord, CampaignRecord, CorpusRecord, KnownRecord
from statecheck.campaign.report import commands, junit, markdown, page, sections, write_reports
from statecheck.case import Case
from statecheck.case.values import Returned
from statecheck.report.failure import headline
from statecheck.report.render import GITHUB, write_report
from statecheck.util.command_lines import command_line
from subjects import load
from tests.helpers.cases import a_case
from tests.helpers.modules import module
from tests.unit.campaign.nightly_examples import (
    EXAMPLES,
    HOSTILE,
    a_bucket,
    a_property,
    a_record,
    bucket_of_its_own,
    empty,
    hostile,
    on_a_cpu,
    parsed,
    two_buckets,
)

DIRECTORY = Path("reports/campaigns/2026-11-21-night")
LOADING = {"img", "link", "iframe", "object", "embed", "video", "audio", "base", "form"}
OLD = {"date": "2026-10-02", "commit": "aaaaaaaaaaaa"}
every_example = pytest.mark.parametrize("name", EXAMPLES)


def verdict_of(record: CampaignRecord) -> str:
    return summary.verdict(record).word


@every_example
def test_the_page_is_a_document_that_loads_nothing_and_runs_its_own_script(name: str) -> None:
    text = page(EXAMPLES[name], DIRECTORY)
    root = parsed(text)
    attributes = [key for element in root.iter() for key in element.attrib]
    assert not LOADING & {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not any(key.startswith("on") for key in attributes)
    assert not re.search(r"@import|url\((?!#)", text)
    levels = [int(tag) for tag in re.findall(r"<h([1-6])[ >]", text)]
    assert (levels[0], levels.count(1)) == (1, 1)
    (script,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in text


def test_the_table_of_the_page_has_failing_rows_first_and_a_button_for_each_status() -> None:
    rows = [
        a_property(f"p{number}", status=status)
        for number, status in enumerate(("passed", "not applicable", "FALSIFIED", "ERROR", "known"))
    ]
    text = page(a_record(properties=rows), DIRECTORY)
    shown = re.findall(r'<tr data-status="(.*?)">', text)
    assert shown == ["FALSIFIED", "ERROR", "passed", "known", "not applicable"]
    assert re.findall(r'aria-pressed="(.*?)">(.*?)</button>', text) == [
        *(("true", f"{word}: 1") for word in shown[:-1]),
        ("false", "not applicable: 1"),
    ]


_ERROR = a_property("b", status="ERROR", examples=0)
_UNTESTED = a_property("b", status="not tested", examples=0)
_GONE = KnownRecord("old", status="no longer fails")
_SHOWN = KnownRecord("old", status="showed", properties={"chunks/end": 3})


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
    assert summary.verdict(record).exit_code == code


def test_failures_at_the_same_call_and_place_are_one_entry() -> None:
    named = [a_bucket(number, property=f"property_{number}") for number in range(8)]
    record = a_record(*named, bucket_of_its_own(9, property="another"))
    assert summary.verdict(record).reasons[0] == "2 causes, 9 properties: 9 new."
    (wrong, *_) = sections(record)
    shown = (Case.from_data(bucket.case) for bucket in (record.buckets[0], record.buckets[-1]))
    assert [entry.headline for entry in wrong.entries] == [*map(headline, shown)]
    rows = dict(wrong.entries[0].rows)
    assert rows["also fails"].startswith("property_1, property_2,")
    assert "-m statecheck replay 0000000000" in rows["run it again"]
    assert page(record, DIRECTORY).count('class="cause"') == 2


def test_the_headline_is_the_same_in_terminal_summary_page_junit_and_annotations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(GITHUB, "true")
    bucket = a_bucket(
        1,
        a_case(
            actual=(Returned(2),), message="result = 2, but should be ValueError that names x [divide(x=5)]"
        ),
    )
    record = replace(a_record(bucket), release="1.2")
    line = headline(Case.from_data(bucket.case), "1.2")
    printed: list[str] = []
    print_sections(printed.append, record)
    assert f"FALSIFIED: {line}" in printed
    assert [text for text in printed if line.replace(":", "%3A").replace(",", "%2C") in text]
    assert f"- **{line}**" in markdown(record, DIRECTORY)
    assert f"<h3>{line} " in page(record, DIRECTORY)
    assert f'message="{line}"' in junit(record)


def test_failures_of_subjects_or_places_of_their_own_are_entries_of_their_own() -> None:
    elsewhere = a_bucket(2, subject="other")
    returned = a_case(actual=(Returned(1),), message="result = 1, but should be ValueError that names x")
    assert len(summary.in_order(a_record(a_bucket(1), elsewhere, a_bucket(3, returned)))) == 3


def test_a_failure_is_new_unless_an_earlier_campaign_has_met_it() -> None:
    record = a_record(a_bucket(1, first_seen=OLD), bucket_of_its_own(2), bucket_of_its_own(3, first_seen={}))
    assert summary.verdict(record).reasons[0].endswith("(3 failures): 2 new.")
    assert [group[0].id[-1] for group in summary.in_order(record)] == ["2", "3", "1"]
    assert ">since 2026-10-02 aaaaaaaaaaaa<" in page(record, DIRECTORY)


def test_a_failure_is_not_new_if_its_case_was_in_the_corpus_before() -> None:
    replayed = CorpusRecord(file=f"some_property-{a_bucket(1).id}.json", verdict="FAILED", message="")
    record = a_record(a_bucket(1), bucket_of_its_own(2), corpus=[replayed])
    assert summary.verdict(record).reasons[0].endswith(": 1 new.")


def test_a_case_that_cannot_be_read_costs_no_page() -> None:
    bucket = a_bucket(1)
    bucket.case["schema"] = 99
    shown = markdown(a_record(bucket), DIRECTORY)
    assert "-m statecheck replay 0000000001 --subject toy --device cuda" in shown
    assert f"toy: {bucket.message}" in page(a_record(bucket), DIRECTORY)


@pytest.mark.slow
def test_ten_thousand_buckets_make_a_page_that_opens_and_a_short_summary() -> None:
    large = "wrong " * 200
    record = a_record(*(bucket_of_its_own(number, message=large) for number in range(10_000)))
    shown = page(record, DIRECTORY)
    assert len(shown.encode()) < 1_000_000
    assert shown.count('class="cause"') == 200
    short = markdown(record, DIRECTORY)
    assert len(short.splitlines()) <= 100
    assert "and 9,990 more" in short


@pytest.mark.parametrize("name", ["campaign.json", "report.html", "summary.md"])
def test_a_file_that_cannot_be_written_keeps_no_other_from_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "in the way").mkdir(parents=True)
    record = a_record()
    write_reports(record, tmp_path)
    assert sum(path.is_file() for path in tmp_path.iterdir()) == 2
    assert record.warnings == [f"{tmp_path / name} was not written: IsADirectoryError: Is a directory"]
    if name != "campaign.json":
        assert CampaignRecord.load(tmp_path / "campaign.json").warnings == record.warnings


@pytest.mark.parametrize("subject", ["toy", "vllm+my.port"])
def test_a_written_record_can_be_read_again(tmp_path: Path, subject: str) -> None:
    # Names and statuses are held to rules when they are read; everything else may be any text.
    buckets = [a_bucket(3, message=HOSTILE, rule=HOSTILE)]
    plan = replace(hostile().plan, id="night", subject=subject, commit="")
    record = replace(hostile(), plan=plan, corpus=[], buckets=buckets)
    record.properties = [replace(row, status="passed") for row in record.properties]
    write_reports(record, tmp_path)
    assert CampaignRecord.load(tmp_path / "campaign.json") == record


def test_the_page_before_stays_where_a_new_one_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_reports(a_record(), tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr("statecheck.campaign.report._tables", lambda *_: 1 / 0)
    record = two_buckets()
    write_reports(record, tmp_path)
    assert path.read_bytes() == before
    assert "ZeroDivisionError" in record.warnings[0]


DIVIDE = "def divide(x, y):\n    return x // y\n"


def test_commands_name_what_differs_from_what_is_usual() -> None:
    plain = a_bucket(1, subject="impl", corpus="corpus/a-0000000001.json")
    assert commands(plain, on_a_cpu()) == (command_line("replay", "0000000001", device="cpu"),)
    fallback = a_bucket(1, subject="my.engine", corpus="reports/corpus/it's $1.json")
    path = Path("reports/corpus/it's $1.json")
    assert commands(fallback, on_a_cpu()) == (
        command_line("replay", path, subject="my.engine", device="cpu"),
    )


@pytest.fixture
def reported(tmp_path: Path) -> tuple[BucketRecord, Path]:
    """A bucket with everything that a campaign writes of it, of a subject whose fault is still there."""
    case = a_case(subject="toy_divides", actual=(Returned(2),), device="cpu")
    with module(tmp_path, "toy_divides", DIVIDE):
        folder = write_report(case, tmp_path / "reports", load("toy_divides"))
    file = case.save(tmp_path / "corpus" / "toys/divide-00000000ff.json")
    return a_bucket(255, case, corpus=str(file), report=folder.name), tmp_path


def test_the_page_links_the_report_and_has_the_commands(reported: tuple[BucketRecord, Path]) -> None:
    bucket, folder = reported
    record = a_record(bucket, reports=str(folder / "reports"))
    record.known = [replace(_SHOWN, link="https://example.org/1")]
    shown = page(record, folder / "reports" / "campaigns" / "one")
    assert '<a href="https://example.org/1">' in shown
    assert f'<a href="../../{bucket.report}/report.html">report</a>' in shown
    assert f"{folder}/reports/{bucket.report}/repro.py" in shown
