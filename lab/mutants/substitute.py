"""A module with another text than its file's, in a process that has imported the module and others that depend on it."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from statecheck.rooms import import_path


class _Text(Loader):
    """Executes a text as a module, under the name of the module's file, so that tracebacks and Triton find its lines."""

    def __init__(self, file: str, content: bytes) -> None:
        self._file, self._content = file, content

    def exec_module(self, module: ModuleType) -> None:
        lines = self._content.decode().splitlines(keepends=True)
        # Without a time of the file, the cache believes the lines.
        linecache.cache[self._file] = (len(self._content), None, lines, self._file)
        exec(compile(self._content, self._file, "exec", dont_inherit=True), vars(module))  # noqa: S102 - a mutant


class _Finder(MetaPathFinder):
    def __init__(self, name: str, content: bytes) -> None:
        self._name, self._content = name, content

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        submodules = spec.submodule_search_locations
        return importlib.util.spec_from_file_location(
            fullname,
            spec.origin,
            loader=_Text(spec.origin, self._content),
            submodule_search_locations=submodules,
        )


def substitute(module: str, content: bytes, users: Iterable[str]) -> None:
    """Have the next import of a module execute `content`.

    Args:
        users: what is imported again, too; see `dependents`.
    """
    forget({module, *users})
    sys.meta_path.insert(0, _Finder(module, content))


_AT_START = """from pathlib import Path

from lab.mutants.substitute import substitute

substitute({module!r}, Path({text!r}).read_bytes(), ())
"""


def write_start(module: str, content: bytes, folder: Path) -> None:
    """Have every Python process that has the folder and statecheck on its path execute `content` for the module."""
    text = folder / "mutant.txt"
    text.write_bytes(content)
    (folder / "sitecustomize.py").write_text(
        _AT_START.format(module=module, text=str(text)), encoding="utf-8"
    )


def substitute_in_children(module: str, content: bytes, folder: Path) -> None:
    """Have Python processes that this one starts do the same.

    Args:
        folder: empty, and kept as long as they live.
    """
    write_start(module, content, folder)
    # Harness and tests hand their own import path on.
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *import_path()])


def forget(modules: Iterable[str]) -> None:
    """Have modules imported again when they are next asked for."""
    for name in modules:
        sys.modules.pop(name, None)
        package, _, last = name.rpartition(".")
        # `from package import module` would find it there.
        vars(sys.modules.get(package, ModuleType(""))).pop(last, None)


def dependents(module: str, files: Mapping[str, str]) -> set[str]:
    """The modules that import a module, directly or through others, and the module itself.

    Args:
        files: where the modules are, of which these are some.
    """
    imported_by = _imported_by(tuple(sorted(files.items())))
    found, waiting = {module}, [module]
    while waiting:
        for name in imported_by.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


def imported_files() -> dict[str, str]:
    """The modules that this process has imported, but those that belong to Python and to its environment."""
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    return {name: file for name, file in files.items() if file.startswith("/") and not _is_installed(file)}


def _is_installed(file: str) -> bool:
    return (
        not file.endswith(".py")
        or "site-packages" in file
        or "dist-packages" in file
        or file.startswith(sys.base_prefix)
    )


def files_of(root: Path, package: str) -> dict[str, str]:
    """The modules of a package that lies in `root`."""
    paths = [root / f"{package}.py", *sorted((root / package).rglob("*.py"))]
    return {module_of(path.relative_to(root).as_posix()): str(path) for path in paths if path.is_file()}


def module_of(path: str) -> str:
    """The name of the module in a file, whose path is one below the folder of its package."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def _imported_by(files: tuple[tuple[str, str], ...]) -> Mapping[str, set[str]]:
    users = dict[str, set[str]]()
    for name, file in files:
        for used in _imports(name, file):
            users.setdefault(used, set()).add(name)
    return users


@cache
def _imports(name: str, file: str) -> frozenset[str]:
    is_package = Path(file).name == "__init__.py"
    package = name if is_package else name.rpartition(".")[0]
    tree = ast.parse(Path(file).read_bytes())
    return frozenset(used for node in ast.walk(tree) for used in _named(node, package))


def _named(node: ast.AST, package: str) -> Iterator[str]:
    """What an import statement takes names from, or may import as a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *filter(None, [base])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)
