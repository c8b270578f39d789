"""Command lines that the documents and the ready files show, as a user would type them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.modules import ROOT

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
    """Each once, with what a reader has put in place of the placeholders."""
    found = [*_in_documents(), *_in_ready_files()]
    return sorted({_filled_in(" ".join(one.split())) for one in found} - set(FLAGS))


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
    """What of the repository is in its history, in another folder."""
    left_out = shutil.ignore_patterns(
        ".git", ".venv", ".vllm", ".hypothesis", "reports", "build", "__pycache__", ".*_cache"
    )
    shutil.copytree(ROOT, folder, ignore=left_out)
    return folder
