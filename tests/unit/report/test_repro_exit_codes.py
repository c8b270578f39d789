"""`repro.py` exits 1 where the defect is there, 0 where it is gone, and otherwise where nothing could be tried."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from statecheck.case.values import Let, Name, Raised, Returned, Tensor, call
from statecheck.report.repro.script import repro_script
from statecheck.subject import load
from statecheck.subject.identity import SOURCE, source_of
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT, module
from tests.helpers.processes import run_python
from tests.helpers.slow import slow_after

HALVES = "def halved(x):\n    return x // 2\n"
MENDED = HALVES.replace("2", "2 + 1")
WITHOUT_TORCH = "-I", "-S"


def body(lines: str) -> str:
    """A subject whose function does this."""
    return f"def halved(x):\n    {lines}\n"


def write(folder: Path, source: str | None = HALVES, root: Path | None = None, **changes: object) -> Path:
    """A script about a subject in `root`, by default beside the script, in which 4 halved is to be 3."""
    root = root or folder
    fields = {
        "subject": "toy_halves",
        "steps": (call("halved", x=4),),
        "expected": (Returned(3),),
        "actual": (Returned(2),),
    }
    script = folder / "repro.py"
    script.write_text(repro_script(a_case(**fields | changes), folder, root), encoding="utf-8")
    if source is not None:
        (root / "toy_halves.py").write_text(source, encoding="utf-8")
    return script


def run(
    script: Path,
    *arguments: str,
    flags: tuple[str, ...] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    hidden = ("SUBJECT", "SUBJECT_PATH", "DEVICE", "STATECHECK")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    if not flags:
        return run_python(script, *arguments, env={**kept, **variables}, cwd=Path("/"))
    command = [sys.executable, *flags, str(script), *arguments]
    return subprocess.run(
        command, env={**kept, **variables}, capture_output=True, text=True, check=False, cwd="/", timeout=120
    )


@dataclass(frozen=True)
class Ending:
    """How a script is run, and what it ends with; `output` is how that begins."""

    code: int
    output: str
    source: str | None = HALVES
    arguments: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    case: dict[str, Any] = field(default_factory=dict)


SAME_SOURCE = "nothing is wrong here, but the source is the same in which the failure was seen\n"
UNTRIED = "it cannot be tried here: "
THERE, GONE = "the defect is there\n", "the defect is gone\n"
NO_ANSWER = f"there was no answer within 1 s\n{THERE}"
ONE_SECOND = {"TIME_LIMIT": "1"}
CAPTURE = {"steps": (call("harness.capture", result=1, names=[]),), "device": "cuda"}
ENDINGS = {
    "there": Ending(1, "result = 2, but should be 3\nthe defect is there\n"),
    "gone": Ending(0, GONE, MENDED),
    "exits with 0": Ending(1, f"the process ended: exit code 0\n{THERE}", body("import os; os._exit(0)")),
    "exits with 3": Ending(1, f"the process ended: exit code 3\n{THERE}", body("import os; os._exit(3)")),
    "killed": Ending(
        1, f"the process ended: signal 11\n{THERE}", body("import os; os.kill(os.getpid(), 11)")
    ),
    "sleeps": Ending(1, NO_ANSWER, body("import time; time.sleep(1000)"), variables=ONE_SECOND),
    "holds the GIL": Ending(
        1, NO_ANSWER, body("import re; re.match('(a+)+$', 'a' * 60 + 'b')"), variables=ONE_SECOND
    ),
    "no module": Ending(2, "cannot import toy_halves: ", None),
    "a syntax error": Ending(2, "cannot import toy_halves: ", "def halved(x:\n"),
    "an import that exits": Ending(2, "cannot import toy_halves: ", "import sys\nsys.exit(1)\n"),
    "an import that raises": Ending(2, "cannot import toy_halves: ", "raise BaseException('no GPU')\n"),
    "an import that ends the process": Ending(
        2, f"{UNTRIED}before the case began", "import os\nos._exit(0)\n"
    ),
    "no memory": Ending(2, f"{UNTRIED}full\n", body("raise MemoryError('full')")),
    "a graph without a GPU": Ending(
        2, f"{UNTRIED}graphs are captured on a GPU only", variables={"DEVICE": "cpu"}, case=CAPTURE
    ),
    "chance": Ending(1, "result = 2", case={"depends_on": "chance"}),
    "chance, gone": Ending(2, "this script alone cannot decide it", MENDED, case={"depends_on": "chance"}),
    "no torch": Ending(2, "cannot import torch: No module named 'torch'\n", flags=WITHOUT_TORCH),
    "no number": Ending(
        2,
        "TIME_LIMIT = 'soon', but should be a number of seconds\n",
        flags=WITHOUT_TORCH,
        variables={"TIME_LIMIT": "soon"},
    ),
    "no device": Ending(
        2, "DEVICE = '', but should be cpu or cuda\n", flags=WITHOUT_TORCH, variables={"DEVICE": ""}
    ),
    "another device": Ending(
        2,
        "DEVICE = 'cuda:0', but should be cpu or cuda\n",
        flags=WITHOUT_TORCH,
        variables={"DEVICE": "cuda:0"},
    ),
    "other arguments": Ending(
        2,
        "arguments = ['--device', 'cpu'], but should be none, --bisect, --here or --help\n",
        arguments=("--device", "cpu"),
        flags=WITHOUT_TORCH,
    ),
    "help": Ending(0, "Counterexample to: ", arguments=("--help",), flags=WITHOUT_TORCH),
}
BISECTED = ("there", "gone", "sleeps", "no module", "an import that ends the process", "chance, gone")
"""Endings that `--bisect` is tried on, too: where there is no verdict, it ends with 125."""


@pytest.mark.parametrize("ending", slow_after(5, ENDINGS.values()), ids=ENDINGS)
def test_a_script_ends_with_a_code_and_says_why(tmp_path: Path, ending: Ending) -> None:
    script = write(tmp_path, ending.source, **ending.case)
    done = run(script, *ending.arguments, flags=ending.flags, variables=ending.variables)
    assert (done.returncode, done.stdout[: len(ending.output)]) == (ending.code, ending.output), done
    assert ending.code == 0 or "gone" not in done.stdout.splitlines()


def test_a_script_that_finds_nothing_wrong_in_the_same_source_has_no_verdict(tmp_path: Path) -> None:
    source = "import sys\ndef halved(x):\n    return x // 2 + ('hypothesis' not in sys.modules)\n"
    with module(tmp_path, "toy_halves", source):
        report = tmp_path / "report"
        report.mkdir()
        script = write(report, source, tmp_path, first_seen={SOURCE: source_of(load("toy_halves"))})
    done = run(script)
    assert (done.returncode, done.stdout) == (2, SAME_SOURCE), done
    (tmp_path / "toy_halves.py").write_text(MENDED, encoding="utf-8")
    done = run(script)
    assert (done.returncode, done.stdout) == (0, GONE), done


@pytest.mark.parametrize("name", BISECTED)
@pytest.mark.slow
def test_for_git_bisect_a_script_without_a_verdict_ends_with_125(tmp_path: Path, name: str) -> None:
    ending = ENDINGS[name]
    done = run(write(tmp_path, ending.source, **ending.case), "--bisect", variables=ending.variables)
    assert done.returncode == (125 if ending.code == 2 else ending.code), done


def test_help_says_what_the_codes_mean_and_where_the_subject_is_looked_for(tmp_path: Path) -> None:
    done = run(write(tmp_path), "--help", flags=WITHOUT_TORCH)
    assert "2 where it cannot be tried" in done.stdout
    assert "looked for in . from here" in done.stdout


COPIES = (
    "def copied(source, target, before):\n    target.copy_(source)\n    target += {more}\n    return before\n"
)


@pytest.mark.parametrize("more", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_names_of_a_case_that_a_script_has_itself_are_changed(tmp_path: Path, more: int) -> None:
    ones, twos = Tensor("int64", (2,), (1, 1)), Tensor("int64", (2,), (2, 2))
    tensors = {"source": Name("expect"), "target": Name("snapshot")}
    first = call("copied", **tensors, before=7, bind="len", observes=("snapshot",))
    second = call("copied", **tensors, before=Name("len"), observes=("snapshot",))
    steps = Let("expect", ones), Let("snapshot", twos), first, second
    right, wrong = (Returned(7, after=(("snapshot", tensor),)) for tensor in (ones, twos))
    script = write(
        tmp_path, COPIES.format(more=more), steps=steps, expected=(right, right), actual=(wrong, wrong)
    )
    text = script.read_text(encoding="utf-8")
    for name in ("expect", "snapshot", "len"):
        assert f"\n    own_{name} = " in text
        assert f"\n    {name} = " not in text
    done = run(script)
    assert done.returncode == more, done
    assert ("own_snapshot[0] = 2, but should be 1" in done.stdout) is bool(more)


def test_a_script_shows_no_control_characters_of_the_subject(tmp_path: Path) -> None:
    raises = "raise RuntimeError('\x1b[2J\u202e')"
    prints = "import os\n    os.write(1, b'\x1b[2J')\n    print('\u202e')"
    done = run(write(tmp_path, body(f"{prints}\n    {raises}")))
    assert (done.returncode, done.stdout.count(r"\x1b[2J"), done.stdout.count(r"\u202e")) == (1, 2, 2)
    assert not {"\x1b", "\u202e"} & set(done.stdout)


@pytest.mark.parametrize(("arguments", "code"), [((), 2), (("--bisect",), 125), (("--other",), 2)])
@pytest.mark.slow
def test_a_script_that_asks_the_sanitizer_says_nothing_without_torch(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    script = write(tmp_path, actual=(Raised("OutsideView", "x", kind="memory"),))
    # As -I and -S, but for the process that it starts too.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n", encoding="utf-8")
    done = run(script, *arguments, variables={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == code, done
    assert "the defect is" not in done.stdout


def test_the_command_line_without_torch_says_nothing_of_the_subject() -> None:
    command = [sys.executable, "-S", "-m", "statecheck", "fuzz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, "not installed" in done.stderr) == (3, True), done
