"""Every command line that is shown to people in documents and in ready files is read as make and the command read it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
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
