"""Triton's global-memory sanitizer in `sanitize-gpu`: its lines, its controls, and which of its reports are false alarms."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import io
import json
import pickle
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.case import Case
from statecheck.cli.sanitize_gpu import add_sanitize_gpu
from statecheck.execution import exit_codes
from statecheck.execution.registry import load_properties
from statecheck.kernels import private
from statecheck.kernels.gpu_launch import CannotLaunch, GpuLaunch, launch_again
from statecheck.kernels.sanitizer.cells import CellSanitizer, Race
from statecheck.kernels.watched import watching
from statecheck.workers.compute_sanitizer import replay
from statecheck.workers.compute_sanitizer.parse import FALSE_ALARM, FINDING, UNDECIDED, ToolFinding
from statecheck.workers.compute_sanitizer.process import Process
from statecheck.workers.compute_sanitizer.record import LaunchRecorder
from statecheck.workers.global_sanitizer import controls, memory, tool
from statecheck.workers.global_sanitizer.judge import judge
from statecheck.workers.global_sanitizer.opinion import Opinion, ask
from statecheck.workers.global_sanitizer.parse import parse
from subjects import load

PROPERTY = "the_kernel_that_stores_states_may_be_launched_as_documented"
KERNEL = "postprocess_mamba_fused_kernel"
FILE = "/opt/it/align.py"
WAW, RAW, WAR = (
    f"{one} race detected" for one in ("Write after write", "Read after write", "Write after read")
)


def assertion(message: str, line: int = 88, function: str = "", block: int = 3) -> str:
    """As CUDA prints it; the sanitizer names no function."""
    place = f"{FILE}:{line}: {function}: block: [{block},0,0], thread: [0,0,0]"
    return f"{place} Assertion `{message}` failed."


def log(*lines: str, case: str = "/a.json", kernel: str = KERNEL) -> str:
    return "\n".join([f"CASE 0 {case}", f"LAUNCH {kernel} /out/0.pickle", *lines])


# Its lines.


FINDINGS: dict[str, tuple[str, dict[str, object]]] = {
    "kind, kernel, line, case and launch": (
        log(assertion(RAW)),
        {"kind": "read after write race", "kernel": KERNEL, "place": f"{FILE}:88", "case": "/a.json", "own": True, "launch": "/out/0.pickle"},
    ),
    "write after read": (log(assertion(WAR)), {"kind": "write after read race"}),
    "write after write, by many programs": (
        log(*(assertion(WAW, block=block) for block in range(5))),
        {"kind": "write after write race", "count": 5},
    ),
    "the launch that was announced last": (
        log(f"LAUNCH {KERNEL} /out/1.pickle", assertion(WAW), kernel="first_kernel"),
        {"kernel": KERNEL, "launch": "/out/1.pickle"},
    ),
    "a kernel of others": (log(assertion(WAW), kernel="triton_poi_fused"), {"own": False}),
    "no line": (log(assertion(WAW, line=0).replace(FILE, "<unknown>")), {"kind": "write after write race", "place": ""}),
    "an assertion of the kernel itself": (
        log(assertion("block >= 0", function=KERNEL)),
        {"kind": "assertion failed: block >= 0"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "fields"), FINDINGS.values(), ids=FINDINGS)
def test_a_log_is_parsed_into_a_finding(text: str, fields: dict[str, object]) -> None:
    (finding,) = parse(text, {KERNEL}).findings
    assert {name: getattr(finding, name) for name in fields} == fields
    if "race" not in finding.kind:
        assert judge(finding, Opinion(), shares_words=True) == finding


@pytest.mark.parametrize(
    "message",
    [
        "Vector clock overflowed",
        "GSan clock buffer token overwritten",
        "Atomic access spans too many GSan shadow cells",
        "GSan detected atomic release accumulation with mixed scopes, which is not supported.",
    ],
)
def test_what_the_sanitizer_cannot_do_is_a_limit_and_no_finding(message: str) -> None:
    result = parse(log(assertion(message)), {KERNEL})
    assert (result.findings, result.limit) == ([], message)


def test_a_log_without_reports_is_whole() -> None:
    result = parse(log("DONE 0"), {KERNEL})
    assert (result.findings, result.errors, result.limit) == ([], 0, "")


# Its controls, each run by our own executor.


def seen(name: str) -> CellSanitizer:
    watch = CellSanitizer(4)
    with watching(watch):
        controls.CONTROLS[name]("cpu")
    return watch


@pytest.mark.usefixtures("executed")
def test_each_control_shares_what_it_should() -> None:
    assert [one.kernel for one in seen("write_write").races] == ["write_write_control"]
    assert [one.kernel for one in seen("read_write").races] == ["read_write_control"]
    right, words = seen("right"), seen("shared_word")
    assert (right.races, right.shared, right.launches) == ([], [], 2)
    assert (words.races, [one.kernel for one in words.shared]) == ([], ["shared_word_control"])
    assert "touch different bytes of the same 4" in words.shared[0].message


def find(
    monkeypatch: pytest.MonkeyPatch, folder: Path, said: Mapping[str, str]
) -> tool.GlobalSanitizer | str:
    """Look for the sanitizer where each control's process prints what is said here."""

    def execute(command: Sequence[str], log: Path, seconds: float, environment: Mapping[str, str]) -> Process:
        assert environment["TRITON_INSTRUMENTATION_MODE"] == "gsan"
        assert "PYTORCH_NO_CUDA_MEMORY_CACHING" not in environment
        log.write_text(said[command[-1]])
        return Process(" ".join(command), str(log), seconds, 0)

    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    monkeypatch.setattr(tool, "execute", execute)
    monkeypatch.setattr(tool, "find_spec", lambda name: name)
    return tool.find("impl", folder)


WORKING = {
    "write_write": assertion(WAW),
    "read_write": assertion(WAR),
    "right": "ENDED right",
    "shared_word": assertion(WAW),
}


def test_a_sanitizer_that_tells_the_controls_apart_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = find(monkeypatch, tmp_path, WORKING)
    assert isinstance(found, tool.GlobalSanitizer)
    assert found.controls["shared_word"] == "write after write race"
    assert found.controls["right"] == ""


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"write_write": "ENDED write_write"}, "control write_write has a race, and it was not reported"),
        ({"right": assertion(RAW)}, "control right has no race, and a read after write race was reported"),
        (
            {"right": "RuntimeError: Failed to find C++ compiler."},
            "did not end: RuntimeError: Failed to find C++",
        ),
        ({"shared_word": ""}, "control shared_word did not end: it printed nothing"),
    ],
)
def test_one_that_does_not_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: dict[str, str], message: str
) -> None:
    found = find(monkeypatch, tmp_path, WORKING | said)
    assert isinstance(found, str)
    assert message in found


@pytest.mark.slow
@pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("triton.experimental.gsan") is None,
    reason="there is no GPU, or Triton has no global-memory sanitizer (3.8 and later do)",
)
def test_the_sanitizer_that_is_here_tells_the_controls_apart(tmp_path: Path) -> None:
    found = tool.find("impl", tmp_path)
    assert isinstance(found, tool.GlobalSanitizer), found


def test_a_triton_without_one_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tool, "find_spec", lambda name: None)
    monkeypatch.setattr("triton.__version__", "3.6.0")
    assert tool.find("impl", tmp_path) == "Triton 3.6.0 has no global-memory sanitizer; 3.8 and later do"


# Its reports, told apart.

REPORT = ToolFinding(
    "gsan", "write after write race", KERNEL, FILE, 88, case="/a.json", launch="/out/0.pickle"
)
SHARED = Race(KERNEL, ("align.py:88", "align.py:90"), "programs share a word")
RACE = Race(KERNEL, ("align.py:88", "align.py:88"), "programs share a byte")
SAME = Opinion(shared=[SHARED])


VERDICTS: dict[str, tuple[Opinion, bool, str, str]] = {
    "ours sees it": (replace(SAME, races=[RACE]), True, FINDING, "ours says: race; programs share a byte"),
    "a shared word at the line": (SAME, True, FALSE_ALARM, "programs share a word"),
    "without the control": (SAME, False, UNDECIDED, "Triton's says: race; "),
    "nothing shared": (
        Opinion(),
        True,
        UNDECIDED,
        "ours says: no race, and no word of 4 bytes that two programs share at this line",
    ),
    "shared elsewhere": (
        Opinion(shared=[replace(SHARED, places=("align.py:8", "align.py:9"))]),
        True,
        UNDECIDED,
        "no word of 4 bytes",
    ),
    "not launched": (
        Opinion(reason="hang: no answer"),
        True,
        UNDECIDED,
        "Triton's says: race; ours could not make the launch: hang: no answer",
    ),
}


@pytest.mark.parametrize(("opinion", "shares_words", "verdict", "why"), VERDICTS.values(), ids=VERDICTS)
def test_a_report_is_judged(opinion: Opinion, shares_words: bool, verdict: str, why: str) -> None:
    found = judge(REPORT, opinion, shares_words=shares_words)
    assert (found.verdict, why in found.opinion) == (verdict, True)


@lru_cache
def recorded() -> Case:
    return LaunchRecorder(load("impl"), "cuda", 3).record(load_properties()[PROPERTY], 1).cases[0]


# Launches, written down and made again on a CPU.

AT = 0x100000000000
"""An address at which no process has anything."""


@triton.jit
def through_a_table_kernel(table_ptr, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Every program stores a byte where the table says, which one launch in a process finds in memory alone."""
    for at in range(COUNT):
        address = tl.load(table_ptr + at) + tl.program_id(0)
        tl.store(address.to(tl.pointer_type(tl.int8)), 1)


def written(
    kernel: Any, programs: int, signature: Mapping[str, str], content: bytes, **constants: int
) -> GpuLaunch:
    """A launch whose only argument beside constants is the address of `content`."""
    return GpuLaunch(
        kernel.fn.__module__,
        kernel.fn.__qualname__,
        signature,
        {(list(signature).index(name),): value for name, value in constants.items()},
        {},
        (programs, 1, 1),
        [AT if kind != "constexpr" else None for kind in signature.values()],
        [(AT, content)],
    )


def read(path: Path) -> Any:
    return pickle.loads(path.read_bytes())  # noqa: S301 - the test has written it


def opinion_on(launch: GpuLaunch | str, folder: Path) -> Opinion:
    path = folder / "0.pickle"
    path.write_bytes(pickle.dumps(launch))
    return ask("impl", str(path))


@pytest.mark.slow
def test_a_second_opinion_is_on_the_very_launch(tmp_path: Path) -> None:
    words, racing = controls.shared_word_control, controls.write_write_control
    said = opinion_on(written(words, 64, {"out_ptr": "*i8"}, bytes(64)), tmp_path)
    assert (said.reason, list(said.races), len(said.shared)) == ("", [], 1)
    said = opinion_on(written(racing, 64, {"out_ptr": "*i32"}, bytes(4)), tmp_path)
    assert [one.kernel for one in said.races] == ["write_write_control"]
    assert opinion_on(written(words, 1, {"out_ptr": "*i8"}, bytes(64)), tmp_path) == Opinion([], [])


@pytest.mark.slow
@pytest.mark.parametrize(("apart", "races"), [(4, 0), (1, 1)])
def test_addresses_in_memory_keep_their_meaning(tmp_path: Path, apart: int, races: int) -> None:
    """Two programs store bytes 0 and 1 behind each address: behind addresses that lie next to each other they meet."""
    table = struct.pack("<2q", AT + 64, AT + 64 + apart) + bytes(112)
    signature = {"table_ptr": "*i64", "COUNT": "constexpr"}
    said = opinion_on(written(through_a_table_kernel, 2, signature, table, COUNT=2), tmp_path)
    assert (said.reason, len(said.races)) == ("", races)


@pytest.mark.slow
def test_a_launch_that_was_not_written_down_has_no_second_opinion(tmp_path: Path) -> None:
    said = opinion_on("RuntimeError: no memory", tmp_path)
    assert said == Opinion([], [], "it was not written down: RuntimeError: no memory")


@pytest.mark.usefixtures("executed")
def test_a_launch_at_addresses_that_are_taken_is_not_made() -> None:
    taken = ctypes.create_string_buffer(64)
    launch = written(controls.shared_word_control, 64, {"out_ptr": "*i8"}, bytes(64))
    launch = replace(launch, memory=[(ctypes.addressof(taken), bytes(64))])
    with pytest.raises(CannotLaunch, match="are taken in a process on this CPU"):
        launch_again(launch, CellSanitizer(4))


@pytest.mark.usefixtures("executed")
def test_what_is_no_kernel_is_not_launched() -> None:
    launch = replace(written(controls.shared_word_control, 1, {}, b""), function="main")
    with pytest.raises(CannotLaunch, match="main is no kernel"):
        launch_again(launch, CellSanitizer(4))


def test_a_launch_is_written_down_with_addresses_for_tensors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernel, tensor = controls.ordered_control, torch.zeros(1)
    kinds = {"parts_ptr": "*i32", "arrived_ptr": "*i32", "out_ptr": "*i32", "PROGRAMS": "constexpr"}
    source = argparse.Namespace(fn=kernel, signature=kinds, constants={(3,): 64}, attrs={})
    monkeypatch.setattr(memory, "_allocated", lambda: [(8, b"x")])
    assert memory.write_down(tmp_path / "x", (64, 1, 1), source, (tensor, 7, None, 64))
    found = read(tmp_path / "x")
    assert (found.function, found.constants) == ("ordered_control", {(3,): 64})
    assert (found.arguments, found.memory) == ([tensor.data_ptr(), 7, None, None], [(8, b"x")])


def test_a_launch_that_cannot_be_written_down_leaves_the_reason(tmp_path: Path) -> None:
    source = argparse.Namespace(
        fn=controls.shared_word_control, signature={"out_ptr": "*i8"}, constants={}, attrs={}
    )
    assert not memory.write_down(tmp_path / "x", (1, 1, 1), source, (object(),))
    assert read(tmp_path / "x") == "TypeError: an argument is of type object"


def test_only_the_launch_that_may_be_reported_next_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readable = iter([True, True, False])

    def write_down(path: Path, *_: object) -> bool:
        path.write_bytes(b"")
        return next(readable)

    monkeypatch.setattr(replay, "tell_launches", lambda tell: None)
    monkeypatch.setattr(replay, "write_down", write_down)
    launches = replay._Launches(tmp_path)
    with launches.of_case(5):
        for _ in range(3):
            launches._tell("kernel", (1, 1, 1), None, ())
        # The report was of the second launch, after which the memory could be read no more.
        assert sorted(path.name for path in tmp_path.iterdir()) == ["5-1.pickle", "5-2.pickle"]
        assert capsys.readouterr().out.splitlines()[1] == f"LAUNCH kernel {tmp_path / '5-1.pickle'}"
    assert list(tmp_path.iterdir()) == []


# Launches, announced.


def test_each_launch_is_told_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[object] = []

    class Launcher:
        def __init__(self, source: Any, metadata: Any) -> None:
            pass

        def __call__(self, *arguments: Any) -> None:
            messages.append(arguments)

    monkeypatch.setattr(private, "CudaLauncher", Launcher)
    memory.tell_launches(lambda kernel, grid, source, arguments: messages.append((kernel, grid, arguments)))
    source = argparse.Namespace(fn=argparse.Namespace(fn=recorded))
    before = ("stream", "function", "packed", None, None, None)
    Launcher(source, argparse.Namespace(name="mangled"))(3, 2, 1, *before, 7, 8)
    Launcher(object(), argparse.Namespace(name="plain"))(1, 1, 1, *before)
    assert messages == [
        ("recorded", (3, 2, 1), (7, 8)),
        (3, 2, 1, *before, 7, 8),
        ("plain", (1, 1, 1), ()),
        (1, 1, 1, *before),
    ]


@pytest.mark.usefixtures("on_cpu")
def test_a_case_that_captures_graphs_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay, "own_memory", contextlib.nullcontext)
    monkeypatch.setattr(replay, "tell_launches", lambda tell: None)
    launches = tmp_path / "launches"
    monkeypatch.setattr(replay, "NEED_CUDA", {one.function for one in recorded().calls})
    path = recorded().save(tmp_path / "case.json", durable=False)
    replay.main(["--device", "cpu", "--launches", str(launches), str(path)])
    assert "SKIPPED 0 it captures graphs" in capsys.readouterr().out


# The whole command, with a sanitizer that only says what it is told.

FAKE = """
import json, sys
plan, calls = json.loads(sys.argv[1]), sys.argv[2]
arguments = sys.argv[3:]
skip = int(arguments[arguments.index("--skip") + 1])
cases = open(next(one for one in arguments if one.startswith("@"))[1:]).read().splitlines()
with open(calls, "a") as file:
    print(skip, arguments[-2:], file=file)
for number in range(skip, len(cases)):
    print(f"CASE {number} {cases[number]}")
    what = plan.get(str(number), "")
    if what:
        print(f"LAUNCH postprocess_mamba_fused_kernel /out/0.pickle\\n{what}\\nDEAD {number} AcceleratorError")
        sys.exit(75)
    print(f"DONE {number}")
"""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    output: str
    folder: Path

    @property
    def written(self) -> Any:
        return json.loads((self.folder / "out/findings.json").read_text())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three cases, on a machine that says to have a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for number in range(3):
        replace(recorded(), seed=number).save(tmp_path / f"cases/{number}.json", durable=False)
    return tmp_path


def command(
    folder: Path, plan: Mapping[str, str], opinion: Opinion = SAME, found: str = "", *, tools: str = "gsan"
) -> Ended:
    """Run the command in this process: `plan` has what is printed in which case."""
    fake = tool.GlobalSanitizer(
        "impl", "Triton 3.9.0", folder / "launches", {"shared_word": "write after write race"}
    )
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        program = [sys.executable, "-c", FAKE, json.dumps(plan), str(folder / "calls")]
        patch.setattr(
            tool.GlobalSanitizer, "command", lambda self, replayed: [*program, *replayed[3:], "end"]
        )
        patch.setattr(tool, "find", lambda subject, out: found or fake)
        patch.setattr(tool, "ask", lambda subject, launch: opinion)
        parser = argparse.ArgumentParser()
        add_sanitize_gpu(parser.add_subparsers())
        asked = parser.parse_args(["sanitize-gpu", "--out", "out", "--tools", tools, "cases"])
        code = asked.run(asked)
    return Ended(code, printed.getvalue(), folder)


def test_cases_without_a_report_are_clean(folder: Path) -> None:
    run = command(folder, {})
    assert run.code == exit_codes.CLEAN
    assert "gsan: Triton 3.9.0" in run.output
    assert "no finding of gsan in 3 whole cases" in run.output


def test_a_race_that_both_see_is_told_and_the_other_cases_are_run(folder: Path) -> None:
    run = command(folder, {"1": assertion(WAW)}, replace(SAME, races=[RACE]))
    assert run.code == exit_codes.FALSIFIED
    assert run.written["tools"][0]["ended"] == {"0": "done", "1": "dead", "2": "done"}
    assert "INCOMPLETE" not in run.output


def test_a_race_that_only_it_sees_is_told_as_such_and_makes_a_run_incomplete(folder: Path) -> None:
    run = command(folder, {"1": assertion(WAW)}, Opinion())
    assert run.code == exit_codes.INCOMPLETE
    assert f"undecided: write after write race of {KERNEL}" in run.output
    assert "Triton's says: race; ours says: no race" in run.output
    assert "sanitize-gpu cases/1.json" in run.output


def test_a_false_alarm_is_told_and_what_comes_behind_it_was_not_watched(folder: Path) -> None:
    run = command(folder, {"1": assertion(WAW)})
    assert run.code == exit_codes.INCOMPLETE
    assert f"false alarm: gsan: write after write race of {KERNEL} at {FILE}:88" in run.output
    assert f"not watched behind a false alarm: {folder / 'cases/1.json'}" in run.output
    assert "no finding of gsan" in run.output


def test_a_limit_is_met_again_in_a_fresh_process_before_it_is_told(folder: Path) -> None:
    run = command(folder, {"2": assertion("Vector clock overflowed")})
    assert [line.split()[0] for line in (folder / "calls").read_text().splitlines()] == ["0", "2"]
    assert (run.code, "a limit of the tool: Vector clock overflowed" in run.output) == (
        exit_codes.INCOMPLETE,
        True,
    )


def test_where_it_is_not_there_a_line_says_why_and_the_other_tools_are_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bin").mkdir()
    other = folder / "bin/compute-sanitizer"
    other.write_text("#!/bin/sh\necho '========= COMPUTE-SANITIZER'\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    why = "Triton 3.6.0 has no global-memory sanitizer; 3.8 and later do"
    run = command(folder, {}, found=why, tools="memcheck,gsan")
    assert f"gsan: left out: {why}" in run.output
    assert [one["tool"] for one in run.written["tools"]] == ["memcheck"]


def test_where_it_is_the_only_tool_and_not_there_the_command_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"but should be there; .*it does not work"):
        command(folder, {}, found="it does not work")
