"""A case or record is data: a malformed file is refused by name before a file is written, and the others count."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from statecheck.campaign.corpus import Corpus, replayed
from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.case import Case
from statecheck.case.values import call
from statecheck.cli import main as cli
from statecheck.report.scripts.script import repro_script
from tests.helpers.cases import a_case, subject_of, toy
from tests.helpers.hostile_records import CASES, FILES, INJECTIONS, MARKER, RECORDS, Hostile, HostileFile
from tests.helpers.processes import run_fresh
from tests.unit.campaign.nightly_examples import a_bucket, a_record

cases = pytest.mark.parametrize("hostile", CASES, ids=lambda hostile: hostile.tries)
records = pytest.mark.parametrize("hostile", RECORDS, ids=lambda hostile: hostile.tries)
some_records = pytest.mark.parametrize("hostile", RECORDS[::6], ids=lambda hostile: hostile.tries)


def written(path: Path, hostile: Hostile) -> Path:
    """The file with what is hostile in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = hostile.text
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@cases
def test_a_malformed_case_is_refused_by_file_place_value_and_rule(tmp_path: Path, hostile: Hostile) -> None:
    path = written(tmp_path / "case.json", hostile)
    with pytest.raises(ValueError, match=r"but should|JSON") as refused:
        Case.load(path)
    assert hostile.refused in str(refused.value)
    assert str(path) in str(refused.value)
    # Whatever the value is, people have to read the sentence.
    assert len(str(refused.value)) < len(str(path)) + 1000


@cases
def test_a_malformed_case_is_reported_and_the_rest_of_the_corpus_is_replayed(
    tmp_path: Path, hostile: Hostile
) -> None:
    written(tmp_path / "a.json", hostile)
    a_case().save(tmp_path / "b.json")
    first, second = Corpus(tmp_path).entries()
    replay, _ = replayed(first, "impl", "cpu")
    assert (replay.file, replay.verdict) == ("a.json", "UNREADABLE")
    assert hostile.refused in replay.message
    assert second.case == a_case()


@pytest.mark.parametrize("hostile", FILES, ids=lambda hostile: hostile.tries)
def test_a_path_that_is_no_file_of_a_case_is_reported_and_the_rest_is_read(
    tmp_path: Path, hostile: HostileFile
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    hostile.make(folder / "a.json")
    a_case().save(folder / "b.json")
    first, second = Corpus(folder).entries()
    assert (first.case, second.case) == (None, a_case())
    assert hostile.refused in first.problem
    assert "token" not in first.problem


@records
def test_a_malformed_record_is_refused_by_file_place_value_and_rule(tmp_path: Path, hostile: Hostile) -> None:
    path = written(tmp_path / FILE, hostile)
    with pytest.raises(ValueError, match=r"but should|JSON") as refused:
        CampaignRecord.load(path)
    assert hostile.refused in str(refused.value)
    assert str(path) in str(refused.value)


@some_records
def test_a_malformed_record_is_not_merged_and_no_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], hostile: Hostile
) -> None:
    written(tmp_path / "from" / FILE, hostile)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    before = everything(tmp_path)
    assert cli.main(["merge", "../from"]) == 3
    assert everything(tmp_path) == before
    assert hostile.refused in capsys.readouterr().err


@pytest.mark.parametrize("hostile", INJECTIONS, ids=lambda hostile: hostile.tries)
def test_a_record_whose_case_is_hostile_makes_no_report_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: Hostile
) -> None:
    bucket = a_bucket(case=a_case())
    bucket.case = json.loads(hostile.text)
    a_record(bucket).save(tmp_path / "from" / FILE)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert cli.main(["merge", "../from"]) == 1
    found = everything(tmp_path)
    assert not [name for name in found if MARKER in name or name.endswith(("repro.py", "case.json"))]
    (whole,) = Path("reports").rglob(FILE)
    assert any(hostile.refused in warning for warning in CampaignRecord.load(whole).warnings)


@pytest.mark.parametrize("hostile", FILES, ids=lambda hostile: hostile.tries)
def test_a_path_that_is_no_file_of_a_record_is_left_out_of_a_merge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hostile: HostileFile
) -> None:
    (tmp_path / "from" / "a").mkdir(parents=True)
    hostile.make(tmp_path / "from" / "a" / FILE)
    a_record().save(tmp_path / "from" / "b" / FILE)
    places = ["--reports", str(tmp_path / "reports"), "--corpus", str(tmp_path / "corpus")]
    assert cli.main(["merge", str(tmp_path / "from"), *places]) == 2
    assert f"left out: {tmp_path / 'from' / 'a' / FILE}" in capsys.readouterr().err


def test_a_class_that_the_subject_only_imports_is_not_built() -> None:
    assert type(toy(Path=Path).construct("Path", {"x": 1})) is SimpleNamespace


def test_a_script_calls_nothing_that_the_subject_only_imports(tmp_path: Path) -> None:
    (tmp_path / "imports_system.py").write_text("from os import system\n", encoding="utf-8")
    case = a_case(subject="imports_system", steps=(call("system", command=f"touch {MARKER}"),))
    script = tmp_path / "repro.py"
    script.write_text(repro_script(case, tmp_path, subject_of(case)), encoding="utf-8")
    done = run_fresh(script, cwd=tmp_path)
    assert done.returncode == 2
    assert "<built-in function system> is no function of the project" in done.stdout
    assert not (tmp_path / MARKER).exists()
