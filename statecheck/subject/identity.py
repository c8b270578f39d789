"""Which system a case belongs to, and which source of a subject was run, as far as files say so.

A case that no longer fails is fixed only where the source has changed.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import oracle
from statecheck.case import Case
from statecheck.subject.loading import BUILT_IN
from statecheck.subject.subject import Subject, is_documented

_MOST_FILES = 5_000
_NOT_VERIFIED = {*sys.stdlib_module_names, "torch", "triton", "numpy", "hypothesis", "pytest", "statecheck"}


def source_files(module: Any) -> list[Path]:
    """The Python files of its package, or those beside a single module; none for a module without a file."""
    path = Path(getattr(module, "__file__", None) or "")
    return sorted(path.parent.glob("**/*.py" if path.name == "__init__.py" else "*.py")) if path.name else []


def verified_files(module: Any) -> list[Path]:
    """The files of a port: its own, and those of the packages that a single module imports from, such as the engine's."""
    found = set(source_files(module))
    if Path(getattr(module, "__file__", None) or "").name != "__init__.py":
        for name in _imported(module):
            for folder in getattr(sys.modules[name], "__path__", ()):
                found.update(Path(folder).glob("**/*.py"))
    return sorted(found)


def _imported(module: Any) -> Iterator[str]:
    """The packages that the module's names come from."""
    names = {_origin(value).partition(".")[0] for value in vars(module).values()}
    return (name for name in sorted(names - _NOT_VERIFIED) if name in sys.modules)


def _origin(value: Any) -> str:
    """The module that a value was made in, or the name of a module."""
    # The class of a value may raise anything here.
    with suppress(Exception):
        return str(getattr(value, "__module__", None) or getattr(value, "__name__", ""))
    return ""


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


SOURCE = "source"
"""The key of `Case.first_seen` under which it stands."""


def source_of(subject: Subject) -> str:
    """The digest of its release, its Python files (see `verified_files`) and those of the rules; "" where it has too many."""
    return source_digest([*verified_files(subject.module), *source_files(oracle)], subject.release)


_OF_THE_HARNESS = "harness."
_BUILT_IN_NAMES = {module: name for name, module in BUILT_IN.items()}


def system_of(case: Case) -> str:
    """The system that the case belongs to: a subject's name without its release; "" for every subject.

    The rules for documented functions are the documents', so that a case which calls these alone says something about every port of
    them. What an engine, a library of sequences or a release's own object is asked has that system's configuration, models and features.
    A file needs no field for it: a case has the subject's name and the calls.
    """
    functions = {call.function for call in case.calls}
    bound = any(not (name.startswith(_OF_THE_HARNESS) or is_documented(name)) for name in functions)
    return system_named(case.subject) if bound else ""


def system_named(subject: str) -> str:
    """The system of a subject by its name; an adapter has one name, also where its module is named."""
    return _BUILT_IN_NAMES.get(subject, subject)
