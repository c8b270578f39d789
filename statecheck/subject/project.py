"""Projects whose releases are verified: how they are named, and what an environment of one of their releases gets.

A row of `subjects/projects.toml` is all that the harness knows of a project: the names of subjects, the options of commands, environments and
tables are made of it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from statecheck.rooms import FOLDER, home


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
    takes_library: bool = False

    @property
    def package(self) -> str:
        """The distribution and the package."""
        return self.distribution or self.subject

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
    return {subject: Project(subject=subject, **_frozen(table)) for subject, table in tables.items()}


def _frozen(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}


PROJECTS = _read()
"""By their subjects."""


def project_of(subject: str) -> Project | None:
    """The project that a subject is a release of, with another module's functions inside or not; None for any other subject."""
    return PROJECTS.get(subject.partition("+")[0])
