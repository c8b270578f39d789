"""Subjects by name: the one place of the harness that knows an adapter, and the projects whose releases are verified. And what identifies a subject:
the system that a case belongs to, and which source was run: a case that no longer fails is fixed only where the source has changed.

A row of `subjects/projects.toml` is all that the harness knows of a project: the names of subjects, the options of commands, environments and
tables are made of it.

What a subject changes in its process is put back, so that the harness and the next example find it as it was (`restored`, `ProcessState`). After each
call and each import: the working folder, signal handlers, torch's default device and dtype, and what was removed from the import path. When the next
example begins, since later calls of the same example may need them: the environment, and what was added to the import path. Nothing else is looked
at: a subject that works against its process, such as by replacing functions of the harness, is run with `--isolated`, in a process of its own.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import signal
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from packaging.version import Version

import oracle
from statecheck.case import Case
from statecheck.case.raised import error_text, from_outside, message_of
from statecheck.rooms import FOLDER, home
from statecheck.subject.subject import Subject, is_documented, offers, safe_getattr

_NAMES = "SIGALRM SIGVTALRM SIGPROF SIGINT SIGTERM SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGCHLD SIGPIPE"
_SIGNALS = tuple(int(getattr(signal, name)) for name in _NAMES.split() if hasattr(signal, name))
# What is behind `signal.getsignal`, without the enumeration that it looks each handler up in: that took most of the time.
_handler_of: Callable[[int], Any] = importlib.import_module("_signal").getsignal


class ProcessState:
    """The environment and the import path around the calls of one example after the other."""

    def __init__(self) -> None:
        self._environment: dict[bytes, bytes] | None = None
        self._path: list[str] | None = None

    def begin(self) -> None:
        """An example begins: put back what calls of the example before have changed."""
        if self._environment is not None:
            os.environb.clear()
            os.environb.update(self._environment)
            self._environment = None
        if self._path is not None:
            sys.path[:], self._path = self._path, None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around a call of the subject: as `restored`, and what the example's end is to put back is noted."""
        environment, path = _environment(), list(sys.path)
        try:
            with restored():
                yield
        finally:
            if self._environment is None and _environment() != environment:
                self._environment = environment
            if self._path is None and sys.path != path:
                self._path = path


@contextmanager
def restored() -> Iterator[None]:
    """Put back the working folder, signal handlers, torch's defaults and entries of the import path that change while this is entered."""
    before, path = _state(), list(sys.path)
    try:
        yield
    finally:
        # The harness imports some of its modules when they are needed.
        sys.path += [entry for entry in path if entry not in sys.path]
        if _state() != before:
            folder, device, dtype, *handlers = before
            go_to(folder)
            if "torch" in sys.modules:
                import torch

                # A default device of "cpu" has each call of torch go through a function of Python; None has the same meaning.
                torch.set_default_device(None if device == "cpu" else device)
                torch.set_default_dtype(getattr(torch, dtype.removeprefix("torch.")))
            for number, handler in zip(_SIGNALS, handlers, strict=True):
                # None: it was not installed from Python, and cannot be from there. ValueError: this is not the main thread.
                if handler is not None:
                    with suppress(ValueError):
                        signal.signal(number, handler)


def go_to(folder: str | None) -> None:
    """Go where the process was, or to a folder that exists, where that was removed."""
    for place in (folder, tempfile.gettempdir(), "/"):
        with suppress(OSError, TypeError):
            os.chdir(place)  # type: ignore[arg-type] # None: there was no such folder
            return


def _state() -> tuple[Any, ...]:
    try:
        folder = os.getcwd()  # noqa: PTH109 - twice for each call of a subject
    except OSError:
        folder = None
    # Libraries of sequences do without torch, which takes seconds to import.
    empty = getattr(sys.modules.get("torch"), "empty", None)
    probe = None if empty is None else empty(0)
    defaults = ("cpu", "torch.float32") if probe is None else (str(probe.device), str(probe.dtype))
    return folder, *defaults, *map(_handler_of, _SIGNALS)


def _environment() -> dict[bytes, bytes]:
    # What is behind `os.environb`, which copies each name and value through two functions of Python.
    return dict(getattr(os.environ, "_data", os.environb))


@dataclass(frozen=True)
class Project:
    """A project that publishes releases.

    Args:
        name: as people write it.
        subject: that adapts it.
        example: a release.
        oldest: the oldest release that there are adapters and rules for.
        megabytes: of a release, as it is downloaded.
        compared: the releases of the compatibility table.
        requirements: distributions that importing the adapter takes, as far as a release requires them.
        undeclared: what importing takes although releases do not require it.
        keeps_libraries: its compiled libraries load beside a torch for CPUs.
        distribution: and package, "" where they are called as the subject.
        imported: the package, "" where it is called as the distribution.
        module: that adapts it, "" for the package of the subject's name in `subjects`.
        takes_library: a compiled library stands in for a release.
    """

    name: str
    subject: str
    example: str
    oldest: str
    megabytes: int
    compared: tuple[str, ...]
    requirements: tuple[str, ...]
    undeclared: tuple[str, ...] = ()
    keeps_libraries: bool = False
    module: str = ""
    distribution: str = ""
    imported: str = ""
    takes_library: bool = False

    @property
    def package(self) -> str:
        """The distribution and the package."""
        return self.distribution or self.subject

    @property
    def imports(self) -> str:
        """The package that is imported."""
        return self.imported or self.package

    @property
    def option(self) -> str:
        """The option that names a release; with `-path` behind it, the option that names a checkout."""
        return f"--{self.subject.replace('_', '-')}"

    @property
    def adapter(self) -> str:
        """The module that adapts it."""
        return self.module or f"subjects.{self.subject}"

    @property
    def root(self) -> Path:
        """The folder of its environments."""
        return home() / f".{self.subject}"

    def require_supported(self, release: str) -> None:
        """Refuse a release that is older than the adapter's rules and declared defects.

        Raises:
            ValueError: it is; names the releases that the adapter is tried with.
        """
        numbers = re.match(r"\d+(\.\d+)*", release)
        if numbers is not None and Version(numbers[0]) < Version(self.oldest):
            tried = ", ".join(self.compared)
            rule = f"{self.oldest} or later (tried: {tried}); docs/compatibility.md has a record of older releases"
            raise ValueError(f"{self.package} = {release!r}, but should be {rule}")


def _read() -> dict[str, Project]:
    path = FOLDER / "subjects" / "projects.toml"
    tables: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    projects = {}
    for subject, table in tables.items():
        row: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in table.items()
        }
        projects[subject] = Project(subject=subject, **row)
    return projects


PROJECTS = _read()
"""By their subjects."""


def project_of(subject: str) -> Project | None:
    """The project that a subject is a release of, with another module's functions inside or not; None for any other subject."""
    return PROJECTS.get(subject.partition("+")[0])


BUILT_IN = {"impl": "subjects.impl"} | {name: project.adapter for name, project in PROJECTS.items()}
"""By name, the modules of this implementation and of the projects in `subjects/projects.toml`."""
_PLAIN, _SEQUENCES = "subjects.plain", "subjects.sequences"
"""What adapts functions on plain values, and a library of sequences; imported by name, as an adapter is: they import this room."""


def load(name: str) -> Subject:
    """The subject called `name`: a built-in adapter, or any importable module.

    A module may offer a `Subject` of its own as SUBJECT, to declare known deviations with it. `engine+port` is the engine of the one
    with the functions of the other inside, by the function `with_inside` of the first.

    Raises:
        ValueError: nothing of that name can be imported, or nothing can stand inside of it.
    """
    engine, plus, inside = name.partition("+")
    if plus:
        with_inside = safe_getattr(load(engine).module, "with_inside", None)
        if with_inside is None:
            raise ValueError(
                f"subject = {name!r}, but should be ENGINE+{inside}: {engine} is no engine [load]"
            )
        return cast(Subject, with_inside(inside, load(inside).module))
    rule = f"{', '.join(BUILT_IN)} or an importable module"
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"subject = {name!r}, but should be {rule} [load]")
    try:
        with restored():
            module = importlib.import_module(BUILT_IN.get(name, name))
    except ImportError as error:
        raise ValueError(f"subject = {name!r}, but should be {rule} [load]: {message_of(error)}") from error
    except BaseException as error:
        if from_outside(error):
            raise
        raise ValueError(f"subject = {name!r}, but should be {rule} [load]: {error_text(error)}") from error
    return adapted(module, name)


def needs_tensors(name: str) -> bool:
    """Whether the subject of that name takes torch and Triton: not a library of sequences. Imports nothing of the subject."""
    try:
        spec = find_spec(BUILT_IN.get(name, name)) if name else None
        source = Path(spec.origin or "").read_text(encoding="utf-8") if spec is not None else ""
    except (ImportError, OSError, ValueError):
        return True
    return re.search(r"^STATECHECK_SEQUENCES *=", source, re.MULTILINE) is None


def preload() -> None:
    """Import what adapts functions of a module, which takes most of the time that it takes to load them."""
    importlib.import_module(_PLAIN)


def adapted(module: ModuleType, name: str = "") -> Subject:
    """A module as a subject.

    Raises:
        ValueError: it offers plain functions in another way than PROTOCOL.md says.
    """
    own = safe_getattr(module, "SUBJECT", None)
    if issubclass(type(own), Subject):
        return cast(Subject, own)
    if offers(module, "STATECHECK_SEQUENCES"):
        return cast(Subject, importlib.import_module(_SEQUENCES).adapted(module, name))
    plain = importlib.import_module(_PLAIN)
    if offers(module, "STATECHECK_PROTOCOL"):
        return cast(Subject, plain.adapted(module, name))
    plain.require_declared(module)
    return Subject(name or module.__name__, module)


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
        packages = set()
        for value in vars(module).values():
            # The module that a value was made in, or the name of a module. The class of a value may raise anything here.
            with suppress(Exception):
                origin = str(getattr(value, "__module__", None) or getattr(value, "__name__", ""))
                packages.add(origin.partition(".")[0])
        for name in packages - _NOT_VERIFIED:
            for folder in getattr(sys.modules.get(name), "__path__", ()):
                found.update(Path(folder).glob("**/*.py"))
    return sorted(found)


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
