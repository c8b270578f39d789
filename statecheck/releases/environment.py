"""An environment for each release: made once, whole or not at all, and kept while anybody uses it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from statecheck.data.files import write_whole
from statecheck.data.locks import try_lock, wait_for_lock
from statecheck.releases import checkout as checkouts
from statecheck.releases.pip import install, install_release
from statecheck.releases.probe import probe
from statecheck.releases.project import VLLM, Project
from statecheck.releases.requirements import Needed, all_but_heavy, light, needed

_COMPLETE = "complete.json"
"""Written last, with the recipe: everything that is needed is installed."""
Tell = Callable[[str], None]
PINNED = ("torch", "triton")


@dataclass(frozen=True)
class Base:
    """Where an environment finds what it borrows.

    Args:
        python: the interpreter, links resolved.
        folders: those that its packages lie in.
        pins: what must not be replaced, as `torch==2.13.0+cpu`.
    """

    python: str
    folders: tuple[str, ...]
    pins: tuple[str, ...]

    @property
    def for_cpu(self) -> bool:
        """Whether its torch cannot use a GPU, as far as the version says."""
        return any(pin.startswith("torch==") and pin.endswith("+cpu") for pin in self.pins)


def this_base(without: Path) -> Base:
    """That of this process; packages below `without`, where the environments are, are not lent on."""
    # The same from within an environment that was made with it.
    python = str(Path(sys.executable).resolve())
    return Base(python, tuple(_lent(without)), tuple(filter(None, map(_pin, PINNED))))


def _lent(without: Path) -> list[str]:
    named = [Path(one) for one in sys.path if Path(one).name in ("site-packages", "dist-packages")]
    # The same environment may be reached through a link, as in a worktree.
    found = dict.fromkeys(str(one.resolve()) for one in named)
    return [one for one in found if without.resolve() not in Path(one).parents]


def _pin(name: str) -> str:
    try:
        return f"{name}=={importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return ""


@dataclass(frozen=True)
class Wanted:
    """A release by its version, or a checkout."""

    version: str
    checkout: Path | None = None
    project: Project = VLLM

    @property
    def key(self) -> str:
        """The name of its folder."""
        if self.checkout is None:
            return self.version
        return f"path-{hashlib.sha256(str(self.checkout).encode()).hexdigest()[:12]}"

    def __str__(self) -> str:
        return f"{self.project.name} {self.version}" + (f" in {self.checkout}" if self.checkout else "")


@dataclass(frozen=True)
class Environment:
    """The interpreter of an environment, and the lock that keeps others from making it anew meanwhile, if one can."""

    python: Path
    variables: dict[str, str]
    lock: int | None = None

    def leave(self) -> None:
        if self.lock is not None:
            os.close(self.lock)


@dataclass(frozen=True)
class Maker:
    """Makes environments below `root`.

    Args:
        module: what has to be importable in the end.
        tell: is given what takes a while.
    """

    base: Base
    root: Path = VLLM.root
    module: str = VLLM.adapter
    tell: Tell = print

    def enter(self, wanted: Wanted) -> Environment:
        """The environment, made if there is none, or none that was finished, or the base is another one by now.

        Raises:
            ValueError: it cannot be made.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.root / f"{wanted.key}.lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._make_sure(wanted, lock)
        except BaseException:
            os.close(lock)
            raise
        if wanted.checkout is not None:
            # It may have gone on since.
            put_down_version(wanted, _packages_of(self._folder(wanted)))
        return Environment(self.python(wanted), self.variables(wanted), lock)

    def is_ready(self, wanted: Wanted) -> bool:
        """Whether it is there, whole and made for this base."""
        try:
            found = json.loads((self._folder(wanted) / _COMPLETE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(found == self._recipe(wanted))

    def python(self, wanted: Wanted) -> Path:
        return self._folder(wanted) / "bin" / "python"

    def variables(self, wanted: Wanted) -> dict[str, str]:
        """Variables to run it with."""
        # Compiled files would be written beside the sources.
        return {"PYTHONPYCACHEPREFIX": str(self.root / f"{wanted.key}.pycache")} if wanted.checkout else {}

    def _make_sure(self, wanted: Wanted, lock: int) -> None:
        while True:
            self._wait(lock, wanted, shared=True)
            if self.is_ready(wanted):
                return
            self._wait(lock, wanted, shared=False)
            if not self.is_ready(wanted):
                self._make(wanted)

    def _wait(self, lock: int, wanted: Wanted, *, shared: bool) -> None:
        if not try_lock(lock, shared=shared):
            self.tell(f"statecheck: waiting for another process that sets up or uses {self._folder(wanted)}")
            wait_for_lock(lock, shared=shared)

    def _make(self, wanted: Wanted) -> None:
        folder = self._folder(wanted)
        self.tell(f"statecheck: setting up {wanted}, in {folder} (once, about a minute)")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            # pip is borrowed too, where there is one.
            venv.create(folder, symlinks=True, with_pip=find_spec("pip") is None)
            self._place(wanted, _packages_of(folder))
            self._fill(wanted, _packages_of(folder))
        except OSError as error:
            raise ValueError(f"{folder} cannot be made: {error} [{wanted.project.package}]") from error

    def _place(self, wanted: Wanted, packages: Path) -> None:
        """Have the environment find what it borrows, and the release itself."""
        lent = [str(wanted.checkout)] * (wanted.checkout is not None) + list(self.base.folders)
        (packages / "statecheck_lent.pth").write_text("\n".join(lent) + "\n", encoding="utf-8")
        if wanted.checkout is None:
            install_release(self.python(wanted), wanted.project, wanted.version)
            if not wanted.project.keeps_libraries:
                self._drop_libraries(packages / wanted.project.package)
        else:
            put_down_version(wanted, packages)

    def _fill(self, wanted: Wanted, packages: Path) -> None:
        """Install what the release requires, until it can be imported: what is light, and otherwise all but what is heavy."""
        required, error = _required_by(wanted, packages), ""
        everything = all_but_heavy(required)
        # Where the base has all that a checkout takes, there is nothing to install, and no index is needed.
        nothing: list[list[str]] = [[]] if wanted.checkout is not None else []
        for requirements in (*nothing, light(required, wanted.project), everything):
            if requirements is everything:
                self.tell(f"statecheck: {wanted} needs all that it requires: {error}")
            install(self.python(wanted), requirements, self.base.pins, str(wanted))
            error = probe(self.python(wanted), self.module, self.variables(wanted))
            if not error:
                recipe = json.dumps(self._recipe(wanted), indent=1)
                return write_whole(self._folder(wanted) / _COMPLETE, recipe, durable=False)
        rule = "importable with what it requires"
        raise ValueError(
            f"{wanted} is set up in {self._folder(wanted)}, but should be {rule}: {error} [{wanted.project.package}]"
        )

    def _drop_libraries(self, package: Path) -> None:
        """Libraries that were compiled for a GPU cannot be loaded beside a torch that has none; they are 90 % of a release."""
        if self.base.for_cpu:
            for path in package.rglob("*.so"):
                path.unlink()

    def _recipe(self, wanted: Wanted) -> dict[str, Any]:
        """What an environment is made of; one that is made of anything else is not the one that is wanted."""
        required = checkouts.requirements_of(wanted.checkout, wanted.project) if wanted.checkout else {}
        named = {
            "wanted": wanted.key,
            "light": list(wanted.project.light),
            "required": sorted(map(str, required.values())),
        }
        return named | {
            "python": self.base.python,
            "folders": list(self.base.folders),
            "pins": list(self.base.pins),
        }

    def _folder(self, wanted: Wanted) -> Path:
        return self.root / wanted.key


def put_down_version(wanted: Wanted, folder: Path) -> None:
    """Say in `folder` which version a checkout is: vLLM asks for its own, and without one does without Triton."""
    package, version = wanted.project.package, wanted.version
    for other in folder.glob(f"{package}-*.dist-info"):
        if other.name != f"{package}-{version}.dist-info":
            shutil.rmtree(other)
    path = folder / f"{package}-{version}.dist-info" / "METADATA"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", durable=False)


def _packages_of(folder: Path) -> Path:
    return next((folder / "lib").glob("python*/site-packages"))


def _required_by(wanted: Wanted, packages: Path) -> Needed:
    if wanted.checkout is not None:
        return checkouts.requirements_of(wanted.checkout, wanted.project)
    metadata = next(packages.glob(f"{wanted.project.package}-*.dist-info"))
    return needed(importlib.metadata.Distribution.at(metadata).requires or ())
