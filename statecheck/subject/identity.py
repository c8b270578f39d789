"""Which source of a subject was run, as far as files say so: a case that no longer fails is fixed only where that has changed."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import oracle
from statecheck.subject.subject import Subject

SOURCE = "source"
"""The key of `Case.first_seen` under which it stands."""
_MOST_FILES = 5_000


def source_of(subject: Subject) -> str:
    """Twelve hexadecimal digits that stand for its release, its Python files and those of the rules; "" where it has too many.

    Its files are those of its package, or those beside a single module.
    """
    paths = [*_files(subject.module), *_files(oracle)]
    if len(paths) > _MOST_FILES:
        return ""
    digest = hashlib.sha256(subject.release.encode())
    for path in paths:
        digest.update(path.name.encode())
        with suppress(OSError):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _files(module: ModuleType) -> list[Path]:
    path = Path(getattr(module, "__file__", None) or "")
    return sorted(path.parent.glob("**/*.py" if path.name == "__init__.py" else "*.py")) if path.name else []
