"""The Python files of a module, and a digest of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_MOST_FILES = 5_000


def source_files(module: Any) -> list[Path]:
    """The Python files of its package, or those beside a single module; none for a module without a file."""
    path = Path(getattr(module, "__file__", None) or "")
    return sorted(path.parent.glob("**/*.py" if path.name == "__init__.py" else "*.py")) if path.name else []


def source_digest(paths: Sequence[Path], release: str = "") -> str:
    """Twelve hexadecimal digits that stand for a release and files; "" for no file, or for more than 5,000."""
    if not 0 < len(paths) <= _MOST_FILES:
        return ""
    digest = hashlib.sha256(release.encode())
    for path in paths:
        digest.update(path.name.encode())
        with suppress(OSError):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
