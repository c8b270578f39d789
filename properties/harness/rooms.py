"""Where `impl`, `oracle` and `properties` lie: in a checkout, or within the installed package `statecheck`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parents[2]


def is_checkout() -> bool:
    """Whether this is the repository, or an archive of it, and not what was installed from it."""
    return (FOLDER / "pyproject.toml").exists()


def home() -> Path:
    """The folder below which commands keep what they make: the checkout, or the working folder outside of one."""
    return FOLDER if is_checkout() else Path.cwd()


def variables(folders: Iterable[str] | None = None) -> dict[str, str]:
    """Variables with which another Python process imports these rooms, whatever lies in its working folder.

    Args:
        folders: what else is to be on its import path; by default all that is on this process's.
    """
    # An empty entry means the working folder, which may be another one there.
    others = [one or str(Path.cwd()) for one in (sys.path if folders is None else folders)]
    path = dict.fromkeys((str(FOLDER), *others))
    return {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}


def added_to(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment with which Python imports these rooms, and beside them what its PYTHONPATH leads to."""
    folders = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    return {**environment, **variables(folders)}


@contextmanager
def importable() -> Iterator[None]:
    """While it is entered, the rooms come first on the import path."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield
    finally:
        sys.path.remove(str(FOLDER))


def require_own(module: ModuleType) -> None:
    """Refuse a module that has the name of a room and is not it.

    Raises:
        ImportError: it lies elsewhere.
    """
    file = Path(module.__file__ or ".").resolve()
    if FOLDER not in file.parents:
        raise ImportError(f"{module.__name__} = {file}, but should be in {FOLDER} [rooms]")
