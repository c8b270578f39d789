"""The command `sanitize-gpu`, with a compute-sanitizer that prints what a test tells it to, and runs that go wrong halfway."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from statecheck.case import Case
from statecheck.cli.sanitize_gpu import add_sanitize_gpu
from statecheck.execution import verdict
from statecheck.execution.example import Bench
from statecheck.workers.compute_sanitizer import replay as sanitize_gpu_replay
from statecheck.workers.compute_sanitizer.tool import ERROR_EXITCODE, ComputeSanitizer
from tests.workers.test_launch_recording import DOCUMENTED, KERNEL, chunks, of, record, recorded
from tests.workers.test_sanitizer_logs import DIED, IN_TORCH, OUT_OF_BOUNDS

FAKE = """#!/bin/sh
'''exec' '{python}' "$0" "$@"
' '''
import json, os, subprocess, sys, time
arguments = sys.argv[1:]
if "--help" in arguments:
    sys.exit(print("  --tool arg\\n  --print-limit arg\\n  --error-exitcode arg\\n  --show-backtrace arg"))
if "--version" in arguments:
    sys.exit(print("NVIDIA (R) Compute Sanitizer\\nVersion 2025.1.0.0 (build 1)"))
plan = json.load(open({plan!r}))
tool = arguments[arguments.index("--tool") + 1]
skip = int(arguments[arguments.index("--skip") + 1])
cases = open(arguments[-1].removeprefix("@")).read().splitlines()
with open({calls!r}, "a") as calls:
    print(json.dumps([arguments, os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING")]), file=calls)
print("========= COMPUTE-SANITIZER", flush=True)
if plan == "really":
    command = arguments[arguments.index({python!r}):]
    code = subprocess.call([*command[:-1], "--device", "cpu", command[-1]])
    print("========= ERROR SUMMARY: 0 errors")
    sys.exit(code)
found = 0
for number in range(skip, len(cases)):
    what = plan.get(f"{{tool}} {{number}}", "")
    if what == "unable":
        sys.exit(1)
    print(f"CASE {{number}} {{cases[number]}}", flush=True)
    if what == "hang":
        time.sleep(60)
    if what == "crash":
        os.abort()
    if what:
        found += 1
        print(what)
    if "launch failure" in what:
        print(f"DEAD {{number}} CUDA error")
        print("========= ERROR SUMMARY: 2 errors")
        sys.exit({code})
    print(f"DONE {{number}}")
print(f"========= ERROR SUMMARY: {{found}} errors")
sys.exit({code} if found else 0)
"""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    output: str
    folder: Path

    @property
    def calls(self) -> list[tuple[list[str], str | None]]:
        """Arguments of compute-sanitizer, and what it finds in the environment."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [(arguments, caching) for arguments, caching in map(json.loads, lines)]

    @property
    def written(self) -> Any:
        return json.loads((self.folder / "out/findings.json").read_text())

    @property
    def ended(self) -> dict[str, dict[str, str]]:
        return {run["tool"]: run["ended"] for run in self.written["tools"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three cases and a compute-sanitizer, on a machine that says to have a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    case = recorded(DOCUMENTED)[0][0]
    for number in range(3):
        replace(case, seed=number).save(tmp_path / f"cases/{number}.json", durable=False)
    return tmp_path


def install(folder: Path, plan: object) -> None:
    """A compute-sanitizer that follows the plan: what happens in which case under which tool."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "plan").write_text(json.dumps(plan))
    names = {"plan": str(folder / "plan"), "calls": str(folder / "calls")}
    program = folder / "bin/compute-sanitizer"
    program.write_text(FAKE.format(python=sys.executable, code=ERROR_EXITCODE, **names))
    program.chmod(0o755)


def command(folder: Path, *options: str, plan: object = None) -> Ended:
    """Run the command in this process."""
    install(folder, plan or {})
    parser = argparse.ArgumentParser()
    add_sanitize_gpu(parser.add_subparsers())
    asked = parser.parse_args(["sanitize-gpu", "--out", "out", *options])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = asked.run(asked)
    return Ended(code, printed.getvalue(), folder)


def test_cases_without_a_finding_are_clean(folder: Path) -> None:
    run = command(folder, "cases")
    assert run.code == verdict.CLEAN
    assert "no finding of memcheck, initcheck in 3 whole cases" in run.output
    (memcheck, caching), (initcheck, _) = run.calls
    assert (memcheck[:2], initcheck[:2]) == (["--tool", "memcheck"], ["--tool", "initcheck"])
    # Each tensor gets an allocation of its own; options that this version does not know are left out.
    assert caching == "1"
    assert "--error-exitcode" in memcheck
    assert "--padding" not in memcheck


def test_memcheck_gets_room_between_allocations_where_it_can() -> None:
    known = ComputeSanitizer("compute-sanitizer", "", frozenset({"--padding"}))
    assert known.command("memcheck")[-2:] == ["--padding", "4096"]
    assert known.command("initcheck")[-1] == "initcheck"


PLANS: dict[str, tuple[dict[str, str], int, dict[str, str], str]] = {
    "in kernels of others": (
        {"memcheck 0": IN_TORCH},
        verdict.CLEAN,
        {"0": "done", "1": "done", "2": "done"},
        "memcheck: in other kernels 1",
    ),
    "a case that kills the context": (
        {"memcheck 0": f"{OUT_OF_BOUNDS}\n{DIED}"},
        verdict.FALSIFIED,
        {"0": "dead", "1": "done", "2": "done"},
        "1 finding of memcheck in 2 whole cases",
    ),
    "a case that crashes": (
        {"memcheck 1": "crash"},
        verdict.INCOMPLETE,
        {"0": "done", "1": "crashed", "2": "done"},
        "INCOMPLETE: memcheck: crashed: ",
    ),
    "a crash in the last case counts for less than a finding": (
        {"memcheck 0": OUT_OF_BOUNDS, "memcheck 2": "crash"},
        verdict.FALSIFIED,
        {"0": "done", "1": "done", "2": "crashed"},
        "INCOMPLETE: memcheck: crashed: ",
    ),
    "a tool that begins no case is not tried for ever": (
        {"memcheck 0": "unable"},
        verdict.INCOMPLETE,
        {},
        "no case was begun, exit code 1",
    ),
    "errors that were not printed": (
        {"memcheck 0": f"{IN_TORCH}\n========= ERROR SUMMARY: 40 errors were not printed"},
        verdict.INCOMPLETE,
        {"0": "done", "1": "done", "2": "done"},
        "40 errors were not printed",
    ),
}


@pytest.mark.parametrize(("plan", "code", "ended", "said"), PLANS.values(), ids=PLANS)
def test_a_run_says_how_each_case_ended(
    folder: Path, plan: dict[str, str], code: int, ended: dict[str, str], said: str
) -> None:
    run = command(folder, "cases", "--tools", "memcheck", plan=plan)
    assert (run.code, run.ended["memcheck"]) == (code, ended)
    assert said in run.output


def test_a_finding_is_shown_and_saved_with_its_case(folder: Path) -> None:
    run = command(folder, "cases", plan={"memcheck 1": OUT_OF_BOUNDS})
    assert run.code == verdict.FALSIFIED
    assert "align.py:88" in run.output
    assert "-m statecheck sanitize-gpu cases/1.json" in run.output
    (found,) = run.written["tools"][0]["findings"]
    path = str(folder / "cases/1.json")
    assert (found["tool"], found["kernel"], found["case"]) == ("memcheck", KERNEL, path)
    # Logs of the run before do not count.
    assert command(folder, "cases").code == verdict.CLEAN


@pytest.mark.slow
def test_what_was_found_before_the_time_is_up_is_kept(folder: Path) -> None:
    plan = {"memcheck 0": OUT_OF_BOUNDS, "memcheck 1": "hang"}
    run = command(folder, "cases", "--tools", "memcheck", "--timeout", "2s", plan=plan)
    assert run.ended["memcheck"] == {"0": "done", "1": "timed out"}
    assert (run.code, KERNEL in run.output) == (verdict.FALSIFIED, True)
    assert f"not run: {folder / 'cases/2.json'}" in run.output


def test_cases_are_really_run(folder: Path) -> None:
    run = command(folder, "cases", "--tools", "memcheck", plan="really")
    assert (run.code, run.ended["memcheck"]) == (verdict.CLEAN, {"0": "done", "1": "done", "2": "done"})


def test_a_call_that_raises_and_should_not_is_noted(
    trial: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising = "def compute_varlen_chunk_metadata(*_):\n    raise RuntimeError('two\\nlines')\n"
    (folder / "raising_subject.py").write_text(raising)
    monkeypatch.syspath_prepend(str(folder))
    ((case,), _) = record(of(st.just(1), lambda trial, drawn: trial.agrees(chunks(drawn))))
    path = case.save(folder / "case.json", durable=False)
    sanitize_gpu_replay.main(["--device", trial.port.device, "--subject", "raising_subject", str(path)])
    output = capsys.readouterr().out
    assert "DONE 0 compute_varlen_chunk_metadata raised RuntimeError: two lines" in output


@pytest.mark.slow
def test_a_case_that_calls_an_undocumented_function_is_not_run(folder: Path) -> None:
    case = Case.load(folder / "cases/0.json")
    steps = tuple(replace(one, function="os.getcwd") if one in case.calls else one for one in case.steps)
    replace(case, steps=steps).save(folder / "cases/0.json")
    run = command(folder, "cases/0.json", "--tools", "memcheck", plan="really")
    assert (run.code, run.ended["memcheck"]["0"]) == (verdict.INCOMPLETE, "failed")


@pytest.mark.slow
def test_a_case_of_functions_that_the_subject_lacks_is_left_out(folder: Path) -> None:
    (folder / "bare_subject.py").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder))
        run = command(
            folder, "cases/0.json", "--subject", "bare_subject", "--tools", "memcheck", plan="really"
        )
    assert run.ended["memcheck"] == {"0": "skipped"}
    assert "bare_subject has no " in run.output


def test_without_cases_those_of_reports_and_recorded_examples_are_run(folder: Path) -> None:
    Case.load(folder / "cases/0.json").save(folder / "reports/2026-01-01-x/case.json")
    run = command(folder, "--only", DOCUMENTED, "--examples", "2", "--seed", "3")
    assert run.written["cases"][0] == str(folder / "reports/2026-01-01-x/case.json")
    assert len(run.written["cases"]) == 1 + len(list((folder / "out/cases").glob("*.json"))) == 3
    assert "recorded examples of 1 properties, seed 3" in run.output


def test_a_file_of_a_folder_that_is_no_case_is_left_out(folder: Path) -> None:
    (folder / "cases/campaign.json").write_text("{}")
    run = command(folder, "cases")
    assert (run.code, len(run.written["cases"])) == (verdict.CLEAN, 3)
    assert any("campaign.json" in reason for reason in run.written["skipped"])


def refused(folder: Path, *options: str) -> str:
    with pytest.raises(ValueError, match=", but should ") as error:
        command(folder, *options)
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tools", "memchekc"), "memchekc"),
        (("--examples", "-1"), "-1"),
        (("--timeout", "0s"), "0s"),
        (("--only", "zzz"), "zzz"),
        (("none.json",), "none.json', but should be a case"),
        (("empty",), "cases = []"),
    ],
)
def test_what_cannot_be_run_is_refused(folder: Path, options: tuple[str, ...], message: str) -> None:
    (folder / "none.json").write_text("{}")
    (folder / "empty").mkdir()
    assert message in refused(folder, *options)


def test_a_machine_without_a_gpu_or_the_tool_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "a GPU that torch finds" in refused(folder, "cases")
    monkeypatch.setenv("PATH", str(folder / "empty"))
    assert "should be on PATH" in refused(folder, "cases")
