"""What is planted for hunts: the defects of `tests/breakages` by group, in copies of `impl` or in the files of a release."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from lab.mutants.substitute import write_start
from statecheck.releases.project import PROJECTS, Project
from statecheck.rooms import FOLDER
from tests.breakages import functions, release, sequences, sglang
from tests.breakages.align import ALIGN
from tests.breakages.builder import BUILDERS
from tests.breakages.connectors import CONNECTORS
from tests.breakages.lifecycle import LIFECYCLE
from tests.breakages.release import PlantedDefect
from tests.breakages.stages import PLANTED_STAGES
from tests.breakages.stateless import STATELESS
from tests.breakages.variants import Breakage, broken_copy, implementation

GROUPS: dict[str, Sequence[Breakage]] = {
    "stateless": STATELESS,
    "builders": BUILDERS,
    "align": ALIGN,
    "engines": LIFECYCLE,
}
"""Defects in copies of `impl`. Those of the last group show in the simulated engine alone."""


OF_RELEASES: dict[str, Sequence[PlantedDefect]] = {
    "vllm": (*release.PLANTED, *release.PLANTED_UPDATES, *release.PLANTED_GRAPHS),
    "vllm-stages": PLANTED_STAGES,
    "vllm-connectors": CONNECTORS,
    "vllm-functions": functions.OF_VLLM,
    "sglang": sglang.PLANTED,
    "sglang-functions": functions.OF_SGLANG,
    "transformers": sequences.TRANSFORMERS,
    "mlx_lm": sequences.MLX_LM,
}
"""Defects in a release's own files. They are hunted for only where their group is named, since they need its environment."""
KNOWN = {f"known-{version}": version for version in ("0.25.1", "0.30.0", "0.33.0")}
"""Groups of one hunt: the first known defect of that release of vLLM, as if it were new."""


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
    def release(self) -> str:
        """The version of the release that it is in, "" for a copy of `impl`."""
        ...

    def plant(self, folder: Path) -> Planted:
        """Make what the campaign is run on, in the folder."""
        ...


@dataclass(frozen=True)
class CopiedDefect:
    """A defect of a copy of `impl`."""

    group: str
    breakage: Breakage
    release: ClassVar[str] = ""

    @property
    def name(self) -> str:
        return self.breakage.name

    def plant(self, folder: Path) -> Planted:
        """Put the broken copy into the folder."""
        return Planted(broken_copy(self.breakage.variant, implementation(), folder).name)


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
    def release(self) -> str:
        return self.defect.release

    def plant(self, folder: Path) -> Planted:
        """Write the changed text, and what has Python take it when it starts."""
        one = self.defect
        package, _, rest = one.module.partition(".")
        # A connector is a file of the adapter.
        project = PROJECTS[rest.partition(".")[0] if package == "subjects" else package]
        text = _source(project, self.release, one.module).read_text(encoding="utf-8")
        if text.count(one.before) != 1:
            count = text.count(one.before)
            raise ValueError(f"{one.before!r} stands in {one.module} {count} times, but should once [plant]")
        start = folder / "start"
        start.mkdir()
        write_start(one.module, text.replace(one.before, one.after).encode(), start)
        models = {"STATECHECK_MODELS": one.models} if one.models else {}
        paths = os.pathsep.join([str(start), str(FOLDER)])
        return Planted(project.subject, (), {project.variable: self.release, "PYTHONPATH": paths, **models})


@dataclass(frozen=True)
class KnownDefects:
    """The known defects of a release of vLLM, of which a hunt finds the first one."""

    group: str
    release: str
    name: str = "the first known defect"

    def plant(self, folder: Path) -> Planted:  # noqa: ARG002 - nothing is planted
        """The release as it is, with its known defects reported as new ones."""
        return Planted("vllm", ("--as-new",), {"VLLM": self.release})


def release_python(subject: str, version: str) -> Path:
    """The interpreter of a release's environment."""
    return PROJECTS[subject].root / version / "bin" / "python"


def _source(project: Project, version: str, module: str) -> Path:
    """The file of a module of an installed release, or of its adapter.

    Raises:
        ValueError: it is not installed here.
    """
    file = f"{module.replace('.', '/')}.py"
    own = FOLDER / file
    found = [own] if own.exists() else [*(project.root / version).glob(f"lib/python3*/site-packages/{file}")]
    if not found:
        rule = f"installed by {project.variable}={version} make {project.subject}"
        raise ValueError(f"{module} of {project.name} {version} should be {rule} [plant]")
    return found[0]


def planted_defects(groups: Sequence[str] = (), only: str = "", every: int = 1) -> list[HuntedDefect]:
    """The defects of these groups, or of all copies of `impl`, whose name has `only` in it; of each group every so manieth.

    Raises:
        ValueError: there is no such group.
    """
    named = {*GROUPS, *OF_RELEASES, *KNOWN}
    unknown = sorted(set(groups) - named)
    if unknown:
        known = ", ".join((*GROUPS, *OF_RELEASES, *KNOWN))
        raise ValueError(f"groups = {unknown}, but should be some of {known} [planted_defects]")
    return [
        one
        for group in groups or GROUPS
        for one in [one for one in _of_group(group) if only in one.name][::every]
    ]


def _of_group(group: str) -> list[HuntedDefect]:
    if group in GROUPS:
        return [CopiedDefect(group, breakage) for breakage in GROUPS[group]]
    if group in OF_RELEASES:
        return [ReleasedDefect(group, defect) for defect in OF_RELEASES[group]]
    return [KnownDefects(group, KNOWN[group])]
