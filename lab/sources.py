"""The repository's own files, in a checkout and in an archive without git."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "corpus",
    "deploy",
    "docs",
    "examples",
    "impl",
    "oracle",
    "properties",
    "statecheck",
    "subjects",
    "tests",
    "lab",
)
TEXTS = (".css", ".j2", ".js", ".md", ".py", ".slurm", ".toml", ".txt", ".yaml", ".yml")


def files(*suffixes: str) -> Iterator[tuple[str, Path]]:
    """Those with one of these suffixes, in the root and in the folders: the path in the repository, and that in the system."""
    found = [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    for path in sorted(path for path in found if path.suffix in suffixes):
        yield path.relative_to(ROOT).as_posix(), path
