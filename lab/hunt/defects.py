"""What is planted for hunts: the defects of `tests/meta/planted` by group, in copies of `impl` or in the files of a release."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from lab.mutants.substitute import module_of, write_start
from statecheck.rooms import FOLDER
from statecheck.subject.loading import PROJECTS, Project
from tests.helpers.planted import (
    IN_IMPL,
    IN_PORTS,
    IN_RELEASES,
    PlantedDefect,
    broken_copy,
    implementation,
    planted,
    planted_in_impl,
)

GROUPS = ("stateless", "builders", "align", "engines")
"""The groups in copies of `impl` that are hunted for by default. Those of the last group show in the simulated engine alone."""
INSIDE = "inside"
"""The group of defects in copies of `impl` that vLLM's engine is hunted with."""
KNOWN = {f"known-{version}": version for version in ("0.29.0", "0.30.0", "0.33.0")}
"""Groups of one hunt: the first known defect of that release of vLLM, as if it were new."""

ALL_GROUPS = (*IN_IMPL, *IN_PORTS, *IN_RELEASES, INSIDE, *KNOWN)


@dataclass(frozen=True)
class Planted:
    """What a campaign is run on: the subject's name, options of the command, and variables of its processes."""

    subject: str
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


class HuntedDefect(Protocol):
    """What a hunt has to find: a defect of a group, in a copy of `impl` or in a release."""

    @property
    def group(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def found_by(self) -> tuple[str, ...]:
        """The ids of the properties that are known to find it, none where any may."""
        ...

    @property
    def release(self) -> str:
        """The version of the release that it is in, "" for a copy of `impl`."""
        ...

    def plant(self, folder: Path) -> Planted:
        """Make what the campaign is run on, in the folder."""
        ...


@dataclass(frozen=True)
class CopiedDefect:
    """A defect of a copy of `impl`, or of a port."""

    group: str
    defect: PlantedDefect
    release: ClassVar[str] = ""

    @property
    def name(self) -> str:
        return self.defect.name

    @property
    def found_by(self) -> tuple[str, ...]:
        return self.defect.found_by

    def plant(self, folder: Path) -> Planted:
        """Put the broken copy into the folder."""
        name = broken_copy(self.defect.variant, implementation(), folder).name
        return Planted(name, variables={"PYTHONPATH": os.pathsep.join([str(folder), str(FOLDER)])})


@dataclass(frozen=True)
class InsideDefect:
    """A defect of a copy of `impl` that stands in the engine of a release of vLLM."""

    group: str
    defect: PlantedDefect
    release: ClassVar[str] = planted("vllm")[0].release

    @property
    def name(self) -> str:
        return self.defect.name

    @property
    def found_by(self) -> tuple[str, ...]:
        return self.defect.found_inside_by

    def plant(self, folder: Path) -> Planted:
        """Put the broken copy into the folder."""
        copy = CopiedDefect(self.group, self.defect).plant(folder)
        return Planted(f"vllm+{copy.subject}", ("--vllm", self.release), copy.variables)


@dataclass(frozen=True)
class ReleasedDefect:
    """A defect in the file of a release, or of its adapter: its processes import the changed text in place of the file's.

    Raises:
        ValueError: of `plant`, where the release has no environment here, or another text.
    """

    group: str
    defect: PlantedDefect

    @property
    def name(self) -> str:
        return self.defect.name

    @property
    def found_by(self) -> tuple[str, ...]:
        return self.defect.found_by

    @property
    def release(self) -> str:
        return self.defect.release

    def plant(self, folder: Path) -> Planted:
        """Write the changed text, and what has Python take it when it starts."""
        one = self.defect
        # The folder of the package, or of the adapter.
        project = next(PROJECTS[part] for part in Path(one.file).parts if part in PROJECTS)
        text = _source(project, self.release, one.file).read_text(encoding="utf-8")
        start = folder / "start"
        start.mkdir()
        write_start(module_of(one.file), one.variant.replaced(text).encode(), start)
        models = {"STATECHECK_MODELS": one.models} if one.models else {}
        paths = os.pathsep.join([str(start), str(FOLDER)])
        return Planted(project.subject, (project.option, self.release), {"PYTHONPATH": paths, **models})


@dataclass(frozen=True)
class KnownDefects:
    """The known defects of a release of vLLM, of which a hunt finds the first one."""

    group: str
    release: str
    name: str = "the first known defect"
    found_by: tuple[str, ...] = ()

    def plant(self, folder: Path) -> Planted:  # noqa: ARG002 - nothing is planted
        """The release as it is, with its known defects reported as new ones."""
        return Planted("vllm", ("--vllm", self.release, "--as-new"))


def release_python(subject: str, version: str) -> Path:
    """The interpreter of a release's environment."""
    return PROJECTS[subject].root / version / "bin" / "python"


def _source(project: Project, version: str, file: str) -> Path:
    """A file of an installed release, or of its adapter.

    Raises:
        ValueError: it is not installed here.
    """
    own = FOLDER / file
    found = [own] if own.exists() else [*(project.root / version).glob(f"lib/python3*/site-packages/{file}")]
    if not found:
        rule = f"installed by `statecheck fuzz {project.option} {version}`"
        raise ValueError(f"{file} of {project.name} {version} should be {rule} [plant]")
    return found[0]


def planted_defects(groups: Sequence[str] = (), only: str = "", every: int = 1) -> list[HuntedDefect]:
    """The defects of these groups, or of all copies of `impl`, whose name has `only` in it; of each group every so manieth.

    Raises:
        ValueError: there is no such group.
    """
    unknown = sorted(set(groups) - set(ALL_GROUPS))
    if unknown:
        known = ", ".join(ALL_GROUPS)
        raise ValueError(f"groups = {unknown}, but should be some of {known} [planted_defects]")
    return [
        one
        for group in groups or GROUPS
        for one in [one for one in _of_group(group) if only in one.name][::every]
    ]


def _of_group(group: str) -> Sequence[HuntedDefect]:
    if group in KNOWN:
        return [KnownDefects(group, KNOWN[group])]
    if group == INSIDE:
        return [InsideDefect(group, defect) for defect in planted_in_impl() if defect.found_inside_by]
    copied = group in (*IN_IMPL, *IN_PORTS)
    return [
        CopiedDefect(group, defect) if copied else ReleasedDefect(group, defect) for defect in planted(group)
    ]
