"""Every command line that is shown to people is one that runs.

Each is read as make and the command read it; those that a campaign prints are run in a copy of the repository.
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

from statecheck.cli.main import parser
from tests.breakages.broken import ROOT
from tests.cli.printed_commands import copied, shown
from tools.bench.__main__ import parser as bench_parser
from tools.docs.__main__ import parser as docs_parser

PARSERS = {"statecheck": parser, "tools.bench": bench_parser, "tools.docs": docs_parser}
SHOWN = shown()
FEWEST = 75
NEEDS = re.compile(r"make [a-z-]+ needs [A-Z_]+=")
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
        case ["node", script, *_]:
            assert (ROOT / "vectors" / Path(script).name).is_file()
        case ["git", "bisect", "run", *rest]:
            assert rest == ["python", "repro.py", "--bisect"]
        case ["statecheck", *rest]:
            _read_by_command(rest)
        case [_, "-m", module, *rest] if module in PARSERS:
            _read_by_command(rest, module)
        case [_, "-m", "pytest", *rest] | ["pytest", *rest]:
            _read_by_pytest(rest)
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
    if len(words) == 1 and NEEDS.search(found.stderr):
        return
    assert found.returncode == 0, found.stderr
    for recipe in found.stdout.replace("\\\n", " ").splitlines():
        if " -m " in recipe:
            given = shlex.split(recipe)
            at = given.index("-m") + 1
            if given[at] in PARSERS:
                PARSERS[given[at]]().parse_args(given[at + 1 :])


def _read_by_command(words: list[str], module: str = "statecheck") -> None:
    if words and words != ["--help"]:
        PARSERS[module]().parse_args(words)


def _read_by_pytest(words: list[str]) -> None:
    paths = [word for word in words if word.endswith(".py")]
    modules = [words[i + 1] for i, word in enumerate(words) if word in ("-p", "--pyargs")]
    assert paths or modules
    assert all((ROOT / path).is_file() for path in paths)
    assert all(find_spec(module) is not None for module in modules)


def _read_by_module(path: Path, words: list[str]) -> None:
    sources = path.parent.glob("*.py") if path.name == "__init__.py" else [path]
    text = "".join(source.read_text(encoding="utf-8") for source in sources)
    assert [word for word in words if word.startswith("--") and f'"{word}"' not in text] == []


PORT = """
STATECHECK_PROTOCOL = 2

def chunk_offsets(cu_seqlens, chunk_size):
    ends = [-(-(b - a) // chunk_size) for a, b in zip(cu_seqlens, cu_seqlens[1:])]
    return [sum(ends[:n]) for n in range(len(ends) + 1)]
"""
MADE = re.compile(r"(\S+=(\S+|'[^']*') )*make ")


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As at a shell in the folder, where `python` is this interpreter."""
    bin_ = folder.parent / "bin"
    bin_.mkdir(exist_ok=True)
    for name in ("python", "python3"):
        script = bin_ / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    kept = ("HOME", "LANG", "TMPDIR", "HYPOTHESIS_STORAGE_DIRECTORY")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    variables["PATH"] = os.pathsep.join([str(bin_), os.environ["PATH"]])
    if MADE.match(command) and "PYTHON=" not in command.replace("PYTHONPATH=", ""):
        command += " PYTHON=python3"
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


# Whatever the input is, since a busy machine comes to very few examples.
BROKEN = PORT.replace("return [sum(", "return [1 + sum(")
STARTED = {
    "make": "PYTHONPATH='of mine' make fuzz SUBJECT=my_broken BUDGET=4s ONLY='offsets or prepare'",
    "an interpreter": "PYTHONPATH='of mine' python -m statecheck fuzz --subject my_broken --budget 4s",
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
    found = {one: run(one, folder) for one in printed}
    assert {one: ended for one, ended in found.items() if not shows(ended)} == {}
    port.write_text(PORT, encoding="utf-8")
    found = {one: run(one, folder) for one in printed}
    assert {one: ended for one, ended in found.items() if ended.returncode} == {}


def shows(ended: subprocess.CompletedProcess[str]) -> bool:
    values = ("FAILED: ", "the defect is there", "= 1 failed in ")
    return bool(ended.returncode) and any(one in ended.stdout for one in values)
