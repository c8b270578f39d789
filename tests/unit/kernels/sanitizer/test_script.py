"""The command `sanitize` runs a script as Python does, and says what its kernels did; the fixture does so for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from statecheck.cli.replay import sanitize
from statecheck.execution.example import ExecutionContext
from statecheck.kernels import launch
from statecheck.kernels.source.ir import NotUnderstoodError
from tests.helpers.processes import run_python

ROOT = Path(__file__).parents[4]
KERNELS = '''\
import sys
import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(in_ptr, out_ptr, SIZE: tl.constexpr):
    """Each program copies its part."""
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + places, tl.load(in_ptr + places))


@triton.jit
def racing_kernel(out_ptr):
    if tl.program_id(0) == 0:
        tl.store(out_ptr, 1)
    else:
        tl.store(out_ptr, 2)


@triton.jit
def slots_kernel(out_ptr, count_ptr):
    tl.store(out_ptr + tl.atomic_add(count_ptr, 1), tl.program_id(0))


def zeros(size):
    return torch.zeros(size, dtype=torch.int32)


'''
COPY = "copy_kernel[(4,)](zeros(8), zeros(8), SIZE=2)\n"
OUTSIDE = "copy_kernel[(5,)](zeros(8), zeros(10), SIZE=2)\n"
RACE = "racing_kernel[(2,)](zeros(1))\n"
SLOTS = "slots_kernel[(4,)](zeros(4), zeros(1))\n"
PRINT_SLOTS = "out = zeros(4)\nslots_kernel[(4,)](out, zeros(1))\nprint(out.tolist())\n"
UNWRITTEN = "copy_kernel[(4,)](torch.empty(8, dtype=torch.int32), zeros(8), SIZE=2)\n"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class Command:
    """The command, called in this process with scripts in a folder of their own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def write(self, body: str, name: str = "script.py") -> Path:
        path = self.folder / name
        path.write_text(KERNELS + body)
        return path

    def __call__(self, body: str, *arguments: str) -> Outcome:
        return self.run([str(self.write(body)), *arguments])

    def run(self, arguments: Sequence[str]) -> Outcome:
        code = sanitize.main(list(arguments), standalone_mode=False)
        return Outcome(code, *self._capsys.readouterr())


@pytest.fixture
def command(trial: ExecutionContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    if trial.port.device != "cpu":
        pytest.skip("kernels are compiled here, and nothing is watched")
    return Command(tmp_path, capsys)


def line_of(body: str) -> int:
    """The line of the kernels' text that starts so."""
    return next(i for i, line in enumerate(KERNELS.splitlines(), 1) if line.strip().startswith(body))


@pytest.mark.parametrize(
    ("body", "arguments", "code", "out"),
    [
        (COPY * 3, (), 0, "CLEAN: 3 launches, 12 programs\n"),
        ("copy_kernel[(1,)](zeros(8), zeros(8), SIZE=8)\n", (), 0, "CLEAN: 1 launch, 1 program\n"),
        (UNWRITTEN, ("--no-empties",), 0, "CLEAN: 1 launch, 4 programs\n"),
        (UNWRITTEN, (), 1, "UnwrittenRead: "),
        (SLOTS, (), 0, "CLEAN: 1 launch, 4 programs\n"),
        (f"try:\n    {OUTSIDE}except Exception:\n    pass\n{COPY}", (), 1, "OutsideView: "),
        (PRINT_SLOTS, ("--order", "reversed"), 0, "[3, 2, 1, 0]\n"),
        (f"{COPY}sys.exit()\n", (), 0, "CLEAN: 1 launch, 4 programs\n"),
        (f"{COPY}sys.exit(0)\n", (), 0, "CLEAN: 1 launch, 4 programs\n"),
        (f"{COPY}sys.exit(3)\n", (), 2, ""),
    ],
)
def test_a_script_ends_with_what_was_found(
    command: Command, body: str, arguments: tuple[str, ...], code: int, out: str
) -> None:
    outcome = command(body, *arguments)
    assert (outcome.code, outcome.out.startswith(out)) == (code, True)


def test_a_finding_ends_the_script_and_shows_its_line(command: Command) -> None:
    code, out, _ = command(OUTSIDE + "print('later')\n")
    line = line_of("tl.store(out_ptr + places")
    assert code == 1
    assert out.startswith("OutsideView: program (4, 0, 0) of copy_kernel loads 4 bytes at script.py:")
    assert f"> {line:4}     tl.store(out_ptr + places, tl.load(in_ptr + places))" in out
    assert f"  {line - 1:4}     places" in out
    assert "later" not in out


def test_a_race_shows_both_lines(command: Command) -> None:
    code, out, _ = command(RACE)
    first = line_of("tl.store(out_ptr, 1)")
    assert (code, out.startswith("RaceBetweenPrograms: ")) == (1, True)
    assert f"> {first:4}         tl.store(out_ptr, 1)" in out
    assert f"> {first + 2:4}         tl.store(out_ptr, 2)" in out


def test_options_may_precede_the_script_and_its_own_follow(command: Command) -> None:
    path = command.write(f"print(sys.argv[1:])\n{COPY}")
    given = ["--size", "4", "--no-empties", "a", "--", "--order", "x"]
    outcome = command.run(["--order", "reversed", str(path), *given])
    assert outcome.out.startswith("['--size', '4', 'a', '--order', 'x']\n")


def test_a_script_is_run_as_python_runs_it(command: Command) -> None:
    command.write("NUMBER = 5\n", "beside.py")
    body = (
        "import beside, os\nprint(__name__, beside.NUMBER, sys.argv, os.path.isabs(__file__), sys.path[0])\n"
    )
    path, before = command.write(body + COPY), (sys.argv, list(sys.path))
    expected = f"__main__ 5 ['{path}', 'x'] True {command.folder.resolve()}\n"
    assert command.run([str(path), "x"]).out.startswith(expected)
    assert (sys.argv, sys.path) == before


def test_a_script_that_fails_is_not_clean(command: Command) -> None:
    code, out, err = command(f"{COPY}raise KeyError('mine')\n")
    assert (code, out) == (2, "")
    assert "KeyError: 'mine'" in err


@pytest.mark.parametrize(
    ("body", "last"),
    [
        ("print(zeros(3).sum().item())\n", "error: no kernel was launched by"),
        (
            "raise AssertionError('Torch not compiled with CUDA enabled')\n",
            "hint: tensors have to be on the CPU",
        ),
    ],
)
def test_a_script_that_launches_nothing_is_not_clean(command: Command, body: str, last: str) -> None:
    code, _, err = command(body)
    assert (code, err.splitlines()[-1].startswith(last)) == (2, True)


@pytest.mark.parametrize("value", ["0", "1"])
def test_a_script_that_says_how_triton_is_to_run_its_kernels_has_them_executed(
    command: Command, value: str
) -> None:
    path = command.folder / "script.py"
    path.write_text(f"import os\nos.environ['TRITON_INTERPRET'] = '{value}'\n{KERNELS}{OUTSIDE}")
    assert command.run([str(path)]).out.startswith("OutsideView: program (4, 0, 0) of copy_kernel")
    assert "TRITON_INTERPRET" not in os.environ


def test_a_launch_that_the_executor_does_not_know_ends_the_script(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotUnderstoodError("something new")

    monkeypatch.setattr(launch, "compiled", refuse)
    error = "error: copy_kernel is not executed on a CPU: the executor does not know something new\n"
    assert command(COPY * 2) == (2, "", error)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py"], "script = '.*nowhere.py', but should be a file"),
        (["script.py", "--order", "sideways"], "schedule = 'sideways', but should be"),
    ],
)
def test_an_option_or_script_that_cannot_be_run_is_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    command.write(COPY)
    monkeypatch.chdir(command.folder)
    with pytest.raises(ValueError, match="^" + words):
        command.run(arguments)


@pytest.mark.parametrize(
    ("sentence", "code", "printed"), [("Who did it.", 1, "Who did it."), ("", 0, "CLEAN: ")]
)
def test_a_case_is_explained(
    command: Command, monkeypatch: pytest.MonkeyPatch, sentence: str, code: int, printed: str
) -> None:
    asked: list[Path] = []

    class NoAttribution:
        @staticmethod
        def explain_case(path: Path) -> str:
            asked.append(path)
            return sentence

    monkeypatch.setitem(sys.modules, "statecheck.diagnose.attribution", NoAttribution)
    path = command.write("", "case.json")
    done = command.run([str(path)])
    assert (done.code, asked, done.out.startswith(printed)) == (code, [path], True)


def child(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A Python process of its own, with the repository's packages and no word on how kernels are run."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    path = os.pathsep.join([str(ROOT), *environment.get("PYTHONPATH", "").split(os.pathsep)])
    return run_python(*arguments, cwd=folder, env=environment | {"PYTHONPATH": path} | variables)


MAIN = (
    "import sys; from statecheck.cli.replay import sanitize; sys.exit(sanitize.main(standalone_mode=False))"
)


@pytest.mark.slow
def test_the_command_needs_no_preparation(command: Command) -> None:
    path = command.write(OUTSIDE)
    found = child(command.folder, "-c", MAIN, path.name)
    assert (found.returncode, found.stdout.startswith("OutsideView: "), found.stderr) == (1, True, "")


TESTS = """

def test_right(sanitizer):
    copy_kernel[(4,)](zeros(8), zeros(8), SIZE=2)
    assert sanitizer.launches == 1


def test_unwritten(sanitizer):
    copy_kernel[(4,)](torch.empty(8), torch.zeros(8), SIZE=2)


def test_outside(sanitizer):
    copy_kernel[(5,)](zeros(8), zeros(10), SIZE=2)


def test_without():
    copy_kernel[(4,)](torch.empty(8), torch.zeros(8), SIZE=2)
"""


def pytest_child(
    folder: Path, *arguments: str, plugin: str = "-pstatecheck.sanitize", **variables: str
) -> str:
    (folder / "test_kernels.py").write_text(KERNELS + TESTS)
    paths = (plugin, "-pno:cacheprovider", *arguments, "test_kernels.py")
    done = child(folder, "-m", "pytest", "-q", "-rsf", *paths, **variables)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_fixture_registers_tensors_of_a_test_that_is_watched(command: Command) -> None:
    out = pytest_child(command.folder)
    assert "3 failed, 1 passed" in out
    assert "UnwrittenRead: program (0, 0, 0) of copy_kernel loads element [0] of `in_ptr`" in out
    assert "OutsideView: program (4, 0, 0) of copy_kernel loads 4 bytes" in out


def test_the_fixture_skips_where_kernels_are_compiled(command: Command) -> None:
    out = pytest_child(command.folder, "-k", "right", TRITON_INTERPRET="0")
    assert "1 skipped" in out
    assert "kernels are compiled in this process, and cannot be watched" in out


@pytest.mark.slow
def test_a_plugin_of_a_conftest_refuses_a_triton_that_interprets_all_kernels(command: Command) -> None:
    (command.folder / "conftest.py").write_text(
        "import os\nos.environ['TRITON_INTERPRET'] = '1'\nimport triton.language\npytest_plugins = ['statecheck.sanitize']\n"
    )
    done = pytest_child(command.folder, "-k", "outside", plugin="-rs")
    assert "TRITON_INTERPRET was 1 when Triton was imported, but should be unset" in done
