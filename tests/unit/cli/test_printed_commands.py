"""Every command line that is shown to people is read as make and the command read it; commands that a campaign prints are run."""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from lab.bench.__main__ import bench
from lab.compatibility.__main__ import compatibility
from lab.docs.__main__ import docs
from lab.mutants.__main__ import mutants
from lab.prove.__main__ import prove
from statecheck.cli.main import statecheck
from tests.helpers.modules import ROOT
from tests.helpers.parsing import options_of

COMMANDS = {
    "statecheck": statecheck,
    "lab.bench": bench,
    "lab.compatibility": compatibility,
    "lab.docs": docs,
    "lab.mutants": mutants,
    "lab.prove": prove,
}
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
DOCUMENTS = ("*.md", "docs/*.md", "corpus/*.md", "tests/*.md")
READY_FILES = (".ci/run", ".github/workflows/*.yml", "deploy/*")
A_CASE = "0cf9c118dc"
PLACEHOLDERS = {
    "reports/…/case.json": A_CASE,
    "…/case.json": A_CASE,
    "replay …": f"replay {A_CASE}",
    "bisect …": f"bisect {A_CASE}",
    "<folder>/case.json": A_CASE,
    " …": "",
    " COMMAND": " fuzz",
    "<id>": A_CASE,
    "<address>": "auto",
    "d28c6ca199": A_CASE,
    "slurm-N-shard*": "*",
    "NAME-shard*": "*",
    "merge shards": "merge reports/campaigns/2026-11-21-night",
    "$BUDGET": "8h",
    "${BUDGET:-8h}": "8h",
    "${PYTHON:-python3}": "python3",
}
"""What stands for something of the reader's, and what it is here."""
FLAGS = ("pytest -k", "python -O")
"""Not commands, but an option of one that is meant."""
_PROGRAM = r"(?:[A-Z_]+=\S+ )*(?:make|git bisect|pytest|statecheck|python3?|\S+/bin/python) "
_LINE = re.compile(rf"^(?: {{4}}|\$ )({_PROGRAM}\S.*?)(?:\s{{2,}}#.*| # .*)?$", re.MULTILINE)
_SPAN = re.compile(rf"`({_PROGRAM}[^`]+)`")
_READY = re.compile(
    r"((?:\bmake|\bpython3 -m statecheck|\S*/python -m (?:statecheck|lab\.[a-z]+)) [a-z-]+(?: (?:\"[^\"]*\"|[^\s\"',&|;])+)*)"
)


def shown() -> list[str]:
    """Each shown command once, with a reader's values in place of the placeholders."""
    found = [*_in_documents(), *_in_ready_files()]
    return sorted({_filled_in(" ".join(command.split())) for command in found} - set(FLAGS))


def _in_documents() -> Iterator[str]:
    for text in _texts(DOCUMENTS):
        yield from _LINE.findall(text)
        yield from _SPAN.findall(text)


def _in_ready_files() -> Iterator[str]:
    for text in _texts(READY_FILES):
        # A command that is a list of words.
        command_lines = re.sub(r"\[(python3, [^]]*)\]", lambda found: found[1].replace(",", ""), text)
        yield from _READY.findall(re.sub(r"^#SBATCH.*", "", command_lines, flags=re.MULTILINE))


def _texts(patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                yield path.read_text(encoding="utf-8")


def _filled_in(command: str) -> str:
    command = command.partition(" > ")[0]
    for placeholder, value in PLACEHOLDERS.items():
        command = command.replace(placeholder, value)
    return command


def copied(folder: Path) -> Path:
    """A copy of the repository's files, in another folder."""
    left_out = shutil.ignore_patterns(
        ".git", ".venv", ".vllm", ".hypothesis", "reports", "build", "__pycache__", ".*_cache"
    )
    shutil.copytree(ROOT, folder, ignore=left_out)
    return folder


def variables_and_words(command: str) -> tuple[dict[str, str], list[str]]:
    words = shlex.split(command)
    assigned = [word for word in words if re.match(r"[A-Z_]+=", word)]
    first = next((i for i, word in enumerate(words) if word not in assigned), len(words))
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


@needs_make
@pytest.mark.parametrize("command", shown())
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
        case [_, script, *options]:
            assert script == "repro.py"
            assert options in ([], ["--extract", "FOLDER"])
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
    # With this switch the tests are those of another project, in its repository.
    elsewhere = "--cuda-on-cpu" in words
    paths = [] if elsewhere else [word for word in words if word.endswith(".py") or word.startswith("lab/")]
    modules = [words[i + 1] for i, word in enumerate(words) if word in ("-p", "--pyargs")]
    assert paths or modules
    assert all((ROOT / path).exists() for path in paths)
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
    """Run a command as a shell in the folder does, where `python` is this interpreter."""
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


def kind(command: str) -> str:
    """The command and what it is given, without values; how long it runs and by whom is left out."""
    words = re.sub(r"(^|-m )(statecheck |lab\.)", "make ", command).split()
    target = words[words.index("make") + 1] if "make" in words else words[0]
    given = (
        word.strip("-").partition("=")[0].lower() for word in words if re.match(r"--[a-z]|[A-Z_]+=", word)
    )
    return " ".join([target, *sorted(set(given) - {"budget", "python", "pythonpath", "only"})])


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
def test_printed_commands_of_a_campaign_show_the_defect_until_it_is_mended(
    started: str, tmp_path: Path
) -> None:
    folder = copied(tmp_path / "it's statecheck")
    port = folder / "of mine" / "my_broken.py"
    port.parent.mkdir()
    port.write_text(BROKEN, encoding="utf-8")
    ended = run(started, folder)
    assert "FALSIFIED" in ended.stdout, ended
    pages = [*folder.glob("reports/*/report.*"), *folder.glob("reports/campaigns/*/*.*")]
    printed = {command for page in pages for command in AGAIN.findall(html.unescape(page.read_text()))}
    printed |= set(AGAIN.findall(ended.stdout))
    print(f"{len(printed)} commands in {len(pages)} files")
    assert {"replay", "repro"} == {"repro" if "repro.py" in command else "replay" for command in printed}
    # Two commands of one kind differ in the case or in the page alone.
    kinds = {kind(command): command for command in printed}
    found = {command: run(command, folder) for command in kinds.values()}
    assert {command: ended for command, ended in found.items() if not shows(ended)} == {}
    port.write_text(PORT, encoding="utf-8")
    last = {"repro.py" in command: command for command in kinds.values()}
    found = {command: run(command, folder) for command in last.values()}
    assert {command: ended for command, ended in found.items() if ended.returncode} == {}


def shows(ended: subprocess.CompletedProcess[str]) -> bool:
    values = ("FAILED: ", "the defect is there", "= 1 failed in ")
    return bool(ended.returncode) and any(text in ended.stdout for text in values)
