"""The command `sanitize-gpu`: recording without a subject, logs as findings, and runs that go wrong halfway."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from statecheck.case import Case
from statecheck.case.values import call, int32
from statecheck.cli.sanitize_gpu import add_sanitize_gpu
from statecheck.diagnose.rerun import replay
from statecheck.execution import exit_codes
from statecheck.execution.example import Bench, Trial
from statecheck.execution.port import InProcess
from statecheck.execution.registry import Property, load_properties
from statecheck.subject import is_engine
from statecheck.workers.compute_sanitizer import replay as sanitize_gpu_replay
from statecheck.workers.compute_sanitizer.parse import Parsed, parse
from statecheck.workers.compute_sanitizer.record import LaunchRecorder, Recorded, launches
from statecheck.workers.compute_sanitizer.start import kernel_names
from statecheck.workers.compute_sanitizer.tool import ERROR_EXITCODE, ComputeSanitizer
from statecheck.workers.global_sanitizer import tool as global_sanitizer
from subjects import load

SEED = 3
DOCUMENTED = "the_kernel_that_stores_states_may_be_launched_as_documented"
PRECOPY = "a_state_is_precopied_to_the_column_where_its_request_goes_on"
KERNEL = "postprocess_mamba_fused_kernel"
LAUNCHING = sorted(
    name for name, one in load_properties().items() if one.launches and not any(map(is_engine, one.functions))
)

# Recording.


@lru_cache
def recorded(name: str) -> Recorded:
    return LaunchRecorder(load("impl"), "cuda", SEED).record(load_properties()[name], 1)


def of(strategy: st.SearchStrategy[Any], body: Any) -> Property:
    """A property that is not registered."""
    return replace(load_properties()[DOCUMENTED], body=body, strategies={"drawn": strategy})


def record(tested: Property, examples: int = 2) -> Recorded:
    return LaunchRecorder(load("impl"), "cuda", SEED).record(tested, examples)


@pytest.mark.parametrize("name", LAUNCHING)
def test_a_property_that_launches_kernels_is_recorded_as_a_case_that_launches(name: str) -> None:
    tested = load_properties()[name]
    assert recorded(name).cases
    assert not recorded(name).skipped
    assert tested.kind == "refusal" or launches(tested, recorded(name).cases[0])


@pytest.mark.parametrize("name", LAUNCHING[::4])
def test_a_recorded_case_is_one_that_the_subject_answers_by_the_rules(trial: Bench, name: str) -> None:
    for guards in (True, False):
        port = InProcess(load("impl"), trial.port.device, guards=guards)
        assert replay(recorded(name).cases[0], port) is None


def test_a_seed_records_the_same_cases_again_and_they_differ(tmp_path: Path) -> None:
    first = record(load_properties()[PRECOPY], 3)
    assert record(load_properties()[PRECOPY], 3) == first
    assert len({case.digest for case in first.cases}) == 3
    assert [Case.load(path) for path in first.save(tmp_path)] == first.cases


def test_an_example_that_fails_without_a_subject_is_skipped_and_counted() -> None:
    def body(trial: Trial, drawn: int) -> None:
        trial.agrees(chunks(drawn))
        trial.holds(drawn < 5, "only a subject can tell")

    one = record(of(st.integers(0, 9), body))
    assert sum(one.skipped.values()) >= 1
    assert all(reason.startswith("Falsified: only a subject can tell") for reason in one.skipped)


def test_examples_that_fail_leave_those_that_do_not() -> None:
    def body(trial: Trial, drawn: bool) -> None:
        trial.agrees(chunks(int(drawn)))
        trial.holds(drawn, "never for False")

    assert [case.failure for case in record(of(st.booleans(), body)).cases] == [None]


def chunks(requests: int) -> Any:
    starts = int32(list(range(requests + 2)))
    return call("compute_varlen_chunk_metadata", query_start_loc=starts, chunk_size=4)


# Logs.


def block(title: str, *details: str) -> str:
    return "\n".join([f"========= {title}", *(f"=========     {line}" for line in details), "========="])


def finding_at(frame: str, title: str = "Invalid __global__ write of size 4 bytes") -> str:
    return block(
        title,
        f"at {frame}",
        "by thread (3,0,0) in block (1,0,0)",
        "Access to 0x7f5e4e200080 is out of bounds",
        "and is 1 bytes after the nearest allocation at 0x7f5e4e200000 of size 128 bytes",
    )


HEAD = "========= COMPUTE-SANITIZER"
OUT_OF_BOUNDS = finding_at(f"{KERNEL}+0x90 in align.py:88")
IN_TORCH = finding_at(
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>>(int, T2, T3)+0x170",
    "Uninitialized __global__ memory read of size 4 bytes",
)
DIED = block(
    'Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to '
    "cudaStreamSynchronize.",
    "Saved host backtrace up to driver entry point at error",
)


def summary(errors: int) -> str:
    return f"========= ERROR SUMMARY: {errors} error{'s' * (errors != 1)}"


def parsed(*parts: str, tool: str = "memcheck") -> Parsed:
    return parse("\n".join([HEAD, *parts]), tool, {KERNEL})


IN_PYTHON = finding_at("copy_run+0x1a0 in /home/me/kernels.py:7")
IN_OLDER_WORDS = finding_at(f"0xa0a50 in /opt/it/align.py:12:{KERNEL}")
OTHER_THREAD = OUT_OF_BOUNDS.replace("(3,0,0)", "(4,0,0)").replace("4e200080", "4e200084")
COPY_OF_UNINITIALISED = block(
    "Host API memory access error at host access to 0x7f7fcdc01200 of size 400 bytes",
    "Uninitialized access at 0x7f7fcdc01300 on access by cudaMemcpy source",
)
CALL_FAILS = block('Program hit CUDA_ERROR_NOT_FOUND (error 500) due to "named symbol not found" on ...')
RACE = block(
    f"Error: Race reported between Write access at {KERNEL}+0x130 in align.py:42",
    f"and Read access at {KERNEL}+0x160 in align.py:44 [496 hazards]",
)
NEW_WORDS = block("Something new happened", "somewhere")
FINDINGS: dict[str, tuple[tuple[str, ...], dict[str, object]]] = {
    "kind, kernel, line, thread and address": (
        (OUT_OF_BOUNDS, summary(1)),
        {
            "kind": "Invalid __global__ write of size 4 bytes",
            "kernel": KERNEL,
            "place": "align.py:88",
            "own": True,
            "thread": "by thread (3,0,0) in block (1,0,0)",
            "address": "Access to 0x7f5e4e200080 is out of bounds",
            "text": OUT_OF_BOUNDS.replace("========= ", "").removesuffix("\n========="),
        },
    ),
    "the same in other threads": ((OUT_OF_BOUNDS, OTHER_THREAD, summary(2)), {"count": 2}),
    "no line numbers": ((finding_at(f"{KERNEL}+0x1a0"),), {"kernel": KERNEL, "place": "", "own": True}),
    "a function in a Python file": ((IN_PYTHON,), {"own": True}),
    "a frame in older words": ((IN_OLDER_WORDS,), {"kernel": KERNEL, "file": "/opt/it/align.py", "line": 12}),
    "an older frame without a line": ((finding_at(f"0x150 in {KERNEL}(int*,int)"),), {"kernel": KERNEL}),
    "a kernel of torch": (
        (IN_TORCH, summary(1)),
        {
            "own": False,
            "kernel": "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>>(int, T2, T3)",
        },
    ),
    "a copy of uninitialised memory": ((COPY_OF_UNINITIALISED, summary(1)), {"own": False, "kernel": ""}),
    "calls that fail behind a stopped kernel": (
        ("CASE 0 /a.json", OUT_OF_BOUNDS, DIED, DIED, summary(3)),
        {"kernel": KERNEL},
    ),
    "a call that reports a fault that no kernel was stopped for": (
        ("CASE 0 /a.json", DIED, summary(1)),
        {"own": True},
    ),
    "a call that merely fails": ((CALL_FAILS, summary(1)), {"own": False}),
    "an unknown block": (
        (NEW_WORDS, summary(1)),
        {"kind": "other", "own": True, "text": "Something new happened\n    somewhere"},
    ),
    "errors that are counted and not printed": ((summary(3),), {"kind": "other"}),
    "behind what the program prints": ((f"no newline here{OUT_OF_BOUNDS}",), {"kernel": KERNEL}),
    "a race": (
        (RACE, "========= RACECHECK SUMMARY: 1 hazard displayed"),
        {"kernel": KERNEL, "place": "align.py:42", "own": True},
    ),
}


@pytest.mark.parametrize(("parts", "fields"), FINDINGS.values(), ids=FINDINGS)
def test_a_log_is_parsed_into_a_finding(parts: tuple[str, ...], fields: dict[str, object]) -> None:
    (finding,) = parsed(*parts).findings
    assert {name: getattr(finding, name) for name in fields} == fields
    assert "0x7f" not in finding.kind


def test_a_finding_belongs_to_the_case_announced_last() -> None:
    lines = (
        "CASE 0 /a.json",
        OUT_OF_BOUNDS,
        "DONE 0",
        "CASE 1 /b c.json",
        OUT_OF_BOUNDS,
        "DONE 1",
        "CASE 2 /d.json",
    )
    assert [one.case for one in parsed(*lines).findings] == ["/a.json", "/b c.json"]


@pytest.mark.parametrize(
    ("parts", "errors"),
    [(("CASE 0 /a.json", "DONE 0", summary(0)), 0), (("CASE 0 /a.json",), None), (("=" * 30, "=" * 12 + " title " + "=" * 12, summary(0)), 0)],
    ids=["no errors", "cut off", "lines of equals signs"],
)  # fmt: skip
def test_a_log_without_findings_has_what_its_summary_counts(
    parts: tuple[str, ...], errors: int | None
) -> None:
    assert parsed(*parts) == Parsed(errors=errors)


def test_errors_beyond_the_limit_are_counted_apart() -> None:
    beyond = "========= ERROR SUMMARY: 40 errors were not printed. Use --print-limit"
    log = parsed(OUT_OF_BOUNDS, beyond, summary(41))
    assert (log.unprinted, log.errors, len(log.findings)) == (40, 41, 1)


@pytest.mark.parametrize(
    "line",
    [
        "Error: No attachable process found. compute-sanitizer timed-out.",
        "Internal Sanitizer Error: out of memory",
        "Target application terminated before first instrumented API call",
    ],
)
def test_errors_of_the_tool_itself_are_no_findings(line: str) -> None:
    log = parsed(block(line))
    assert (log.findings, log.trouble) == ([], [line])


def test_the_subjects_kernels_are_found_by_name() -> None:
    assert {KERNEL, "batch_memcpy_kernel"} <= kernel_names()


# The whole command, with a compute-sanitizer that only says what it is told.

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
    # Its controls would each be a process that finds no GPU.
    monkeypatch.setattr(global_sanitizer, "find", lambda subject, out: "none here")
    case = recorded(DOCUMENTED).cases[0]
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
    assert run.code == exit_codes.CLEAN
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


def test_a_finding_is_shown_and_saved_with_its_case(folder: Path) -> None:
    run = command(folder, "cases", plan={"memcheck 1": OUT_OF_BOUNDS})
    assert run.code == exit_codes.FALSIFIED
    assert "align.py:88" in run.output
    assert "-m statecheck sanitize-gpu cases/1.json" in run.output
    (found,) = run.written["tools"][0]["findings"]
    assert (found["tool"], found["kernel"], found["case"]) == (
        "memcheck",
        KERNEL,
        str(folder / "cases/1.json"),
    )
    # Logs of the run before do not count.
    assert command(folder, "cases").code == exit_codes.CLEAN


def test_findings_in_kernels_of_others_are_counted_and_clean(folder: Path) -> None:
    run = command(folder, "cases", plan={"initcheck 0": IN_TORCH})
    assert run.code == exit_codes.CLEAN
    assert "initcheck: in other kernels 1" in run.output


def test_a_case_that_kills_the_context_is_a_finding_and_the_others_are_run(folder: Path) -> None:
    run = command(folder, "cases", "--tools", "memcheck", plan={"memcheck 0": f"{OUT_OF_BOUNDS}\n{DIED}"})
    assert run.code == exit_codes.FALSIFIED
    assert run.ended["memcheck"] == {"0": "dead", "1": "done", "2": "done"}
    assert "INCOMPLETE" not in run.output


def test_a_case_that_crashes_is_told_and_the_others_are_run(folder: Path) -> None:
    run = command(folder, "cases", "--tools", "memcheck", plan={"memcheck 1": "crash"})
    assert run.code == exit_codes.INCOMPLETE
    assert run.ended["memcheck"] == {"0": "done", "1": "crashed", "2": "done"}
    assert f"INCOMPLETE: memcheck: crashed: {folder / 'cases/1.json'}" in run.output


def test_a_crash_in_the_last_case_is_told(folder: Path) -> None:
    run = command(
        folder, "cases", "--tools", "memcheck", plan={"memcheck 0": OUT_OF_BOUNDS, "memcheck 2": "crash"}
    )
    # A finding counts for more than a crash.
    assert (run.code, run.ended["memcheck"]["2"]) == (exit_codes.FALSIFIED, "crashed")


@pytest.mark.slow
def test_what_was_found_before_the_time_is_up_is_kept(folder: Path) -> None:
    plan = {"memcheck 0": OUT_OF_BOUNDS, "memcheck 1": "hang"}
    run = command(folder, "cases", "--tools", "memcheck", "--timeout", "2s", plan=plan)
    assert run.ended["memcheck"] == {"0": "done", "1": "timed out"}
    assert (run.code, KERNEL in run.output) == (exit_codes.FALSIFIED, True)
    assert f"not run: {folder / 'cases/2.json'}" in run.output


def test_a_tool_that_begins_no_case_is_not_tried_for_ever(folder: Path) -> None:
    run = command(folder, "cases", "--tools", "memcheck", plan={"memcheck 0": "unable"})
    assert (run.code, len(run.calls)) == (exit_codes.INCOMPLETE, 1)
    assert "no case was begun, exit code 1" in run.output


def test_cases_are_really_run(folder: Path) -> None:
    run = command(folder, "cases", "--tools", "memcheck", plan="really")
    assert (run.code, run.ended["memcheck"]) == (exit_codes.CLEAN, {"0": "done", "1": "done", "2": "done"})


def test_a_call_that_raises_and_should_not_is_noted(
    trial: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising = "def compute_varlen_chunk_metadata(*_):\n    raise RuntimeError('two\\nlines')\n"
    (folder / "raising_subject.py").write_text(raising)
    monkeypatch.syspath_prepend(str(folder))
    (path,) = record(of(st.just(1), lambda trial, drawn: trial.agrees(chunks(drawn)))).save(folder)
    sanitize_gpu_replay.main(["--device", trial.port.device, "--subject", "raising_subject", str(path)])
    output = capsys.readouterr().out
    assert "NOTE 0 compute_varlen_chunk_metadata raised RuntimeError: two lines\nDONE 0" in output


def test_errors_that_were_not_printed_make_a_run_incomplete(folder: Path) -> None:
    hidden = f"{IN_TORCH}\n========= ERROR SUMMARY: 40 errors were not printed"
    run = command(folder, "cases", plan={"initcheck 0": hidden})
    assert (run.code, "40 errors were not printed" in run.output) == (exit_codes.INCOMPLETE, True)


@pytest.mark.slow
def test_a_case_that_calls_what_nobody_documents_is_not_run(folder: Path) -> None:
    case = Case.load(folder / "cases/0.json")
    steps = tuple(replace(one, function="os.getcwd") if one in case.calls else one for one in case.steps)
    replace(case, steps=steps).save(folder / "cases/0.json")
    run = command(folder, "cases/0.json", "--tools", "memcheck", plan="really")
    assert (run.code, run.ended["memcheck"]["0"]) == (exit_codes.INCOMPLETE, "failed")


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
    assert "recorded 2 examples of 1 properties" in run.output


def test_a_file_of_a_folder_that_is_no_case_is_left_out(folder: Path) -> None:
    (folder / "cases/campaign.json").write_text("{}")
    run = command(folder, "cases")
    assert (run.code, len(run.written["cases"])) == (exit_codes.CLEAN, 3)
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


def test_a_machine_without_a_gpu_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "a GPU that torch finds" in refused(folder, "cases")


def test_a_machine_without_compute_sanitizer_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder / "empty"))
    assert "should be on PATH" in refused(folder, "cases")


def test_the_bench_of_a_recorder_says_which_device_it_stands_for() -> None:
    recorder = LaunchRecorder(load("impl"), "cuda", SEED)
    tested = load_properties()["storing_by_row_never_waits_for_the_device"]
    assert tested.not_applicable(Bench(recorder.subject, recorder.port())) is None
