"""`make release`: the wheel and the source distribution, each verified in new environments with and without torch, and the notes of the tag.

Nothing is published. All of it lies in build/release: a person looks at it, tags the commit and uploads the two files.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

from lab.sources import ROOT
from statecheck.util.text import say

FOLDER = ROOT / "build" / "release"
TORCH = "torch==2.13.0"
"""Asked for alone and first: a CPU build; any other brings gigabytes of CUDA."""
WITHOUT_TORCH = (
    "import importlib.util as u, sys; sys.exit(bool(u.find_spec('torch') or u.find_spec('triton')))"
)
CHECKS = {
    "base": ("small_library", "sequences"),
    "kernels": ("my_port", "functions"),
}
"""Of each environment, by what is installed beside the package: a subject of examples/, and its profile."""


def notes(changelog: str, version: str) -> str:
    """The entries of a version.

    Raises:
        ValueError: there are none.
    """
    found = re.search(
        rf"^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if not found or not found[1].strip():
        raise ValueError(
            f"CHANGELOG.md has no entries of {version}, but should have a section `## {version}`"
        )
    return found[1].strip() + "\n"


def run(words: Sequence[str | Path], folder: Path = ROOT) -> None:
    """Run a program, with its output on the terminal.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    say(f"$ {' '.join(map(str, words))}")
    subprocess.run(words, cwd=folder, check=True)


def verify(name: str, distributions: Sequence[Path], installer: Sequence[str]) -> None:
    """Install each distribution into a new environment, and verify a subject from a folder without this checkout."""
    folder = FOLDER / name
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment" / "bin" / "python"
    install: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        *installer,
    ]
    subject, profile = CHECKS[name]
    for path in ROOT.joinpath("examples").rglob(f"{subject}.py"):
        shutil.copy(path, folder)
    if name == "kernels":
        run([*install, TORCH])
    for path in distributions:
        run([*install, f"{path}[kernels]" if name == "kernels" else path], folder)
        if name == "base":
            run([python, "-c", WITHOUT_TORCH], folder)
        command = folder / "environment" / "bin" / "statecheck"
        run([command, "conform", "--subject", subject, "--profile", profile], folder)
        run([python, "-m", "pip", "uninstall", "-q", "-y", "statecheck"], folder)


def main() -> int:
    """Build, verify and write the notes."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    text = notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    shutil.rmtree(FOLDER, ignore_errors=True)
    tools = FOLDER / "tools"
    venv.create(tools, with_pip=True)
    run([tools / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "build>=1.2"])
    # The wheel is built from the source distribution, which so is whole.
    run([tools / "bin" / "python", "-m", "build", "--outdir", FOLDER / "dist", ROOT])
    distributions = sorted((FOLDER / "dist").iterdir())
    for name in CHECKS:
        verify(name, distributions, ("-c", str(ROOT / "constraints.txt")))
    (FOLDER / "notes.md").write_text(text, encoding="utf-8")
    for path in (*distributions, FOLDER / "notes.md"):
        say(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    if "(unreleased)" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        say(
            f"CHANGELOG.md says (unreleased): write the date beside {version}, commit, and then: git tag v{version}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
