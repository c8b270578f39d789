"""Triton's global-memory sanitizer: its lines, its controls, and which of its reports are false alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from statecheck.kernels.sanitizer.cells import CellSanitizer, Race
from statecheck.kernels.watched import watching
from statecheck.workers.compute_sanitizer.parse import FALSE_ALARM, FINDING, UNDECIDED, ToolFinding
from statecheck.workers.compute_sanitizer.process import Process
from statecheck.workers.global_sanitizer import controls, tool
from statecheck.workers.global_sanitizer.judge import Opinion, judge
from statecheck.workers.global_sanitizer.parse import parse

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


# Its reports, judged.

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
