"""`repro.py` exits 1 where the defect is there, 0 where it is gone, and otherwise where nothing could be tried."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from statecheck.case.values import Let, Name, Raised, Returned, Tensor, call
from statecheck.report.repro.script import repro_script
from tests.breakages.broken import a_case
from tests.processes import run_python

HALVES = "def halved(x):\n    return x // 2\n"
WITHOUT_TORCH = "-I", "-S"
UNIMPORTABLE = {
    "missing": None,
    "a syntax error": "def halved(x:\n",
    "ends the process": "import sys\nsys.exit(1)\n",
    "raises": "raise RuntimeError('no GPU')\n",
    "raises what is no Exception": "raise BaseException('no GPU')\n",
}


def write(folder: Path, **changes: object) -> Path:
    """A script about a subject beside it, in which 4 halved is to be 3."""
    fields = {
        "subject": "toy_halves",
        "steps": (call("halved", x=4),),
        "expected": (Returned(3),),
        "actual": (Returned(2),),
    }
    script = folder / "repro.py"
    script.write_text(repro_script(a_case(**fields | changes), folder, folder), encoding="utf-8")
    (folder / "toy_halves.py").write_text(HALVES, encoding="utf-8")
    return script


def run(
    script: Path, *arguments: str, flags: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    hidden = ("SUBJECT", "SUBJECT_PATH", "DEVICE", "STATECHECK")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    if not flags:
        return run_python(script, *arguments, env=kept | variables, cwd=Path("/"))
    command = [sys.executable, *flags, str(script), *arguments]
    return subprocess.run(
        command, env=kept | variables, capture_output=True, text=True, check=False, cwd="/", timeout=120
    )


def test_without_torch_nothing_is_known(tmp_path: Path) -> None:
    done = run(write(tmp_path), flags=WITHOUT_TORCH)
    assert (done.returncode, done.stdout) == (2, "cannot import torch: No module named 'torch'\n"), (
        done.stderr
    )


@pytest.mark.parametrize("device", ["", "auto", "gpu", "cuda:0", "CPU"])
def test_on_an_unknown_device_nothing_is_known(tmp_path: Path, device: str) -> None:
    done = run(write(tmp_path), flags=WITHOUT_TORCH, DEVICE=device)
    # -I ignores variables of Python only.
    assert (done.returncode, done.stdout) == (2, f"DEVICE = {device!r}, but should be cpu or cuda\n")


def test_arguments_that_it_does_not_know_are_refused(tmp_path: Path) -> None:
    done = run(write(tmp_path), "--device", "cpu", flags=WITHOUT_TORCH)
    assert done.returncode == 2
    assert done.stdout == "arguments = ['--device', 'cpu'], but should be none, --bisect, --here or --help\n"


def test_help_says_what_the_codes_mean_and_where_the_subject_is_looked_for(tmp_path: Path) -> None:
    done = run(write(tmp_path), "--help", flags=WITHOUT_TORCH)
    assert done.returncode == 0
    assert done.stdout.startswith("Counterexample to: ")
    assert "2 where it cannot be tried" in done.stdout
    assert "looked for in . from here" in done.stdout


@pytest.mark.parametrize("source", UNIMPORTABLE.values(), ids=UNIMPORTABLE)
def test_a_subject_that_cannot_be_imported_says_nothing(tmp_path: Path, source: str | None) -> None:
    script = write(tmp_path)
    module = tmp_path / "toy_halves.py"
    module.unlink() if source is None else module.write_text(source, encoding="utf-8")
    done = run(script)
    assert (done.returncode, done.stdout.startswith("cannot import toy_halves: ")) == (2, True), done
    assert run(script, "--bisect").returncode == 125


COPIES = (
    "def copied(source, target, before):\n    target.copy_(source)\n    target += {more}\n    return before\n"
)


def copies(folder: Path, more: int) -> Path:
    """A script about a copy between tensors that are called as functions of the script, and the defect if there is one."""
    ones, twos = Tensor("int64", (2,), (1, 1)), Tensor("int64", (2,), (2, 2))
    copied = call(
        "copied", source=Name("expect"), target=Name("snapshot"), before=7, bind="len", observes=("snapshot",)
    )
    steps = Let("expect", ones), Let("snapshot", twos), copied, call("copied", source=Name("expect"), target=Name("snapshot"), before=Name("len"), observes=("snapshot",))  # fmt: skip
    right, wrong = (Returned(7, after=(("snapshot", found),)) for found in (ones, twos))
    script = write(folder, subject="toy_copies", steps=steps, expected=(right, right), actual=(wrong, wrong))
    (folder / "toy_copies.py").write_text(COPIES.format(more=more), encoding="utf-8")
    return script


def test_what_is_called_as_a_function_of_the_script_is_called_otherwise(tmp_path: Path) -> None:
    text = copies(tmp_path, 0).read_text(encoding="utf-8")
    for name in ("expect", "snapshot", "len"):
        assert f"\n    own_{name} = " in text
        assert f"\n    {name} = " not in text


@pytest.mark.slow
@pytest.mark.parametrize("more", [0, 1])
def test_a_script_about_such_tensors_ends_by_the_defect(tmp_path: Path, more: int) -> None:
    done = run(copies(tmp_path, more))
    assert done.returncode == more, done
    assert ("own_snapshot[0] = 2, but should be 1" in done.stdout) is bool(more)


def test_memory_that_runs_out_says_nothing(tmp_path: Path) -> None:
    script = write(tmp_path)
    (tmp_path / "toy_halves.py").write_text(
        "def halved(x):\n    raise MemoryError('full')\n", encoding="utf-8"
    )
    done = run(script)
    assert (done.returncode, done.stdout) == (2, "it cannot be tried here: full\n"), done


def test_a_graph_without_a_gpu_says_nothing(tmp_path: Path) -> None:
    script = write(tmp_path, steps=(call("harness.capture", result=1, names=[]),), device="cuda")
    done = run(script, DEVICE="cpu")
    assert done.returncode == 2, done
    assert done.stdout.startswith("it cannot be tried here: graphs are captured on a GPU only")


@pytest.mark.parametrize("arguments", [(), ("--bisect",)])
def test_a_defect_is_there_until_it_is_gone(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    script = write(tmp_path)
    assert run(script, *arguments).returncode == 1
    (tmp_path / "toy_halves.py").write_text(HALVES.replace("2", "2 + 1"), encoding="utf-8")
    assert run(script, *arguments).returncode == 0


ENDINGS = {
    "exits with 0": ("import os\n    os._exit(0)", "the process ended: exit code 0\n"),
    "exits with 3": ("import os\n    os._exit(3)", "the process ended: exit code 3\n"),
    "is killed": ("import os\n    os.kill(os.getpid(), 11)", "the process ended: signal 11\n"),
    "sleeps": ("import time\n    time.sleep(1000)", "there was no answer within 1 s\n"),
    "holds the GIL": (
        "import re\n    re.match('(a+)+$', 'a' * 60 + 'b')",
        "there was no answer within 1 s\n",
    ),
}


@pytest.mark.parametrize("arguments", [(), ("--bisect",)], ids=["plain", "bisect"])
@pytest.mark.parametrize(("ends", "told"), ENDINGS.values(), ids=ENDINGS)
def test_a_case_that_ends_or_keeps_the_process_shows_the_defect(
    tmp_path: Path, ends: str, told: str, arguments: tuple[str, ...]
) -> None:
    script = write(tmp_path)
    (tmp_path / "toy_halves.py").write_text(f"def halved(x):\n    {ends}\n", encoding="utf-8")
    done = run(script, *arguments, TIME_LIMIT="1")
    assert (done.returncode, done.stdout) == (1, f"{told}the defect is there\n"), done


def test_an_import_that_ends_the_process_says_nothing(tmp_path: Path) -> None:
    script = write(tmp_path)
    (tmp_path / "toy_halves.py").write_text("import os\nos._exit(0)\n", encoding="utf-8")
    done = run(script)
    assert (done.returncode, "before the case began" in done.stdout) == (2, True), done
    assert run(script, "--bisect").returncode == 125


def test_a_time_limit_that_is_no_number_says_nothing(tmp_path: Path) -> None:
    done = run(write(tmp_path), flags=WITHOUT_TORCH, TIME_LIMIT="soon")
    assert done.returncode == 2
    assert done.stdout == "TIME_LIMIT = 'soon', but should be a number of seconds\n"


def test_a_script_shows_no_control_characters_of_the_subject(tmp_path: Path) -> None:
    script = write(tmp_path)
    raises = "raise RuntimeError('\x1b[2J\u202e')"
    prints = "import os\n    os.write(1, b'\x1b[2J')\n    print('\u202e')"
    (tmp_path / "toy_halves.py").write_text(f"def halved(x):\n    {prints}\n    {raises}\n", encoding="utf-8")
    done = run(script)
    assert (done.returncode, done.stdout.count(r"\x1b[2J"), done.stdout.count(r"\u202e")) == (1, 2, 2)
    assert not {"\x1b", "\u202e"} & set(done.stdout)


@pytest.mark.parametrize(("arguments", "code"), [((), 2), (("--bisect",), 125)])
def test_a_script_that_lacks_what_the_failure_depends_on_never_says_gone(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    script = write(tmp_path, depends_on="chance")
    assert run(script, *arguments).returncode == 1
    (tmp_path / "toy_halves.py").write_text(HALVES.replace("2", "2 + 1"), encoding="utf-8")
    done = run(script, *arguments)
    assert (done.returncode, "gone" in done.stdout) == (code, False), done
    assert "the failure depends on chance" in done.stdout


@pytest.mark.parametrize(("arguments", "code"), [((), 2), (("--bisect",), 125), (("--other",), 2)])
def test_a_script_that_asks_the_sanitizer_says_nothing_without_torch(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    script = write(tmp_path, actual=(Raised("OutsideView", "x", ()),))
    # As -I and -S, but for the process that it starts too.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n", encoding="utf-8")
    done = run(script, *arguments, PYTHONPATH=str(tmp_path))
    assert done.returncode == code, done
    assert "the defect is" not in done.stdout


def test_the_command_line_without_torch_says_nothing_of_the_subject() -> None:
    command = [sys.executable, "-S", "-m", "statecheck", "fuzz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert (done.returncode, "not installed" in done.stderr) == (3, True), done
