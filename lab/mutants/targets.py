"""What is mutated, and which pytest items judge the mutants."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from statecheck.rooms import FOLDER, NAMES

TESTS, UNIT = "tests", "tests/unit"
ORACLE, HARNESS = "oracle", "statecheck"
_WITH_TESTS = (ORACLE, HARNESS, "properties", "subjects")


@dataclass(frozen=True)
class Target:
    """Files of one package, and their judges.

    Args:
        package: the package's name.
        root: the folder that the package lies in.
        paths: the files, below `root`, with "/" between the parts.
        judges: files and folders of the items that judge.
        options: pytest's, for these items.
        without: a package that none of these items may run a line of.
        watched: whether kernels of the package are launched by the judges, so that variants are recorded.
        home: the folder that the items' ids begin in.
    """

    package: str
    root: Path
    paths: tuple[str, ...]
    judges: tuple[str, ...]
    options: tuple[str, ...]
    without: str = ""
    watched: bool = False
    home: Path = FOLDER

    def content(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def source(self, path: str) -> str:
        """The digest of a file and of the arguments of its judges; a result counts as long as this is the same."""
        judges = " ".join((*self.judges, *self.options)).replace(str(FOLDER), "")
        return hashlib.sha256(judges.encode() + self.content(path)).hexdigest()[:16]

    @property
    def all_paths(self) -> tuple[str, ...]:
        """The files of the whole package: which of them an item uses decides about what others import of it."""
        return tuple(_files(self.root, self.package))

    @property
    def by_line(self) -> tuple[str, ...]:
        """The files whose lines are recorded one by one: all, but for a package that is installed, which may have thousands."""
        return self.paths if "site-packages" in self.root.parts else self.all_paths

    @property
    def digest(self) -> str:
        """The digest of all files that decide which items reach which lines."""
        digest = hashlib.sha256(f"{self.judges} {self.options} {self.by_line} {sys.version}".encode())
        rooms = (*NAMES, HARNESS, f"{UNIT}/{self.package}" if self.watched else TESTS)
        for folder in dict.fromkeys([self.root / self.package, *(FOLDER / name for name in rooms)]):
            for path in sorted(folder.rglob("*.py")):
                if path.parent.name != "mutants":
                    digest.update(path.read_bytes())
        return digest.hexdigest()


def targets(subject: str, files: Sequence[str]) -> list[Target]:
    """The packages whose files are mutated.

    Args:
        subject: judges files outside of the oracle and the harness.
        files: files or folders such as `oracle/chunks.py`, `impl/align` and `oracle`, or patterns of such; by default the
            package that `subject` is made of.

    Raises:
        ValueError: nothing has such a name, or there are no tests to judge it.
    """
    packages = dict[str, list[str]]()
    for wanted in files or [_package_of(subject)]:
        name = wanted.strip("/").partition("/")[0]
        packages.setdefault(name.removesuffix(".py"), []).append(wanted.strip("/"))
    return [_target(package, chosen, subject) for package, chosen in packages.items()]


def _package_of(subject: str) -> str:
    return subject.partition("+")[0].partition(".")[0]


def _target(package: str, chosen: Sequence[str], subject: str) -> Target:
    root = _root(package)
    paths = tuple(
        path for path in _files(root, package) if any(_is_in(path, wanted.rstrip("/")) for wanted in chosen)
    )
    if not paths:
        raise ValueError(f"files = {list(chosen)}, but should be files or folders below {root} [mutants]")
    if package not in _WITH_TESTS:
        # Some of a package has no property: constants, or launches that only a GPU has.
        tests = [str(folder) for folder in [FOLDER / UNIT / package] if folder.is_dir()]
        judges = (str(FOLDER / "properties"), *tests)
        return Target(package, root, paths, judges, ("--subject", subject, "--device", "cpu"), watched=True)
    if not (FOLDER / TESTS).is_dir():
        raise ValueError(
            f"files = {list(chosen)}, but should be a subject's: {FOLDER} has no tests [mutants]"
        )
    if package == ORACLE:
        # The oracle's own examples and laws: what asks `impl`, too, would let both be wrong together.
        return Target(
            package, root, paths, (str(FOLDER / TESTS / ORACLE),), ("--noconftest",), without="impl"
        )
    return Target(package, root, paths, (str(FOLDER / TESTS),), ("--device", "cpu"))


def _root(package: str) -> Path:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise ValueError(f"files = {package!r}, but should begin with the name of a package [mutants]")
    origin = Path(spec.origin)
    return origin.parent.parent if origin.name == "__init__.py" else origin.parent


def _files(root: Path, package: str) -> Iterator[str]:
    if (root / f"{package}.py").is_file():
        yield f"{package}.py"
    for path in sorted((root / package).rglob("*.py")):
        yield path.relative_to(root).as_posix()


def _is_in(path: str, wanted: str) -> bool:
    return path in (wanted, f"{wanted}.py") or path.startswith(f"{wanted}/") or fnmatch(path, wanted)
