"""The command `sanitize-gpu` with Triton's sanitizer, which prints what a test tells it to."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from statecheck.cli.sanitize_gpu import add_sanitize_gpu
from statecheck.execution import exit_codes
from statecheck.workers.global_sanitizer import tool
from statecheck.workers.global_sanitizer.judge import Opinion
from tests.workers.test_global_sanitizer import FILE, KERNEL, RACE, SAME, WAW, assertion
from tests.workers.test_written_launches import recorded

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
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as output:
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
    return Ended(code, output.getvalue(), folder)


RUNS: dict[str, tuple[dict[str, str], Opinion, int, tuple[str, ...]]] = {
    "no report": ({}, SAME, exit_codes.CLEAN, ("gsan: Triton 3.9.0", "no finding of gsan in 3 whole cases")),
    "a race that both see": ({"1": assertion(WAW)}, replace(SAME, races=[RACE]), exit_codes.FALSIFIED, ()),
    "a race that only Triton's sees": (
        {"1": assertion(WAW)},
        Opinion(),
        exit_codes.INCOMPLETE,
        (
            f"undecided: write after write race of {KERNEL}",
            "Triton's says: race; ours says: no race",
            "sanitize-gpu cases/1.json",
        ),
    ),
    "a false alarm, behind which nothing was watched": (
        {"1": assertion(WAW)},
        SAME,
        exit_codes.INCOMPLETE,
        (
            f"false alarm: gsan: write after write race of {KERNEL} at {FILE}:88",
            "not watched behind a false alarm: ",
            "no finding of gsan",
        ),
    ),
}


@pytest.mark.parametrize(("plan", "opinion", "code", "lines"), RUNS.values(), ids=RUNS)
def test_a_run_ends_with_a_code_and_says_why(
    folder: Path, plan: dict[str, str], opinion: Opinion, code: int, lines: tuple[str, ...]
) -> None:
    run = command(folder, plan, opinion)
    assert run.code == code
    assert [line for line in lines if line not in run.output] == []
    # A case whose process ends does not keep the others from running.
    ended = {"0": "done", "1": "dead" if plan else "done", "2": "done"}
    assert run.written["tools"][0]["ended"] == ended


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
