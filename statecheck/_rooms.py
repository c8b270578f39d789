"""How `impl`, `oracle` and `properties` are found where only the package `statecheck` is on the import path.

They import each other by these names, in a checkout as here. Nothing is changed until `open_rooms` is called, so that
whoever has statecheck installed and does not use it notices nothing.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

NAMES = ("impl", "oracle", "properties")
_HERE = Path(__file__).resolve().parent
# In a checkout they lie beside this package.
FOLDER = _HERE / "rooms" if (_HERE / "rooms").is_dir() else _HERE.parent


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, _: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname not in NAMES:
            return None
        return PathFinder.find_spec(fullname, [str(FOLDER)], target)


def open_rooms() -> None:
    """Let `impl`, `oracle` and `properties` be those of statecheck, in this process.

    Raises:
        ImportError: another module of such a name was imported before.
    """
    if any(isinstance(one, _Finder) for one in sys.meta_path):
        return
    for name in NAMES:
        module = sys.modules.get(name)
        if module is not None:
            _require_own(module)
        else:
            _warn_of_hidden(name)
    sys.meta_path.insert(0, _Finder())


def with_working_folder() -> None:
    """Find a subject where the command is run, as `python -m` does, unless Python was told not to."""
    folder = Path.cwd()
    if not sys.flags.safe_path and folder not in (Path(one).resolve() for one in sys.path):
        sys.path.insert(0, str(folder))


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
