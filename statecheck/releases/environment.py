"""Environments of releases: each is a virtual environment that borrows the packages of this one, and is made once.

torch, Triton and what else is installed here is borrowed by a .pth file. The release itself is installed without its requirements,
which would bring gigabytes for GPUs; projects.toml lists the few that importing it takes. A checkout is put on the path, and nothing
is written to it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from statecheck import rooms
from statecheck.subject.loading import Project
from statecheck.util import limits
from statecheck.util.files import write_whole
from statecheck.workers.commands import run_command

_COMPLETE = "complete.json"
"""Written last, with what the environment was made of: everything that is needed is installed."""
_BORROWED = ("torch", "triton")
"""Never installed into an environment, whatever a requirement asks for."""
_NEWEST = "999"
"""The version of a checkout that does not say its own."""
_LINES = 12


@dataclass(frozen=True)
class Release:
    """A release of a project by its version, or a checkout of the project that counts as that version."""

    project: Project
    version: str
    checkout: Path | None = None

    @property
    def folder(self) -> Path:
        """Of its environment."""
        if self.checkout is None:
            return self.project.root / self.version
        return self.project.root / f"path-{hashlib.sha256(str(self.checkout).encode()).hexdigest()[:12]}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        return next((self.folder / "lib").glob("python*/site-packages"))

    @property
    def variables(self) -> dict[str, str]:
        """Variables to run its interpreter with: compiled files of a checkout would be written beside the sources."""
        return {"PYTHONPYCACHEPREFIX": f"{self.folder}.pycache"} if self.checkout else {}

    def __str__(self) -> str:
        return f"{self.project.name} {self.version}" + (f" in {self.checkout}" if self.checkout else "")


def enter(release: Release) -> Path:
    """The interpreter of a release's environment, which is made if there is none, or if this one borrows from another place.

    Raises:
        ValueError: it cannot be made.
    """
    with _locked(release):
        if not is_ready(release):
            print(f"statecheck: setting up {release}, in {release.folder} (once, about a minute)", flush=True)
            try:
                _make(release)
            except OSError as error:
                raise ValueError(f"{release.folder} cannot be made: {error}") from error
        elif release.checkout is not None:
            # It may have gone on since.
            _write_version(release)
    return release.python


@contextmanager
def _locked(release: Release) -> Iterator[None]:
    """Wait for another process that makes the same environment."""
    release.project.root.mkdir(parents=True, exist_ok=True)
    with Path(f"{release.folder}.lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"statecheck: waiting for another process that sets up {release.folder}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_ready(release: Release) -> bool:
    """Whether its environment is whole, and borrows from this one."""
    try:
        made_of = json.loads((release.folder / _COMPLETE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return all(made_of.get(name) == value for name, value in _ingredients(release).items())


def _ingredients(release: Release) -> dict[str, Any]:
    """What an environment is made of, beside the release: the interpreter, the packages that it borrows, and what a checkout requires."""
    root = release.project.root.resolve()
    # The same environment may be reached through a link, as in a worktree. Those of releases lend nothing.
    lenders = [
        Path(one).resolve() for one in sys.path if Path(one).name in ("site-packages", "dist-packages")
    ]
    found = {
        "python": str(Path(sys.executable).resolve()),
        "folders": list(dict.fromkeys(str(lender) for lender in lenders if root not in lender.parents)),
        "pins": [f"{name}=={version}" for name in _BORROWED if (version := installed_version(name))],
    }
    return found | ({"required": _requirements(release)} if release.checkout is not None else {})


def installed_version(name: str) -> str:
    """The version of a distribution of this environment, "" if there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _make(release: Release) -> None:
    project, ingredients = release.project, _ingredients(release)
    shutil.rmtree(release.folder, ignore_errors=True)
    # pip is borrowed, too, where there is one.
    venv.create(release.folder, symlinks=True, with_pip=not find_spec("pip") and not shutil.which("uv"))
    packages = release.packages
    paths = [*([str(release.checkout)] if release.checkout else []), *ingredients["folders"]]
    (packages / "statecheck_lent.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    if release.checkout is not None:
        _write_version(release)
    else:
        only = ("--no-deps", "--only-binary", project.package)
        _install(release, [*only, f"{project.package}=={release.version}"], ingredients["pins"])
        if not project.keeps_libraries and any(pin.endswith("+cpu") for pin in ingredients["pins"]):
            # What was compiled for a GPU cannot be loaded beside a torch that has none; it is 90 % of a release.
            for path in (packages / project.imports).rglob("*.so"):
                path.unlink()
    # Where this environment has all that a checkout takes, no index is needed.
    if release.checkout is None or _import_error(release, project.adapter):
        _install(release, _requirements(release), ingredients["pins"])
        if error := _import_error(release, project.adapter):
            if not _import_error(release, project.imports):
                raise ValueError(
                    f"{release} can be imported, but statecheck's adapter for it, {project.adapter}, cannot: {error} "
                    f"(it is tried with {', '.join(project.compared)})"
                )
            raise ValueError(
                f"{release} is set up in {release.folder}, but should be importable, too: {error} "
                f"(subjects/projects.toml lists what is installed)"
            )
    write_whole(release.folder / _COMPLETE, json.dumps(ingredients, indent=1), durable=False)


def _install(release: Release, words: Sequence[str], pins: Sequence[str]) -> None:
    """Install with uv, or with pip where there is no uv.

    Raises:
        ValueError: with what the installer said last.
    """
    if not words:
        return
    with tempfile.TemporaryDirectory() as folder:
        pinned, left_out = Path(folder, "pinned.txt"), Path(folder, "left_out.txt")
        pinned.write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
        if uv := shutil.which("uv"):
            # uv does not see what is borrowed: a condition that never holds keeps it from installing that again.
            left_out.write_text("".join(f"{name}; python_version < '3'\n" for name in _BORROWED), "utf-8")
            command = [
                uv,
                "pip",
                "install",
                "--quiet",
                "--python",
                str(release.python),
                "--override",
                str(left_out),
            ]
        else:
            quiet = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off", "-c", str(pinned))
            command = [str(release.python), "-m", "pip", "install", *quiet]
        done = run_command([*command, *words])
    if done.returncode:
        # Without the lines about what was looked at on the way.
        output = (done.stdout + done.stderr).splitlines()
        lines = [line for line in output if line.strip() and "is ignored: it is" not in line]
        raise ValueError("\n".join([f"{release} cannot be set up: {command[0]} failed", *lines[-_LINES:]]))


def _import_error(release: Release, module: str) -> str:
    """Why a module cannot be imported in the environment; "" where it can."""
    script = "import importlib, sys; from statecheck import rooms; importlib.import_module(sys.argv[1])"
    variables = rooms.added_to({**os.environ, **release.variables})
    done = run_command([str(release.python), "-c", script, module], variables=variables)
    lines = done.stderr.split("\n") if done.returncode else []
    return next(
        (line for line in reversed(lines) if line.strip()), f"exit code {done.returncode}" if lines else ""
    )


def _requirements(release: Release) -> list[str]:
    """What to install beside the release: the project's list, in the versions that the release asks for."""
    project, declared = release.project, _declared(release)
    if declared is None:
        return [*project.requirements, *project.undeclared]
    required = _required(declared)
    chosen = [f"{name}{required[name]}" for name in project.requirements if name in required]
    return [*chosen, *project.undeclared]


def _declared(release: Release) -> Sequence[str] | None:
    """The requirements that a release or a checkout declares, None where it has them in no file that is known."""
    checkout = release.checkout
    if checkout is None:
        metadata = next(release.packages.glob(f"{release.project.package}-*.dist-info"))
        return importlib.metadata.Distribution.at(metadata).requires or []
    listed, described = checkout / "requirements" / "common.txt", checkout / "pyproject.toml"
    if listed.is_file():
        return listed.read_text(encoding="utf-8").splitlines()
    project = tomllib.loads(described.read_text(encoding="utf-8")) if described.is_file() else {}
    lines: list[str] | None = project.get("project", {}).get("dependencies")
    return lines


def _required(lines: Iterable[str]) -> Mapping[str, SpecifierSet]:
    """The versions that are asked for on this machine, by the distribution's name."""
    required: dict[str, SpecifierSet] = {}
    for line in lines:
        try:
            one = Requirement(line.partition(" #")[0].strip())
        except InvalidRequirement:
            # An option of pip's, or an address.
            continue
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            name = canonicalize_name(one.name)
            required[name] = required.get(name, SpecifierSet()) & one.specifier
    return required


def version_of(checkout: Path, project: Project) -> str:
    """The version that a checkout was built as, that of its latest tag, or 999: newer than all."""
    path = checkout / project.imports / "_version.py"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if built := re.search(r"^__version__ = .*?['\"](\d[\w.+]*)['\"]", text, re.MULTILINE):
        return built[1]
    # A folder inside another repository has that repository's tags.
    if not (checkout / ".git").exists():
        return _NEWEST
    tags = run_command(["git", "-C", str(checkout), "describe", "--tags"], seconds=limits.COMMAND)
    tag = re.match(r"v?(\d+(?:\.\d+)+(?:rc\d+)?)", tags.stdout)
    return tag[1] if tag else _NEWEST


def _write_version(release: Release) -> None:
    """Write down which version a checkout is. A project may ask for its own, and do without Triton where there is none."""
    package, version, packages = release.project.package, release.version, release.packages
    for other in packages.glob(f"{package}-*.dist-info"):
        shutil.rmtree(other)
    path = packages / f"{package}-{version}.dist-info" / "METADATA"
    path.parent.mkdir()
    path.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", encoding="utf-8")
