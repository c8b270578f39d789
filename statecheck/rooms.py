"""Where `impl`, `oracle`, `properties` and `subjects` lie, and how they are imported.

In a checkout they lie beside this package; an installed statecheck has them inside, so that site-packages gets one name.
They import each other by these names in both. Nothing is changed until `open_rooms` is called: a process that only
imports statecheck keeps its import path.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any

NAMES = ("impl", "oracle", "properties", "subjects")
PACKAGE = Path(__file__).resolve().parent
_INSTALLED = PACKAGE / "_installed"
FOLDER = _INSTALLED if (_INSTALLED / "oracle").is_dir() else PACKAGE.parent
"""The folder with the rooms, in which `statecheck` can be imported, too."""


def property_files() -> list[Path]:
    """The modules of properties."""
    return sorted((FOLDER / "properties").rglob("test_*.py"))


class _RoomFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, _: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname not in NAMES:
            return None
        return PathFinder.find_spec(fullname, [str(FOLDER)], target)


def open_rooms() -> None:
    """Let the names in `NAMES` be the packages of statecheck, in this process.

    Raises:
        ImportError: another module of such a name was imported before.
    """
    if any(isinstance(finder, _RoomFinder) for finder in sys.meta_path):
        return
    for name in NAMES:
        module = sys.modules.get(name)
        if module is not None:
            _require_own(module)
        else:
            _warn_of_hidden(name)
    sys.meta_path.insert(0, _RoomFinder())


def _require_own(module: ModuleType) -> None:
    file = Path(module.__file__ or ".").resolve()
    if FOLDER not in file.parents:
        raise ImportError(
            f"{module.__name__} = {file}, but should be the package of that name in {FOLDER} [statecheck]: "
            f"one process cannot import both; give yours another name, or run statecheck in another process"
        )


def _warn_of_hidden(name: str) -> None:
    spec = PathFinder.find_spec(name)
    if spec is not None and spec.origin is not None and FOLDER not in Path(spec.origin).resolve().parents:
        warnings.warn(
            f"{name} = {spec.origin} is hidden by statecheck's package of that name in this process",
            stacklevel=4,
        )


def with_working_folder() -> None:
    """Find a subject where the command is run, as `python -m` does, unless Python runs in safe-path mode."""
    folder = Path.cwd()
    if not sys.flags.safe_path and folder not in (Path(entry).resolve() for entry in sys.path):
        sys.path.insert(0, str(folder))


def is_checkout() -> bool:
    """Whether this is the repository, or an archive of it, and not what was installed from it."""
    return (FOLDER / "pyproject.toml").exists()


def release() -> str:
    """The version of statecheck: that of the checkout, or the one that is installed, with the commit that pip took it from where it knows one."""
    if is_checkout():
        project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
        return str(project["project"]["version"])
    try:
        found = distribution("statecheck")
    except PackageNotFoundError:
        return "unknown"
    # PEP 610: where pip took it from.
    origin: dict[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id", "")
    return f"{found.version} ({commit[:12]})" if commit else found.version


def home() -> Path:
    """The folder below which commands keep what they make: the checkout, or the working folder outside of one."""
    return FOLDER if is_checkout() else working_folder()


def working_folder() -> Path:
    """The folder in which this process works; `FOLDER` where that has been removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return FOLDER


def variables(folders: Iterable[str] | None = None) -> dict[str, str]:
    """Variables with which another Python process imports these rooms, whatever lies in its working folder.

    Args:
        folders: what else is to be on its import path; by default all that is on this process's.
    """
    return {"PYTHONPATH": os.pathsep.join(import_path(folders)), "PYTHONSAFEPATH": "1"}


def import_path(folders: Iterable[str] | None = None) -> list[str]:
    """An import path on which these rooms come first; see `variables`."""
    # Relative to the working folder, which may be another one there, or another one later.
    others = [str(working_folder() / folder) for folder in (sys.path if folders is None else folders)]
    return list(dict.fromkeys((str(FOLDER), *others)))


def added_to(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment with which Python imports these rooms, and beside them what its PYTHONPATH leads to."""
    folders = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {**environment, **variables(folders)}
