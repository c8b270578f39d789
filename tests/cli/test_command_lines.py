"""A command line that is printed does the same whether this run was started by make or by an interpreter."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from statecheck import rooms
from statecheck.cli.main import parser
from statecheck.text import command_lines
from statecheck.text.command_lines import command_line, near, option, pip_line, script_line
from tests.helpers.modules import ROOT


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the root, started by no command, without a variable that decides anything."""
    monkeypatch.chdir(ROOT)
    for name in (
        *command_lines.IMPORTS,
        command_lines.COMMAND,
        command_lines.FOLDER,
        command_lines.PYTHONPATH,
    ):
        monkeypatch.delenv(name, raising=False)


def test_a_line_is_one_that_the_command_takes_whatever_a_path_is_called() -> None:
    path = Path("it's $1 of/a b.json")
    words = shlex.split(command_line("replay", path, subject="my.port", device="cpu"))
    asked = parser().parse_args(words[words.index("-m") + 2 :])
    assert (Path(asked.case), asked.subject, asked.device) == (path, "my.port", "cpu")
    assert "--all" in command_line("bisect", path, all=True)


def test_the_program_is_what_this_run_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"{command_lines.python()} -m statecheck replay cases/1.json"
    assert command_line("replay", Path("cases/1.json"), subject="impl") == line
    monkeypatch.setenv(command_lines.COMMAND, "statecheck")
    assert command_line("replay", Path("cases/1.json")) == "statecheck replay cases/1.json"


def test_variables_that_decide_what_is_imported_stand_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(command_lines.COMMAND, "statecheck")
    monkeypatch.setenv("PYTHONPATH", "my ports:.")
    monkeypatch.setenv("VLLM", "0.33.0")
    line = "PYTHONPATH='my ports:.' statecheck replay 01 --subject my"
    assert command_line("replay", "01", subject="my") == line
    line = "PYTHONPATH='my ports:.' VLLM=0.33.0 statecheck replay 01 --subject vllm"
    assert command_line("replay", "01", subject="vllm") == line


def test_a_process_in_another_environment_says_how_the_first_was_started(
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
    monkeypatch.setenv("VLLM_PATH", "vllm")
    assert script_line(Path("repro.py"), "vllm") == "PYTHONPATH=theirs /elsewhere/bin/python repro.py"


def test_a_script_about_a_checkout_names_it_as_one_reaches_it_and_not_the_harness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_PATH", ".")
    monkeypatch.setattr(rooms, "FOLDER", Path("/site-packages/statecheck/_installed"))
    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")
    monkeypatch.setenv("PYTHONPATH", f"{rooms.FOLDER}{os.pathsep}{ROOT}")
    assert (
        script_line(Path("repro.py"), "vllm", harness=False) == "PYTHONPATH=. /elsewhere/bin/python repro.py"
    )
    assert f"PYTHONPATH={rooms.FOLDER}:. " in script_line(Path("repro.py"), "vllm")


def test_command_lines_follow_make_into_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(command_lines.FOLDER, str(ROOT))
    line = command_line("fuzz")
    monkeypatch.setenv(command_lines.FOLDER, str(tmp_path))
    assert command_line("fuzz") == f"cd {shlex.quote(str(ROOT))} && {line}"
    assert script_line(Path("repro.py")).startswith("cd ")


def test_an_option_is_one_of_the_command_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert option("budget", "90s") == "--budget 90s"
    monkeypatch.setenv(command_lines.FOLDER, str(ROOT))
    assert option("budget", "90s") == "BUDGET=90s"


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
