"""The reader of expected failures reads the output of `xfails`, whatever a record and a port say."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from statecheck.campaign.plan import Plan
from statecheck.campaign.record import BucketRecord, CampaignRecord
from statecheck.case import Case
from statecheck.case.failure import stated
from statecheck.case.values import Returned, call
from statecheck.cli import main as cli
from statecheck.cli.conform import RESULT, _write_result
from statecheck.execution.registry import load_properties
from statecheck.execution.selection import require_declared_properties
from statecheck.execution.verdict import CLEAN, MISCONFIGURED
from statecheck.report.failure import headline
from statecheck.subject import load
from statecheck.subject.known import declared_in
from tests.helpers.cases import a_case
from tests.unit.campaign.nightly_examples import bucket_with

PORT = "examples.off_by_one"
OFFSETS = a_case(
    property_id="fla-chunks/offsets",
    subject=PORT,
    steps=(call("prepare_chunk_offsets", cu_seqlens=[0, 0], chunk_size=64),),
    expected=(Returned([0, 0]),),
    actual=(Returned([0, 1]),),
    failure=stated(
        "result[1] = 1",
        "should be 0",
        place="result[1]",
        function="prepare_chunk_offsets",
        call=0,
        shown="chunk_offsets()",
    ),
)
TEXTS = {
    "emoji": "wrong \U0001f600 state",
    "controls": "a\x00b\x1b[31m\x7f\x85\u2028",
    "lines": "a\nb\r\nc\td",
    "quotes": "\"\"\" ''' \\ \\u0041",
    "half a surrogate pair": "a\ud800b\udfff",
    "brackets": "[[known]]\nid = 'x'",
}


def saying(message: str) -> Case:
    assert OFFSETS.failure is not None
    return replace(OFFSETS, failure=replace(OFFSETS.failure, observed=message))


def bucket(message: str = "wrong", id_: str = "", subject: str = PORT) -> BucketRecord:
    found = replace(bucket_with(saying(message)), subject=subject)
    return replace(found, id=id_ or found.id)


def campaign(folder: Path, *buckets: BucketRecord, subject: str = PORT) -> Path:
    record = CampaignRecord(Plan("night", subject), buckets=list(buckets))
    return record.save(folder / "campaign.json")


def update(folder: Path) -> tuple[int, Path]:
    file = folder / "statecheck-xfails.toml"
    return cli.main(
        ["xfails", "--campaign", str(folder / "campaign.json"), "--file", str(file), "--update"]
    ), file


def completed(file: Path) -> Path:
    """The file with the reasons that its author adds."""
    text = file.read_text(encoding="utf-8")
    file.write_text(
        text.replace('why = ""', 'why = "so"').replace('link = ""', 'link = "issue 1"'), encoding="utf-8"
    )
    return file


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_an_entry_is_read_again_whatever_the_failure_says(tmp_path: Path, text: str) -> None:
    campaign(tmp_path, bucket(text))
    code, file = update(tmp_path)
    assert code == CLEAN
    [(known, _)] = declared_in(completed(file))
    assert known.title == headline(saying(text))
    assert "chunk_offsets" in known.title


def test_an_entry_names_the_port_s_own_function_and_its_properties_call_it(tmp_path: Path) -> None:
    campaign(tmp_path, bucket())
    _, file = update(tmp_path)
    [entry] = tomllib.loads(file.read_text(encoding="utf-8"))["known"]
    assert entry["symptoms"][0]["function"] == "chunk_offsets"
    subject = load(PORT)
    [known] = subject.declared_in(completed(file))
    subject.known_deviations = (known,)
    require_declared_properties(subject)
    assert known.fitting(OFFSETS)


@pytest.mark.slow
def test_a_port_s_function_behind_several_documented_ones_can_be_declared(tmp_path: Path) -> None:
    """`state_shapes` answers for six functions, of which each property calls some."""
    subject = load("examples.numpy_port")
    assert len(subject.documented_names("state_shapes")) == 6
    file = tmp_path / "xfails.toml"
    tested = load_properties()
    shaped = next(
        row for row in tested.values() if "MambaStateShapeCalculator.mamba1_state_shape" in row.functions
    )
    file.write_text(
        f'[[known]]\nid = "a"\ntitle = "b"\nproperties = ["{shaped.id}"]\nversions = ">=0"\nlink = "c"\nwhy = "d"\n'
        '[[known.symptoms]]\nkind = "value"\nfunction = "state_shapes"\nplace = "result"\n'
    )
    [known] = subject.declared_in(file)
    assert len(known.shown_by[0].function) == 6


def test_a_port_that_cannot_be_imported_has_the_documents_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign(tmp_path, bucket(subject="no_such_port"), subject="no_such_port")
    code, file = update(tmp_path)
    [entry] = tomllib.loads(file.read_text(encoding="utf-8"))["known"]
    assert (code, entry["symptoms"][0]["function"]) == (CLEAN, "prepare_chunk_offsets")
    assert "no_such_port" in capsys.readouterr().err


def test_a_declared_defect_is_not_added_again_and_earlier_entries_stay(tmp_path: Path) -> None:
    campaign(tmp_path, bucket(TEXTS["emoji"]))
    _, file = update(tmp_path)
    before = file.read_bytes()
    assert update(tmp_path)[0] == CLEAN
    assert file.read_bytes() == before
    campaign(tmp_path, bucket(), bucket(id_="0123456789"))
    update(tmp_path)
    assert file.read_bytes().startswith(before)
    assert len(declared_in(completed(file))) == 2


def test_buckets_whose_ids_begin_alike_have_an_entry_each(tmp_path: Path) -> None:
    campaign(tmp_path, bucket(id_="0123456789"), bucket(id_="012345abcd"))
    _, file = update(tmp_path)
    assert len({known.id for known, _ in declared_in(completed(file))}) == 2


@pytest.mark.parametrize(
    "content", [b"not = [toml", b"\xff\xfe", None], ids=["no TOML", "no UTF-8", "a folder"]
)
def test_a_file_that_is_no_file_of_entries_is_refused_and_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    campaign(tmp_path, bucket())
    file = tmp_path / "statecheck-xfails.toml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    assert update(tmp_path)[0] == MISCONFIGURED
    assert str(file) in capsys.readouterr().err
    assert content is None or file.read_bytes() == content


def test_a_failure_whose_case_cannot_be_read_costs_the_others_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign(tmp_path, replace(bucket(id_="0000000000"), case={"schema": 99}), bucket())
    code, file = update(tmp_path)
    assert (code, len(declared_in(completed(file)))) == (CLEAN, 1)
    assert "0000000000" in capsys.readouterr().err


# What `conform` does with files.


def test_expected_failures_that_are_not_there_yet_are_none_and_are_noted_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []

    def run_campaign(plan: Plan, *_: object, **__: object) -> int:
        plans.append(plan)
        return CLEAN

    monkeypatch.setattr("statecheck.cli.conform.run_campaign", run_campaign)
    missing = tmp_path / "statecheck-xfails.toml"
    assert cli.main(["conform", "--subject", PORT, "--device", "cpu", "--xfails", str(missing)]) == CLEAN
    assert [plan.xfails for plan in plans] == [""]
    assert f"note: {missing} is not there: no failure is expected" in capsys.readouterr().out


def written(folder: Path) -> tuple[CampaignRecord, str]:
    """The result that `conform` writes beside the record of a campaign."""
    record = CampaignRecord(Plan("night", PORT, profile="functions"), warnings=["half \ud800 a letter"])
    out = Console(record=True, width=500)
    folder.mkdir(exist_ok=True)
    _write_result(out, SimpleNamespace(current=lambda: record), folder)
    return record, out.export_text()


def test_a_step_summary_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    _, printed = written(tmp_path / "out")
    assert f"warning: {tmp_path} could not be written: Is a directory" in printed
    assert (tmp_path / "out" / RESULT).is_file()


def test_a_result_that_cannot_be_written_is_a_warning_and_the_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "out" / RESULT).mkdir(parents=True)
    _, printed = written(tmp_path / "out")
    assert f"warning: {tmp_path / 'out' / RESULT} could not be written" in printed
    assert (tmp_path / "out" / "junit.xml").is_file()
