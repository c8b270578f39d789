"""Every command line that is shown to people is one that runs.

Here each is read as make and the command read it; the slow test runs them in a copy of the repository.
"""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from lab.bench.__main__ import bench
from lab.compatibility.__main__ import compatibility
from lab.docs.__main__ import docs
from lab.mutants.__main__ import mutants
from lab.prove.__main__ import prove
from statecheck.campaign.record import FILE
from statecheck.case.values import call
from statecheck.cli.main import statecheck
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT
from tests.helpers.parsing import options_of
from tests.unit.campaign.nightly_examples import a_record
from tests.unit.cli.printed_commands import copied, shown

COMMANDS = {
    "statecheck": statecheck,
    "lab.bench": bench,
    "lab.compatibility": compatibility,
    "lab.docs": docs,
    "lab.mutants": mutants,
    "lab.prove": prove,
}
SHOWN = shown()
FEWEST = 75
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def test_there_are_as_many_commands_as_there_were() -> None:
    print(f"{len(SHOWN)} commands are shown")
    assert len(SHOWN) >= FEWEST


def variables_and_words(command: str) -> tuple[dict[str, str], list[str]]:
    words = shlex.split(command)
    assigned = [word for word in words if re.match(r"[A-Z_]+=", word)]
    first = next((i for i, word in enumerate(words) if word not in assigned), len(words))
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


@needs_make
@pytest.mark.parametrize("command", SHOWN)
def test_a_command_is_one_that_there_is(command: str) -> None:
    _, words = variables_and_words(command)
    match words:
        case ["make", *rest]:
            _read_by_make(rest)
        case ["git", "bisect", "run", *rest]:
            assert rest == ["python", "repro.py", "--bisect"]
        case ["statecheck", name] if name in statecheck.commands:
            # A name; what the command is about is said elsewhere.
            pass
        case ["statecheck", *rest]:
            _read_by_command(rest)
        case [_, "-m", module, *rest] if module in COMMANDS:
            _read_by_command(rest, module)
        case [_, "-m", "pytest", *rest] | ["pytest", *rest]:
            _read_by_pytest(rest)
        case [_, "-m", "coverage", "run", "-m", "statecheck", *rest]:
            _read_by_command(rest)
        case [_, "-m", "coverage", "combine" | "html"]:
            pass
        case [_, "-m", "ruff", *_] if find_spec("ruff") is None:
            pytest.skip("ruff is not installed")
        case [_, "-m", module, *rest]:
            found = find_spec(module)
            assert found is not None
            assert found.origin is not None
            _read_by_module(Path(found.origin), rest)
        case [_, script]:
            assert script == "repro.py"
        case _:
            pytest.fail(f"this is no known command: {command}")


def _read_by_make(words: list[str]) -> None:
    line = ["make", "-n", *(word for word in words if not word.startswith("PYTHON=")), "PYTHON=python3"]
    found = subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)
    assert found.returncode == 0, found.stderr
    for recipe in found.stdout.replace("\\\n", " ").splitlines():
        if " -m " in recipe:
            given = shlex.split(recipe)
            at = given.index("-m") + 1
            if given[at] in COMMANDS:
                options_of(given[at + 1 :], COMMANDS[given[at]])


def _read_by_command(words: list[str], module: str = "statecheck") -> None:
    if words and "--help" not in words:
        options_of(words, COMMANDS[module])


def _read_by_pytest(words: list[str]) -> None:
    paths = [word for word in words if word.endswith(".py") or word.startswith("lab/")]
    modules = [words[i + 1] for i, word in enumerate(words) if word in ("-p", "--pyargs")]
    assert paths or modules
    assert all((ROOT / path).exists() for path in paths)
    assert all(find_spec(module) is not None for module in modules)


def _read_by_module(path: Path, words: list[str]) -> None:
    sources = path.parent.glob("*.py") if path.name == "__init__.py" else [path]
    text = "".join(source.read_text(encoding="utf-8") for source in sources)
    assert [word for word in words if word.startswith("--") and f'"{word}"' not in text] == []


SHORTER = (
    (r"BUDGET=\S+", "BUDGET=2s"),
    (r"--budget \S+", "--budget 2s"),
    (r"--examples 1000", "--examples 5"),
    (r"--max-examples 20", "--max-examples 3 --only chunks"),
    (r"(make (fuzz|nightly)( SUBJECT=\S+)?)$", r"\1 BUDGET=2s"),
    (r"(\bstatecheck (fuzz|nightly|exhaust))$", r"\1 --budget 2s"),
    (r"(--device cpu --only.*|fuzz -x.*)", r"\1 --budget 2s"),
)
"""The same command, with less to do."""
LEFT_OUT = {
    r"make (lint|types|test|table$|clean)|lab\.docs": "the suite itself, and what .ci/run does beside it",
    r"demo|tests\.": "has a test of its own",
    r"-m coverage|-m pip": "needs coverage.py, which the suite does not install",
    r"lab\.bench": "is run by its own tests, on less",
    r"compatibility": "takes hours; its parts are tested with a release that is pretended",
    r"--ray ": "needs a cluster",
    r"-m statecheck$": "names what has commands",
    r"^pytest -": "for the reader's own tests",
    r"-m ruff": "formats the reader's own change",
    r"-m pytest": "needs a GPU",
    r"vllm|sglang|statecheck bisect|replay-trace": "needs a release of an engine",
    r"make docs": "installs the tools of the site",
    r"lab\.conformance": "needs two results, and has a test of its own",
    r"--(llamacpp|transformers|mlx)|lab\.sequence_": "needs a release of a library",
    r"lab\.hunt|lab\.planted": "takes hours; lab/tests and tests/meta hunt for some defects",
    r"lab\.prove": "takes minutes; lab/tests proves single lemmas",
    r"mutants\b": "takes minutes or hours; lab/tests judges a small module",
    r"\b(conform|xfails|upstream)\b": "has a test of its own, on ports of one function",
    r"^statecheck (sanitize|replay|merge)$": "a name; the command has an argument",
}
FOUR = 4
"""GPUs that the longest list of them names."""
NO_GPU = re.compile(r"GPUS=|DEVICE=cuda|--gpus |--device cuda")
SHIFT_WINDOW = """
import torch
import triton
import triton.language as tl

@triton.jit
def shift_window(window_ptr, SIZE: tl.constexpr):
    lanes = tl.arange(0, SIZE)
    tl.store(window_ptr + lanes, tl.load(window_ptr + lanes + 3))

shift_window[(1,)](torch.arange(19, dtype=torch.int32), SIZE=16)
"""
PORT = """
STATECHECK_PROTOCOL = 2

def chunk_offsets(cu_seqlens, chunk_size):
    ends = [-(-(b - a) // chunk_size) for a, b in zip(cu_seqlens, cu_seqlens[1:])]
    return [sum(ends[:n]) for n in range(len(ends) + 1)]
"""
REQUESTS = """{"timestamp": 0, "input_length": 1200, "output_length": 8, "hash_ids": [1, 2, 3]}
{"timestamp": 500, "input_length": 1300, "output_length": 8, "hash_ids": [1, 2, 4]}
"""
MADE = re.compile(r"(\S+=(\S+|'[^']*') )*make ")
HALVES = "def halved(x):\n    return x // 2\n"


def left_out(command: str) -> bool:
    return any(re.search(pattern, command) for pattern in LEFT_OUT)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, with everything that the commands name."""
    folder = copied(tmp_path_factory.mktemp("printed") / "statecheck")
    for name, text in {
        "my_port.py": PORT,
        "folder/my_port.py": HALVES,
        "my_engine_subject.py": "from impl import *\n",
        "shift_window.py": SHIFT_WINDOW,
        "conversation.jsonl": REQUESTS,
        "toy_halves.py": HALVES,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copytree(folder / "corpus", folder / "my/corpus")
    _write_script(folder)
    _put_a_campaign(folder)
    return folder


def _put_a_campaign(folder: Path) -> None:
    """Leave a record, which `merge` takes."""
    a_record(subject="impl", device="cpu", commit="", corpus=[]).save(
        folder / "reports/campaigns/2026-11-21-night" / FILE
    )


def _write_script(folder: Path) -> None:
    from statecheck.case.values import Returned
    from statecheck.report.repro.script import repro_script

    case = a_case(
        subject="my_port",
        steps=(call("halved", x=4),),
        expected=(Returned(2),),
        actual=(Returned(3),),
    )
    (folder / "repro.py").write_text(repro_script(case, folder, folder), encoding="utf-8")


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As at a shell in the folder, where `python` is this interpreter."""
    bin_ = folder.parent / "bin"
    bin_.mkdir(exist_ok=True)
    for name, module in (("python", ""), ("python3", ""), ("statecheck", "-m statecheck")):
        script = bin_ / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    kept = ("HOME", "LANG", "TMPDIR", "HYPOTHESIS_STORAGE_DIRECTORY")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    variables["PATH"] = os.pathsep.join([str(bin_), os.environ["PATH"]])
    if MADE.match(command) and "PYTHON=" not in command.replace("PYTHONPATH=", ""):
        command += " PYTHON=python3"
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


def shorter(command: str) -> str:
    for pattern, replacement in SHORTER:
        command = re.sub(pattern, replacement, command)
    return command


def kind(command: str) -> str:
    """The command and what it is given, without values; how long it runs and by whom is left out."""
    words = re.sub(r"(^|-m )(statecheck |lab\.)", "make ", command).split()
    target = words[words.index("make") + 1] if "make" in words else words[0]
    given = (one.strip("-").partition("=")[0].lower() for one in words if re.match(r"--[a-z]|[A-Z_]+=", one))
    return " ".join([target, *sorted(set(given) - {"budget", "python", "pythonpath", "only"})])


KINDS = {kind(one): shorter(one) for one in SHOWN if not left_out(one)}
RUN = [
    one for name, one in KINDS.items() if not any(set(name.split()) < set(other.split()) for other in KINDS)
]
"""Not those that do less of the same than another one."""


@needs_make
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("command", RUN)
def test_a_command_runs_as_it_is_shown(command: str, place: Path) -> None:
    done = run(command, place)
    output = f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr, output
    if "git bisect" in command:
        # No bisection is under way.
        assert done.returncode == 128, output
    elif NO_GPU.search(command) and torch.cuda.device_count() < FOUR:
        assert done.returncode in (2, 3), output
    elif re.search(r"[ .]prove", command) and find_spec("z3") is None:
        assert "(the extra `prove`)" in done.stderr, output
    elif "sanitize" in command:
        # The kernel that the README shows is wrong.
        assert "RaceWithinProgram" in done.stdout + done.stderr, output
    else:
        # A budget as short as this one need not be enough, and make has no other code.
        assert done.returncode in (0, 2), output
        assert "exit 3" not in done.stderr, output


# Whatever the input is, since a busy machine comes to very few examples.
BROKEN = PORT.replace("return [sum(", "return [1 + sum(")
STARTED = {
    "make": "PYTHONPATH='of mine' make fuzz SUBJECT=my_broken BUDGET=4s ONLY=offsets",
    "an interpreter": "PYTHONPATH='of mine' python -m statecheck fuzz --subject my_broken --budget 4s --only offsets",
}
AGAIN = re.compile(
    r"PYTHONPATH='of mine' (?:make|'[^'\n]*python[^'\n]*'|\S*python\S*) [^`<>\n]*(?:replay|repro\.py)[^`<>\n]*"
)


@needs_make
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("started", STARTED.values(), ids=STARTED)
def test_what_a_campaign_prints_shows_the_defect_until_it_is_mended(started: str, tmp_path: Path) -> None:
    folder = copied(tmp_path / "it's statecheck")
    port = folder / "of mine" / "my_broken.py"
    port.parent.mkdir()
    port.write_text(BROKEN, encoding="utf-8")
    ended = run(started, folder)
    assert "FALSIFIED" in ended.stdout, ended
    pages = [*folder.glob("reports/*/report.*"), *folder.glob("reports/campaigns/*/*.*")]
    printed = {one for page in pages for one in AGAIN.findall(html.unescape(page.read_text()))}
    printed |= set(AGAIN.findall(ended.stdout))
    print(f"{len(printed)} commands in {len(pages)} files")
    assert {"replay", "repro"} == {"repro" if "repro.py" in one else "replay" for one in printed}
    # Two commands of one kind differ in the case or in the page alone.
    kinds = {kind(one): one for one in printed}
    found = {one: run(one, folder) for one in kinds.values()}
    assert {one: ended for one, ended in found.items() if not shows(ended)} == {}
    port.write_text(PORT, encoding="utf-8")
    last = {"repro.py" in one: one for one in kinds.values()}
    found = {one: run(one, folder) for one in last.values()}
    assert {one: ended for one, ended in found.items() if ended.returncode} == {}


def shows(ended: subprocess.CompletedProcess[str]) -> bool:
    values = ("FAILED: ", "the defect is there", "= 1 failed in ")
    return bool(ended.returncode) and any(one in ended.stdout for one in values)
