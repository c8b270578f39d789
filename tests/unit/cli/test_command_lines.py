"""Command lines that are printed run where they are pasted."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from statecheck.util import command_lines
from statecheck.util.command_lines import command_line, script_line
from tests.helpers.modules import ROOT
from tests.helpers.parsing import options_of


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the root, started by no command, without a variable that decides anything."""
    monkeypatch.chdir(ROOT)
    for name in ("PYTHONPATH", command_lines.COMMAND, command_lines.PYTHONPATH, command_lines.CHOSEN):
        monkeypatch.delenv(name, raising=False)


def test_the_command_reads_a_printed_line_whatever_a_path_is_called() -> None:
    path = Path("it's $1 of/a b.json")
    words = shlex.split(command_line("replay", path, subject="my.port", device="cpu"))
    options = options_of(words[words.index("-m") + 2 :])
    assert (Path(options.case), options.subject, options.device) == (path, "my.port", "cpu")
    assert "--all" in command_line("bisect", path, all=True)


def test_a_line_begins_with_the_program_that_started_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"{command_lines.python()} -m statecheck replay cases/1.json"
    assert command_line("replay", Path("cases/1.json"), subject="impl") == line
    monkeypatch.setenv(command_lines.COMMAND, "statecheck")
    assert command_line("replay", Path("cases/1.json")) == "statecheck replay cases/1.json"


def test_the_import_path_stands_before_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(command_lines.COMMAND, "statecheck")
    monkeypatch.setenv("PYTHONPATH", "my ports:.")
    line = "PYTHONPATH='my ports:.' statecheck replay 01 --subject my"
    assert command_line("replay", "01", subject="my") == line


@pytest.mark.parametrize(
    ("chosen", "subject", "options"),
    [
        ("--vllm 0.33.0", "vllm", "--vllm 0.33.0"),
        ("--vllm 0.33.0", "vllm+impl", "--subject vllm+impl --vllm 0.33.0"),
        ("--vllm 0.33.0", "my", "--subject my"),
        (f"--mlx-lm-path {shlex.quote(f'{ROOT}/mlx')}", "mlx_lm", "--mlx-lm-path mlx"),
        ("", "vllm", "--subject vllm"),
    ],
)
def test_a_line_names_the_release_that_the_run_is_about(
    chosen: str, subject: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(command_lines.COMMAND, "statecheck")
    monkeypatch.setenv(command_lines.CHOSEN, chosen)
    assert command_line("replay", "01", subject=subject) == f"statecheck replay 01 {options}"


def test_a_process_in_another_environment_prints_how_the_first_was_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    for name, value in command_lines.remembered().items():
        monkeypatch.setenv(name, value)
    before = command_line("fuzz")
    monkeypatch.setenv("PYTHONPATH", "theirs")
    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")
    assert command_line("fuzz") == before
    assert script_line(Path("repro.py")) == "PYTHONPATH=mine /elsewhere/bin/python repro.py"


def test_an_interpreter_is_named_as_the_path_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    assert command_lines.python() == str(python)
    monkeypatch.chdir(tmp_path)
    assert command_lines.python() == "bin/python"
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    assert command_lines.python() == "python"
