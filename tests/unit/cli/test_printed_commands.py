"""Commands that a campaign prints are run as they stand: they show the defect until it is mended."""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.modules import ROOT

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

PORT = """
STATECHECK_PROTOCOL = 2

def chunk_offsets(cu_seqlens, chunk_size):
    ends = [-(-(b - a) // chunk_size) for a, b in zip(cu_seqlens, cu_seqlens[1:])]
    return [sum(ends[:n]) for n in range(len(ends) + 1)]
"""
MADE = re.compile(r"(\S+=(\S+|'[^']*') )*make ")


def copied(folder: Path) -> Path:
    """A copy of the repository's files, in another folder."""
    left_out = shutil.ignore_patterns(
        ".git", ".venv", ".vllm", ".hypothesis", "reports", "build", "__pycache__", ".*_cache"
    )
    shutil.copytree(ROOT, folder, ignore=left_out)
    return folder


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
