"""A command line that is printed does the same whether this run was started by make or by an interpreter."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from statecheck.cli.main import parser
from statecheck.text import command_lines
from statecheck.text.command_lines import command_line, near, option, pip_line, script_line
from tests.breakages.broken import ROOT
from tools.bench.__main__ import parser as bench_parser
from tools.docs.__main__ import parser as docs_parser

MAKE = f"make PYTHON={shlex.quote(sys.executable)}"
LINES = {
    "replay": lambda: command_line("replay", Path("reports/a/case.json"), device="cpu"),
    "replay of a port": lambda: command_line("replay", "0123456789", subject="my.port", device="cuda"),
    "replay of an odd path": lambda: command_line(
        "replay", Path("it's $1 of/a b.json"), subject="impl", device="cpu"
    ),
    "sanitize-gpu": lambda: command_line("sanitize-gpu", Path("cases/1.json")),
    "table": lambda: command_line("table", write=True),
}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the root, started by no command, without a variable that decides anything."""
    monkeypatch.chdir(ROOT)
    for name in (
        *command_lines.IMPORTS,
        command_lines.COMMAND,
        command_lines.FOLDER,
        command_lines.PYTHONPATH,
        *re.findall(r"^([A-Z_]+) \?=", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE),
    ):
        monkeypatch.delenv(name, raising=False)


def asked(words: list[str]) -> Namespace:
    """What the options of a command line come to."""
    module, *rest = words[words.index("-m") + 1 :]
    parsers = {"statecheck": parser, "tools.bench": bench_parser, "tools.docs": docs_parser}
    return parsers[module]().parse_args(rest)


def made(line: str) -> list[str]:
    """The command that make runs, in words."""
    shown = subprocess.run(
        ["sh", "-c", line.replace("make ", "make -n ", 1)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return shlex.split(shown.stdout.replace("\\\n", " "))


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_make_runs_what_the_interpreter_would(line: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(line)
    plain = asked(shlex.split(line()))
    monkeypatch.setenv(command_lines.COMMAND, MAKE)
    assert asked(made(line())) == plain


def test_the_program_is_what_this_run_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LINES["table"]() == f"{command_lines.python()} -m tools.docs --write"
    assert LINES["sanitize-gpu"]() == f"{command_lines.python()} -m statecheck sanitize-gpu cases/1.json"
    monkeypatch.setenv(command_lines.COMMAND, "statecheck")
    assert LINES["sanitize-gpu"]() == "statecheck sanitize-gpu cases/1.json"
    monkeypatch.setenv(command_lines.COMMAND, "make PYTHON='python3' ")
    assert LINES["table"]() == "make PYTHON=python3 table"


def test_make_hands_on_how_it_was_called() -> None:
    words = made("make PYTHON=my-python table")
    assert words[0] == f"{command_lines.COMMAND}=make PYTHON='my-python' "
    assert words[2:] == ["my-python", "-m", "tools.docs", "--write"]


def test_variables_that_decide_what_is_imported_stand_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(command_lines.COMMAND, "make")
    monkeypatch.setenv("PYTHONPATH", "my ports:.")
    monkeypatch.setenv("VLLM", "0.33.0")
    assert (
        command_line("replay", "01", subject="my") == "PYTHONPATH='my ports:.' make replay CASE=01 SUBJECT=my"
    )
    assert command_line("replay", "01", subject="vllm").startswith(
        "PYTHONPATH='my ports:.' VLLM=0.33.0 make "
    )


def test_a_process_in_another_environment_says_how_the_first_was_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    for name, value in command_lines.remembered().items():
        monkeypatch.setenv(name, value)
    before = command_line("table")
    monkeypatch.setenv("PYTHONPATH", "theirs")
    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")
    assert command_line("table") == before
    assert script_line(Path("repro.py")) == "PYTHONPATH=mine /elsewhere/bin/python repro.py"
    monkeypatch.setenv("VLLM_PATH", "vllm")
    assert script_line(Path("repro.py"), "vllm") == "PYTHONPATH=theirs /elsewhere/bin/python repro.py"


def test_command_lines_follow_make_into_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(command_lines.COMMAND, "make")
    monkeypatch.setenv(command_lines.FOLDER, str(ROOT))
    assert command_line("table") == "make table"
    monkeypatch.setenv(command_lines.FOLDER, str(tmp_path))
    assert command_line("table") == f"cd {shlex.quote(str(ROOT))} && make table"
    assert script_line(Path("repro.py")).startswith("cd ")


def test_an_option_is_one_of_the_command_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (option("resume"), option("budget", "90s")) == ("--resume", "--budget 90s")
    monkeypatch.setenv(command_lines.COMMAND, "make")
    assert (option("resume"), option("budget", "90s")) == ("RESUME=1", "BUDGET=90s")


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


def test_what_is_missing_is_installed_into_the_environment_that_lacks_it() -> None:
    assert pip_line("ray>=2.50") == f"{command_lines.python()} -m pip install -c constraints.txt 'ray>=2.50'"


@pytest.mark.parametrize(
    ("path", "message"), [("a/b", "a/b"), (ROOT / "a", "a"), ("/a", "/a"), ("../a", "../a")]
)
def test_a_path_is_relative_to_the_working_folder(path: Path | str, message: str) -> None:
    assert near(path) == message
