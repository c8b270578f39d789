"""`replay` on the implementation that a case is about, on another one, and of files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecheck.case.values import Function, Let, Value, call, record
from statecheck.cli import main as cli
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT, module
from tests.helpers.processes import run_fresh
from tests.helpers.slow import slow_after
from tests.unit.report.defects import DEFECTS, DefectiveModule, falsified, source


def replayed(path: Path, subject: str, device: str = "auto") -> int:
    return cli.main(["replay", str(path), "--subject", subject, "--device", device])


@pytest.mark.parametrize("defect", slow_after(5, DEFECTS), ids=lambda defect: defect.name)
def test_a_replay_fails_on_the_broken_implementation_and_passes_on_the_intact_one(
    tmp_path: Path, device: str, capsys: pytest.CaptureFixture[str], defect: DefectiveModule
) -> None:
    with module(tmp_path, defect.module, source(defect)) as name:
        path = falsified(name, device, *defect.steps).save(tmp_path / "case.json")
        codes = replayed(path, name, device), replayed(path, "impl", device)
    first, second = capsys.readouterr().out.splitlines()
    assert codes == (1, 0)
    assert (first.split(":")[0], second.split(":")[0]) == ("FAILED", "FIXED")


@pytest.mark.parametrize("function", ["divide", "copy_kernel"])
def test_a_replay_on_a_subject_that_lacks_the_function_is_not_applicable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], function: str
) -> None:
    launch = call("harness.launch", kernel="copy_kernel", grid=(1,), arguments={}, constexprs={})
    case = a_case() if function == "divide" else a_case(steps=(launch,))
    with module(tmp_path, "toy_empty", "") as name:
        assert replayed(case.save(tmp_path / "case.json"), name) == 2
    assert capsys.readouterr().out == f"NOT APPLICABLE: toy_empty has no {function}\n"


NO_CASE = {
    "empty": "",
    "no fields": "{}",
    "another schema": '{"schema": 99}',
    "a NUL": "\x00",
    "no file": None,
}


@pytest.mark.parametrize("text", NO_CASE.values(), ids=NO_CASE)
def test_a_replay_of_what_is_no_case_is_a_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    if text is not None:
        (tmp_path / "case.json").write_text(text, encoding="utf-8")
    assert replayed(tmp_path / "case.json", "impl") == 3
    assert capsys.readouterr().err.startswith("error: ")
    assert replayed(tmp_path, "impl") == 3
    assert replayed(a_case().save(tmp_path / "case.json"), "no_such_module") == 3


def test_a_replay_calls_documented_functions_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace"
    evil = a_case(steps=(call("os.system", command=f"touch {trace}"),))
    with module(tmp_path, "toy_with_os", "import os\n") as name:
        code = replayed(evil.save(tmp_path / "case.json"), name)
    assert (code, trace.exists()) == (3, False)
    assert "os.system" in capsys.readouterr().err


@pytest.mark.parametrize(
    "value",
    [Function("os.system"), [{"a": record("R", call=Function("os.system"))}]],
    ids=["alone", "inside"],
)
def test_a_replay_hands_over_documented_functions_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: Value
) -> None:
    steps = (Let("a", value), call("cdiv", x=5, y=2))
    case = a_case(steps=steps)
    with module(tmp_path, "toy_with_os", "import os\ndef cdiv(x, y): pass\n") as name:
        code = replayed(case.save(tmp_path / "case.json"), name)
    assert code == 3
    assert "os.system" in capsys.readouterr().err


ENDS_ITS_PROCESS = """
import os, sys
from statecheck.subject import Condition, KnownDeviation, Subject, Symptom

def divide(x, y):
    return 7

def end(case, profile):
    os._exit(0)

SYMPTOM = Symptom("value", "divide", "result", condition=Condition(outcome=end))
SUBJECT = Subject("toy_ending", sys.modules[__name__], (KnownDeviation("divide/exact", "a link", SYMPTOM),))
"""


def test_a_condition_that_ends_the_process_of_a_replay_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "toy_ending.py").write_text(ENDS_ITS_PROCESS, encoding="utf-8")
    path = a_case(subject="toy_ending", property_id="divide/exact").save(tmp_path / "case.json")
    # An interpreter of its own: what a fork of the test's process does at its end is not the command's.
    done = run_fresh(
        *("-m", "statecheck", "replay", path, "--subject", "toy_ending"),
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1
    assert f"ended with exit code 0 during the replay of {path}, before the replay was over" in done.stderr
