"""What people read of a campaign in the morning: the page and the summary, and how they are written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from statecheck.campaign.pages import summary, text
from statecheck.campaign.pages.page import page, write_reports
from statecheck.campaign.pages.text import PAGE, SUMMARY, Most
from statecheck.campaign.record import (
    BucketRecord,
    CampaignRecord,
    CorpusRecord,
    KnownRecord,
)
from statecheck.case import Case
from statecheck.case.values import Returned
from statecheck.report.files import write_report
from statecheck.util import command_lines
from statecheck.util.command_lines import command_line
from statecheck.util.text import visible
from subjects import load
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT, module
from tests.unit.campaign.nightly_examples import (
    EXAMPLES,
    HOSTILE,
    LAUNCHED,
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
FILES = Path(__file__).with_name("golden")
LOADING = {"script", "img", "link", "iframe", "object", "embed", "video", "audio", "base", "form"}
every_example = pytest.mark.parametrize("name", EXAMPLES)


def html(record: CampaignRecord, directory: Path = DIRECTORY) -> str:
    return page(record, directory)


def markdown(record: CampaignRecord, directory: Path = DIRECTORY, most: Most = SUMMARY) -> str:
    return text.markdown(record, directory, most)


def verdict_of(record: CampaignRecord) -> str:
    return summary.verdict(record).word


@every_example
def test_the_page_is_a_document_that_loads_nothing(name: str) -> None:
    text = html(EXAMPLES[name])
    root = parsed(text)
    attributes = [key for one in root.iter() for key in one.attrib]
    assert not LOADING & {one.tag.rpartition("}")[2] for one in root.iter()}
    assert not any(key.startswith("on") for key in attributes)
    assert not re.search(r"@import|url\((?!#)", text)
    levels = [int(tag) for tag in re.findall(r"<h([1-6])[ >]", text)]
    assert (levels[0], levels.count(1)) == (1, 1)


def golden_text(record: CampaignRecord) -> str:
    """The summary, and what the page is made of."""
    texts = (markdown(record), markdown(record, most=PAGE))
    return "\n".join(texts).replace(command_lines.python(), "python")


REPLAYED = [
    CorpusRecord(f"{verdict}.json", verdict, "")
    for verdict in ("FIXED", "NOT APPLICABLE", "UNREADABLE", "FAILED")
]
OLD = {"date": "2026-10-02", "commit": "aaaaaaaaaaaa"}
GOLDEN = {
    "canary-not-found": a_record(canary="", corpus=REPLAYED),
    "new-and-still-there": a_record(*two_buckets().buckets, bucket_of_its_own(3, first_seen=OLD)),
    "interrupted-on-a-cpu": on_a_cpu(complete=False, interrupted=True),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_page_and_the_summary_are_those_of_the_golden_file(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m tests.unit.campaign.nightly.test_page` writes the golden files."""
    for variable in (command_lines.COMMAND, command_lines.PYTHONPATH, command_lines.CHOSEN, "PYTHONPATH"):
        monkeypatch.delenv(variable, raising=False)
    assert golden_text(GOLDEN[name]) == (FILES / f"{name}.txt").read_text(encoding="utf-8")


_ERROR = a_property("b", status="ERROR", examples=0)
_UNTESTED = a_property("b", status="not tested", examples=0)
_GONE = KnownRecord("old", standing="no longer fails")
_SHOWN = KnownRecord("old", standing="showed", properties={"chunks/end": 3})


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


def test_a_scenario_in_a_release_s_own_engine_is_shown_with_its_calls() -> None:
    case = Case.load(ROOT / "docs" / "findings" / "one-token-prompt.json")
    message = text.smallest_input(a_bucket(1, case))
    assert message.startswith("LiveEngine(settings=LiveSettings(kinds=('gdn',), num_blocks=24")


def test_failures_at_the_same_call_and_place_are_one_entry() -> None:
    named = [a_bucket(number, property=f"property_{number}") for number in range(8)]
    record = a_record(*named, bucket_of_its_own(9, property="another"))
    assert summary.verdict(record).reasons[0] == "2 causes, 9 properties: 9 new."
    whole = markdown(record, most=PAGE)
    assert whole.count("smallest input:") == 2
    assert whole.count("failing examples, the first after") == 9
    lines = markdown(record).splitlines()
    (first,) = [number for number, line in enumerate(lines) if "and 2 more" in line]
    assert lines[first].startswith("  - 8 properties: property_0, property_1,")
    assert lines[first - 1].startswith("- **divide: the call** (new): the call = ")
    assert "-m statecheck replay 0000000000" in lines[first + 1]


def test_a_note_is_shown_without_emphasis() -> None:
    record = a_record(a_bucket(1, note="**It did not repeat.** A known defect is near."))
    for most in (SUMMARY, PAGE):
        assert "It did not repeat. A known defect is near." in markdown(record, most=most)


def test_failures_of_subjects_or_places_of_their_own_are_entries_of_their_own() -> None:
    elsewhere = a_bucket(2, subject="other")
    returned = a_case(actual=(Returned(1),), message="result = 1, but should be ValueError that names x")
    assert len(text.in_order(a_record(a_bucket(1), elsewhere, a_bucket(3, returned)))) == 3


def test_a_failure_is_new_unless_an_earlier_campaign_has_met_it() -> None:
    record = a_record(a_bucket(1, first_seen=OLD), bucket_of_its_own(2), bucket_of_its_own(3, first_seen={}))
    assert summary.verdict(record).reasons[0].endswith("(3 failures): 2 new.")
    assert [group.buckets[0].id[-1] for group in text.in_order(record)] == ["2", "3", "1"]
    assert "(since 2026-10-02 aaaaaaaaaaaa)" in markdown(record)


def test_a_failure_is_not_new_if_its_case_was_in_the_corpus_before() -> None:
    replayed = CorpusRecord(file=f"some_property-{a_bucket(1).id}.json", verdict="FAILED", message="")
    record = a_record(a_bucket(1), bucket_of_its_own(2), corpus=[replayed])
    assert summary.verdict(record).reasons[0].endswith(": 1 new.")


def test_a_case_that_cannot_be_read_costs_no_page() -> None:
    bucket = a_bucket(1)
    bucket.case["schema"] = 99
    whole = markdown(a_record(bucket), most=PAGE)
    assert "-m statecheck replay 0000000001 --subject toy --device cuda" in whole
    assert "smallest input" not in whole


def test_what_is_hostile_stays_text() -> None:
    shown = html(hostile())
    assert "<script" not in shown
    assert "{{ 7 * 7 }}" in shown
    assert "\\x00\\x1b[31m\\ud800\\ufffe\\u202e" in shown
    assert visible(shown) == shown


def test_the_summary_escapes_what_tables_and_code_are_made_of() -> None:
    shown = markdown(hostile())
    cells = [line for line in shown.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in cells)
    outside = "".join(line.partition("`")[0] for line in shown.splitlines() if "Everything else" not in line)
    assert "<script" not in re.sub(r"\\<", "", outside)
    assert visible(shown) == shown


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
        "warnings": ["t"] * 50,
        "canary": "",
        "complete": False,
        "launched": LAUNCHED * 50,
    }
    shown = markdown(a_record(*buckets, **changes))
    assert len(shown.splitlines()) <= 75
    assert "and 40 more" in shown


@pytest.mark.slow
def test_ten_thousand_buckets_make_a_page_that_opens() -> None:
    large = "wrong " * 200
    record = a_record(*(bucket_of_its_own(number, message=large) for number in range(10_000)))
    shown = html(record)
    assert len(shown.encode()) < 1_000_000
    assert shown.count("smallest input") == 200


@pytest.mark.parametrize("name", ["campaign.json", "report.html", "summary.md"])
def test_a_file_that_cannot_be_written_keeps_no_other_from_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "in the way").mkdir(parents=True)
    record = a_record()
    write_reports(record, tmp_path)
    assert sum(one.is_file() for one in tmp_path.iterdir()) == 2
    assert record.warnings == [f"{tmp_path / name} was not written: IsADirectoryError: Is a directory"]
    if name != "campaign.json":
        assert CampaignRecord.load(tmp_path / "campaign.json").warnings == record.warnings


@every_example
def test_three_files_are_written(tmp_path: Path, name: str) -> None:
    record = EXAMPLES[name]
    warnings = list(record.warnings)
    path = write_reports(record, tmp_path / "campaigns" / "one")
    assert path == tmp_path / "campaigns" / "one" / "report.html"
    names = sorted(one.name for one in path.parent.iterdir())
    assert names == ["campaign.json", "report.html", "summary.md"]
    assert record.warnings == warnings


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    # Names and statuses are held to rules when they are read; everything else may be any text.
    buckets = [a_bucket(3, message=HOSTILE, rule=HOSTILE)]
    plan = replace(hostile().plan, id="night", subject="toy", commit="")
    record = replace(hostile(), plan=plan, corpus=[], buckets=buckets)
    record.properties = [replace(row, status="passed") for row in record.properties]
    write_reports(record, tmp_path)
    assert CampaignRecord.load(tmp_path / "campaign.json") == record


def test_the_page_before_stays_where_a_new_one_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_reports(a_record(), tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr("statecheck.campaign.pages.text._tables", lambda *_: 1 / 0)
    record = two_buckets()
    write_reports(record, tmp_path)
    assert path.read_bytes() == before
    assert "ZeroDivisionError" in record.warnings[0]


DIVIDE = "def divide(x, y):\n    return x // y\n"


def test_commands_name_what_differs_from_what_is_usual() -> None:
    plain = a_bucket(1, subject="impl", corpus="corpus/a-0000000001.json")
    assert text.commands(plain, on_a_cpu(), Path("reports")) == (
        command_line("replay", "0000000001", device="cpu"),
    )
    fallback = a_bucket(1, subject="my.engine", corpus="reports/corpus/it's $1.json")
    path = Path("reports/corpus/it's $1.json")
    assert text.commands(fallback, on_a_cpu(), Path("reports")) == (
        command_line("replay", path, subject="my.engine", device="cpu"),
    )


@pytest.fixture
def reported(tmp_path: Path) -> tuple[BucketRecord, Path]:
    """A bucket with everything that a campaign writes of it, of a subject whose fault is still there."""
    case = a_case(subject="toy_divides", actual=(Returned(2),), device="cpu")
    with module(tmp_path, "toy_divides", DIVIDE):
        folder = write_report(case, tmp_path / "reports", load("toy_divides").module)
    file = case.save(tmp_path / "corpus" / "toys/divide-00000000ff.json")
    return a_bucket(255, case, corpus=str(file), report=folder.name), tmp_path


def test_the_page_links_the_report_and_has_the_commands(reported: tuple[BucketRecord, Path]) -> None:
    bucket, folder = reported
    shown = html(a_record(bucket), directory=folder / "reports" / "campaigns" / "one")
    assert f'<a href="../../{bucket.report}/report.html">report</a>' in shown
    assert f"{folder}/reports/{bucket.report}/repro.py" in shown


if __name__ == "__main__":
    FILES.mkdir(exist_ok=True)
    for name, record in GOLDEN.items():
        (FILES / f"{name}.txt").write_text(golden_text(record), encoding="utf-8")
