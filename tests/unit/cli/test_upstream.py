"""`statecheck upstream` writes a plain test of a case, which was seen to fail."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.values import Returned, Tensor, call
from statecheck.cli.main import main
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT
from tests.helpers.processes import run_fresh

OFFSETS = Returned(Tensor("int64", (2,), (0, 0)))


def a_case_of_offsets(tmp_path: Path) -> Path:
    """A case of the port that counts a chunk too many, as a campaign saves it."""
    steps = (call("prepare_chunk_offsets", cu_seqlens=Tensor("int32", (2,), (0, 0)), chunk_size=64),)
    failing = replace(
        a_case(steps=steps),
        subject="examples.off_by_one",
        expected=(OFFSETS,),
        actual=(Returned(Tensor("int64", (2,), (0, 1))),),
    )
    assert failing.failure is not None
    failure = replace(
        failing.failure, kind="value", call=0, function="prepare_chunk_offsets", place="result[1]"
    )
    path = tmp_path / "case.json"
    replace(failing, failure=failure).save(path)
    return path


@pytest.mark.slow
def test_a_case_of_a_port_becomes_a_test_that_fails_until_the_port_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    out = tmp_path / "test_it.py"
    path = str(a_case_of_offsets(tmp_path))
    assert main(["upstream", path, "--subject", "examples.off_by_one", "--out", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert "off_by_one.chunk_offsets(cu_seqlens=[0, 0], chunk_size=64)" in text
    assert "statecheck" not in text
    assert len(text.splitlines()) <= 40
    right = tmp_path / "right"
    right.mkdir()
    repaired = text.replace("off_by_one", "right_offsets").replace("from examples", "from tests.unit.cli")
    (right / "test_it.py").write_text(repaired, encoding="utf-8")
    command = ("-m", "pytest", "-c", os.devnull, "-q", "-p", "no:cacheprovider", "test_it.py")
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    found = run_fresh(*command, cwd=right, env=environment)
    assert found.returncode == 0, found.stdout


def test_a_test_that_does_not_fail_here_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    path = a_case_of_offsets(tmp_path)
    assert main(["upstream", str(path), "--subject", "tests.unit.cli.right_offsets"]) == 3
    assert "but should be one that fails on this subject" in capsys.readouterr().err


def test_a_scenario_of_an_engine_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upstream", str(ROOT / "docs/findings/copy-of-a-copy.json")]) == 3
    assert "a scenario runs in an engine around a forward of statecheck's own" in capsys.readouterr().err


def test_a_failure_that_no_single_call_shows_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case.load(a_case_of_offsets(tmp_path))
    assert case.failure is not None
    replace(case, failure=replace(case.failure, call=None)).save(tmp_path / "case.json")
    line = ["upstream", str(tmp_path / "case.json"), "--subject", "tests.unit.cli.right_offsets"]
    assert main(line) == 3
    assert "no single call shows the failure" in capsys.readouterr().err
