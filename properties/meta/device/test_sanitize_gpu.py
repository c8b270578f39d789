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

from properties.harness.case import Case
from properties.harness.case.values import call, int32
from properties.harness.cli.sanitize_gpu import add_sanitize_gpu
from properties.harness.device.compute_sanitizer import replay as sanitize_gpu_replay
from properties.harness.device.compute_sanitizer.parse import Parsed, ToolFinding, parse
from properties.harness.device.compute_sanitizer.record import LaunchRecorder, Recorded, launches
from properties.harness.device.compute_sanitizer.start import kernel_names
from properties.harness.device.compute_sanitizer.tool import ERROR_EXITCODE, ComputeSanitizer
from properties.harness.device.global_sanitizer import tool as global_sanitizer
from properties.harness.diagnose.rerun import replay
from properties.harness.execution import exit_codes
from properties.harness.execution.example import Bench, Trial
from properties.harness.execution.port import InProcess
from properties.harness.execution.registry import Property, load_properties
from properties.harness.subject import is_engine
from properties.subjects import load

SEED = 3
DOCUMENTED = "the_kernel_that_stores_states_may_be_launched_as_documented"
BROUGHT = "a_state_is_precopied_to_the_column_where_its_request_goes_on"
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


def difference(trial: Bench, case: Case, *, guards: bool = True) -> Case | None:
    return replay(case, InProcess(load("impl"), trial.port.device, guards=guards))


@pytest.mark.parametrize("name", LAUNCHING)
def test_a_property_that_launches_kernels_can_be_recorded(name: str) -> None:
    assert recorded(name).cases
    assert not recorded(name).skipped


@pytest.mark.parametrize("name", LAUNCHING)
def test_a_recorded_case_launches_a_kernel_unless_it_is_refused(name: str) -> None:
    tested = load_properties()[name]
    assert tested.kind == "refusal" or launches(tested, recorded(name).cases[0])


@pytest.mark.parametrize("name", LAUNCHING[::4])
def test_a_recorded_case_is_one_that_the_subject_answers_by_the_rules(trial: Bench, name: str) -> None:
    assert difference(trial, recorded(name).cases[0]) is None


def test_a_recorded_case_runs_without_guard_bytes_as_well(trial: Bench) -> None:
    assert difference(trial, recorded(DOCUMENTED).cases[0], guards=False) is None


def test_a_recorded_case_survives_its_file(tmp_path: Path) -> None:
    (path,) = recorded(DOCUMENTED).save(tmp_path)
    assert Case.load(path) == recorded(DOCUMENTED).cases[0]


def test_a_seed_records_the_same_cases_again() -> None:
    assert record(load_properties()[BROUGHT]) == record(load_properties()[BROUGHT])


def test_recorded_cases_differ() -> None:
    digests = [case.digest for case in record(load_properties()[BROUGHT], 3).cases]
    assert len(set(digests)) == 3


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


def only(*parts: str, tool: str = "memcheck") -> ToolFinding:
    (finding,) = parsed(*parts, tool=tool).findings
    return finding


def test_a_finding_names_kind_kernel_and_line() -> None:
    found = only(OUT_OF_BOUNDS, summary(1))
    assert found.kind == "Invalid __global__ write of size 4 bytes"
    assert (found.kernel, found.place, found.own) == (KERNEL, "align.py:88", True)


def test_a_finding_names_thread_and_address() -> None:
    found = only(OUT_OF_BOUNDS)
    assert found.thread == "by thread (3,0,0) in block (1,0,0)"
    assert found.address == "Access to 0x7f5e4e200080 is out of bounds"


def test_a_finding_keeps_what_was_printed() -> None:
    assert only(OUT_OF_BOUNDS).text.splitlines()[-1].strip().startswith("and is 1 bytes after")


def test_a_finding_belongs_to_the_case_announced_last() -> None:
    told = parsed("CASE 0 /a.json", "DONE 0", "CASE 1 /b c.json", OUT_OF_BOUNDS, "DONE 1", "CASE 2 /d.json")
    assert [one.case for one in told.findings] == ["/b c.json"]


def test_the_same_in_other_threads_is_counted_once() -> None:
    other = OUT_OF_BOUNDS.replace("(3,0,0)", "(4,0,0)").replace("4e200080", "4e200084")
    assert only(OUT_OF_BOUNDS, other, summary(2)).count == 2


def test_the_same_in_another_case_is_another_finding() -> None:
    told = parsed("CASE 0 /a.json", OUT_OF_BOUNDS, "CASE 1 /b.json", OUT_OF_BOUNDS, summary(2))
    assert [one.case for one in told.findings] == ["/a.json", "/b.json"]


def test_a_kernel_without_line_numbers_is_known_by_its_name() -> None:
    found = only(finding_at(f"{KERNEL}+0x1a0"))
    assert (found.kernel, found.place, found.own) == (KERNEL, "", True)


def test_a_function_in_a_python_file_belongs_to_the_subject() -> None:
    assert only(finding_at("copy_run+0x1a0 in /home/me/kernels.py:7")).own


def test_a_frame_in_older_words_is_understood() -> None:
    found = only(finding_at(f"0xa0a50 in /opt/it/align.py:12:{KERNEL}"))
    assert (found.kernel, found.file, found.line) == (KERNEL, "/opt/it/align.py", 12)


def test_an_older_frame_without_a_line_is_understood() -> None:
    assert only(finding_at(f"0x150 in {KERNEL}(int*,int)")).kernel == KERNEL


def test_a_kernel_of_torch_is_not_the_subjects() -> None:
    found = only(IN_TORCH, summary(1), tool="initcheck")
    assert not found.own
    assert found.kernel.startswith("void at::native::vectorized_elementwise_kernel<(int)4")


def test_a_copy_of_uninitialised_memory_is_not_the_subjects() -> None:
    copied = block(
        "Host API memory access error at host access to 0x7f7fcdc01200 of size 400 bytes",
        "Uninitialized access at 0x7f7fcdc01300 on access by cudaMemcpy source",
    )
    found = only(copied, summary(1), tool="initcheck")
    assert (found.own, found.kernel, "0x7f" in found.kind) == (False, "", False)


def test_calls_that_fail_behind_a_stopped_kernel_say_nothing_new() -> None:
    assert only("CASE 0 /a.json", OUT_OF_BOUNDS, DIED, DIED, summary(3)).kernel == KERNEL


def test_a_call_that_reports_a_fault_nobody_saw_is_a_finding() -> None:
    assert only("CASE 0 /a.json", DIED, summary(1)).own


def test_a_call_that_merely_fails_is_not_the_subjects() -> None:
    harmless = block('Program hit CUDA_ERROR_NOT_FOUND (error 500) due to "named symbol not found" on ...')
    assert not only(harmless, summary(1)).own


def test_a_block_that_nobody_knows_is_kept_word_for_word() -> None:
    found = only(block("Something new happened", "somewhere"), summary(1))
    assert (found.kind, found.own) == ("other", True)
    assert found.text == "Something new happened\n    somewhere"


def test_errors_that_were_counted_and_not_printed_are_a_finding() -> None:
    assert only(summary(3)).kind == "other"


def test_a_log_without_errors_has_a_summary_and_nothing_else() -> None:
    assert parsed("CASE 0 /a.json", "DONE 0", summary(0)) == Parsed(errors=0)


def test_a_log_that_was_cut_off_has_no_summary() -> None:
    assert parsed("CASE 0 /a.json").errors is None


def test_errors_beyond_the_limit_are_counted_apart() -> None:
    told = parsed(
        OUT_OF_BOUNDS, "========= ERROR SUMMARY: 40 errors were not printed. Use --print-limit", summary(41)
    )
    assert (told.unprinted, told.errors, len(told.findings)) == (40, 41, 1)


@pytest.mark.parametrize(
    "line",
    [
        "Error: No attachable process found. compute-sanitizer timed-out.",
        "Internal Sanitizer Error: out of memory",
        "Target application terminated before first instrumented API call",
    ],
)
def test_troubles_of_the_tool_are_no_findings(line: str) -> None:
    told = parsed(block(line))
    assert told.findings == []
    assert told.trouble == [line]


def test_what_the_program_prints_does_not_hide_a_finding() -> None:
    assert only(f"no newline here{OUT_OF_BOUNDS}").kernel == KERNEL


def test_lines_of_equals_signs_are_no_findings() -> None:
    assert parsed("=" * 30, "=" * 12 + " title " + "=" * 12, summary(0)).findings == []


def test_a_race_names_its_kernel() -> None:
    race = block(
        f"Error: Race reported between Write access at {KERNEL}+0x130 in align.py:42",
        f"and Read access at {KERNEL}+0x160 in align.py:44 [496 hazards]",
    )
    found = only(race, "========= RACECHECK SUMMARY: 1 hazard displayed", tool="racecheck")
    assert (found.kernel, found.place, found.own) == (KERNEL, "align.py:42", True)


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
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        code = asked.run(asked)
    return Ended(code, told.getvalue(), folder)


def test_cases_without_a_finding_are_clean(folder: Path) -> None:
    run = command(folder, "cases")
    assert run.code == exit_codes.CLEAN
    assert "no finding of memcheck, initcheck in 3 whole cases" in run.output


def test_each_tool_gets_one_process_for_all_cases(folder: Path) -> None:
    calls = command(folder, "cases").calls
    assert [arguments[:2] for arguments, _ in calls] == [["--tool", "memcheck"], ["--tool", "initcheck"]]


def test_each_tensor_gets_an_allocation_of_its_own(folder: Path) -> None:
    assert {caching for _, caching in command(folder, "cases").calls} == {"1"}


def test_options_that_a_version_does_not_know_are_left_out(folder: Path) -> None:
    arguments, _ = command(folder, "cases").calls[0]
    assert "--error-exitcode" in arguments
    assert "--padding" not in arguments


def test_memcheck_gets_room_between_allocations_where_it_can() -> None:
    known = ComputeSanitizer("compute-sanitizer", "", frozenset({"--padding"}))
    assert known.command("memcheck")[-2:] == ["--padding", "4096"]
    assert known.command("initcheck")[-1] == "initcheck"


def test_a_finding_is_told_with_its_case(folder: Path) -> None:
    run = command(folder, "cases", plan={"memcheck 1": OUT_OF_BOUNDS})
    assert run.code == exit_codes.FALSIFIED
    assert "align.py:88" in run.output
    assert "-m properties sanitize-gpu cases/1.json" in run.output


def test_a_finding_is_written_down(folder: Path) -> None:
    run = command(folder, "cases", "--tools", "initcheck", plan={"initcheck 2": OUT_OF_BOUNDS})
    ((found,),) = (one["findings"] for one in run.written["tools"])
    assert (found["tool"], found["kernel"], found["case"]) == (
        "initcheck",
        KERNEL,
        str(folder / "cases/2.json"),
    )


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
    run = command(folder, "cases", "--tools", "memcheck", plan={"memcheck 2": "crash"})
    assert (run.code, run.ended["memcheck"]["2"]) == (exit_codes.INCOMPLETE, "crashed")


def test_a_finding_counts_for_more_than_a_crash(folder: Path) -> None:
    plan = {"memcheck 0": OUT_OF_BOUNDS, "memcheck 1": "crash"}
    assert command(folder, "cases", "--tools", "memcheck", plan=plan).code == exit_codes.FALSIFIED


@pytest.mark.slow
def test_what_was_found_before_the_time_is_up_is_kept(folder: Path) -> None:
    plan = {"memcheck 0": OUT_OF_BOUNDS, "memcheck 1": "hang"}
    run = command(folder, "cases", "--tools", "memcheck", "--timeout", "2s", plan=plan)
    assert run.ended["memcheck"] == {"0": "done", "1": "timed out"}
    assert (run.code, KERNEL in run.output) == (exit_codes.FALSIFIED, True)


@pytest.mark.slow
def test_cases_that_there_is_no_time_for_make_a_run_incomplete(folder: Path) -> None:
    run = command(folder, "cases", "--tools", "memcheck", "--timeout", "2s", plan={"memcheck 1": "hang"})
    assert run.code == exit_codes.INCOMPLETE
    assert f"not run: {folder / 'cases/2.json'}" in run.output


def test_a_tool_that_begins_no_case_is_not_tried_for_ever(folder: Path) -> None:
    run = command(folder, "cases", "--tools", "memcheck", plan={"memcheck 0": "unable"})
    assert (run.code, len(run.calls)) == (exit_codes.INCOMPLETE, 1)
    assert "no case was begun, exit code 1" in run.output


def test_logs_of_the_run_before_do_not_count(folder: Path) -> None:
    command(folder, "cases", plan={"memcheck 1": OUT_OF_BOUNDS})
    assert command(folder, "cases").code == exit_codes.CLEAN


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
    told = capsys.readouterr().out
    assert "NOTE 0 compute_varlen_chunk_metadata raised RuntimeError: two lines\nDONE 0" in told


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


def test_without_cases_examples_are_recorded(folder: Path) -> None:
    run = command(folder, "--only", DOCUMENTED, "--examples", "2", "--seed", "3")
    assert len(run.written["cases"]) == len(list((folder / "out/cases").glob("*.json"))) == 2
    assert "recorded 2 examples of 1 properties" in run.output


def test_cases_of_reports_are_run_with_the_recorded_ones(folder: Path) -> None:
    Case.load(folder / "cases/0.json").save(folder / "reports/2026-01-01-x/case.json")
    run = command(folder, "--only", DOCUMENTED, "--examples", "1", "--seed", "3")
    assert run.written["cases"][0] == str(folder / "reports/2026-01-01-x/case.json")
    assert len(run.written["cases"]) == 2


def test_a_file_of_a_folder_that_is_no_case_is_left_out(folder: Path) -> None:
    (folder / "cases/campaign.json").write_text("{}")
    run = command(folder, "cases")
    assert (run.code, len(run.written["cases"])) == (exit_codes.CLEAN, 3)
    assert any("campaign.json" in reason for reason in run.written["skipped"])


def refused(folder: Path, *options: str) -> str:
    with pytest.raises(ValueError, match=", but should ") as error:
        command(folder, *options)
    return str(error.value)


def test_a_file_that_was_asked_for_and_is_no_case_is_refused(folder: Path) -> None:
    (folder / "x.json").write_text("{}")
    assert refused(folder, "x.json").startswith(f"case = {str(folder / 'x.json')!r}")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--tools", "memchekc"), ("--examples", "-1"), ("--timeout", "0s"), ("--only", "zzz")],
)
def test_an_option_that_cannot_be_is_refused(folder: Path, option: str, value: str) -> None:
    assert repr(value).strip("'") in refused(folder, option, value)


def test_nothing_to_run_is_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert refused(folder, "empty").startswith("cases = []")


def test_a_machine_without_a_gpu_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "a GPU that torch finds" in refused(folder, "cases")


def test_a_machine_without_compute_sanitizer_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder / "empty"))
    assert "should be on PATH" in refused(folder, "cases")


def test_help_says_why_racecheck_is_not_among_the_tools(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_sanitize_gpu(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["sanitize-gpu", "--help"])
    assert "racecheck has to be asked" in " ".join(capsys.readouterr().out.split())


def test_the_bench_of_a_recorder_says_which_device_it_stands_for() -> None:
    recorder = LaunchRecorder(load("impl"), "cuda", SEED)
    tested = load_properties()["storing_by_row_never_waits_for_the_device"]
    assert tested.not_applicable(Bench(recorder.subject, recorder.port())) is None
