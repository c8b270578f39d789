"""Projects whose releases are verified: how they are named, and what an environment of one of their releases gets."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecheck.rooms import home
from statecheck.text.command_lines import project_of


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
        light: distributions that importing takes, as far as a release requires them; the rest is installed only where these are not enough.
        unsaid: what importing takes although releases do not say so.
        keeps_libraries: its compiled libraries load beside a torch for CPUs.
        distribution: and package, "" where they are called as the subject.
        module: that adapts it, "" for the one of the package's name in `subjects`.
    """

    name: str
    subject: str
    example: str
    oldest: str
    megabytes: int
    compared: tuple[str, ...]
    light: tuple[str, ...]
    unsaid: tuple[str, ...] = ()
    keeps_libraries: bool = False
    module: str = ""
    distribution: str = ""

    @property
    def package(self) -> str:
        """The distribution and the package."""
        return self.distribution or self.subject

    @property
    def variable(self) -> str:
        """The variable of the environment that names a release; with `_PATH` behind it, the one that names a checkout."""
        return self.package.upper()

    @property
    def adapter(self) -> str:
        """The module that adapts it."""
        return self.module or f"subjects.{self.subject}"

    @property
    def root(self) -> Path:
        """The folder of its environments."""
        return home() / f".{self.subject}"


def _read() -> dict[str, Project]:
    path = Path(__file__).with_name("requirements.toml")
    tables: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    return {
        subject: Project(subject=subject, **{name: _frozen(value) for name, value in table.items()})
        for subject, table in tables.items()
    }


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


PROJECTS = _read()
"""By their subjects."""
VLLM = PROJECTS["vllm"]


def released(subject: str | None) -> Project | None:
    """The project that a subject is a release of, None for any other subject."""
    name = project_of(subject)
    return PROJECTS[name] if name else None
