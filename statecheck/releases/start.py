"""The release that the options of a command name, such as `--vllm 0.33.0`, and going on in its environment."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from statecheck import rooms
from statecheck.releases.environment import Release, enter, installed_version, version_of
from statecheck.subject.loading import PROJECTS, Project, project_of
from statecheck.util.command_lines import CHOSEN, remembered
from statecheck.workers.commands import run_command

LIBRARY = "LLAMACPP_PATH"
"""The variable by which the processes of a command learn of a library that stands in for that of the release."""
PROGRAM = (sys.executable, "-m", "statecheck")


@dataclass(frozen=True)
class ChosenRelease:
    """What options name: a version, a checkout or a library, or both."""

    project: Project
    version: str = ""
    path: str = ""

    @property
    def words(self) -> list[str]:
        """The options, for a command line anywhere."""
        option = self.project.option
        version = [option, self.version] if self.version else []
        return version + ([f"{option}-path", str(self._full_path)] if self.path else [])

    @property
    def library(self) -> Path | None:
        """The library that stands in for that of the release.

        Raises:
            ValueError: there is no such file.
        """
        if not self.path or not self.project.takes_library:
            return None
        if not self._full_path.is_file():
            raise ValueError(f"{self.project.option} = {self.path!r}, but should be a release or a library")
        return self._full_path

    @property
    def release(self) -> Release | None:
        """What needs an environment; None for a library alone. Beside a checkout, the version says which release it counts as.

        Raises:
            ValueError: there can be no such release, or no such checkout.
        """
        release = release_of(self.version, self.project) if self.version else None
        if not self.path or self.project.takes_library:
            return release
        folder, package = self._full_path, self.project.imports
        if not (folder / package / "__init__.py").is_file():
            rule = f"a folder with {package}/__init__.py"
            raise ValueError(f"{self.project.option}-path = {self.path!r}, but should be {rule}")
        return Release(self.project, self.version or version_of(folder, self.project), folder)

    @property
    def _full_path(self) -> Path:
        return Path(self.path).expanduser().resolve()


def chosen_release(options: Mapping[str, str | None]) -> ChosenRelease | None:
    """What options name, by their names: "vllm", "vllm_path", ...; None where they name nothing.

    Raises:
        ValueError: they name releases of several projects.
    """
    given = {name: value for name, value in options.items() if value}
    projects = [one for one in PROJECTS.values() if given.keys() & {one.subject, f"{one.subject}_path"}]
    if len(projects) > 1:
        named = " and ".join(entry.option for entry in projects)
        raise ValueError(f"{named} are given, but should be of one project")
    for project in projects:
        version, path = (given.get(name, "") for name in (project.subject, f"{project.subject}_path"))
        if project.takes_library and (Path(version).suffix in (".so", ".dylib") or os.sep in version):
            return ChosenRelease(project, path=version)
        return ChosenRelease(project, version, path)
    return None


def release_of(version: str, project: Project) -> Release:
    """A release of that version.

    Raises:
        ValueError: it cannot be one.
    """
    if not re.fullmatch(r"\d+(\.\d+)*[A-Za-z0-9.+]*", version):
        rule = f"the version of a release, such as {project.example}"
        raise ValueError(f"{project.option} = {version!r}, but should be {rule}")
    return Release(project, version)


def go_on_in_release(subject: str, chosen: ChosenRelease | None, command: Sequence[str]) -> None:
    """Run the command in the environment of the release that is chosen; returns where this is the right one.

    Args:
        subject: of the command; one that is no release is run here.
        command: what `python -m` runs there: a module and its arguments.

    Raises:
        ValueError: there is no such release or checkout, its environment cannot be made, or none is chosen or installed.
    """
    os.environ.pop(CHOSEN, None)
    project = project_of(subject)
    if chosen is not None:
        if project != chosen.project:
            rule = f"{chosen.project.subject}, or {chosen.project.subject}+<module>"
            raise ValueError(f"subject = {subject!r}, but should be {rule} beside {chosen.project.option}")
        # Command lines that are printed, and subjects in processes of their own, learn of it by variables.
        os.environ[CHOSEN] = shlex.join(chosen.words)
        if chosen.library is not None:
            os.environ[LIBRARY] = str(chosen.library)
        release = chosen.release
        if release is not None and not is_here(release):
            release.project.require_supported(release.version)
            python = str(enter(release))
            print(f"statecheck: {release}, with {python}", flush=True)
            variables = rooms.added_to({**os.environ, **remembered(), **release.variables})
            os.execve(python, [python, "-m", *command], variables)  # noqa: S606 - a command of our own
    elif project is not None and find_spec(project.imports) is None and not os.environ.get(LIBRARY):
        rule = (
            f"importable, or {project.option} {project.example} (a release) or {project.option}-path be given"
        )
        raise ValueError(f"subject = {subject!r}, but {project.package} should be {rule}")


def is_here(release: Release) -> bool:
    """Whether this interpreter imports just that."""
    package = release.project.imports
    spec, installed = find_spec(package), installed_version(release.project.package)
    if spec is None or spec.origin is None or not installed:
        return False
    if release.checkout is not None:
        return Path(spec.origin).resolve() == release.checkout / package / "__init__.py"
    return release.version in (installed, installed.partition("+")[0])


def run_on(release: Release, arguments: Sequence[str], log: Path, program: Sequence[str] = PROGRAM) -> int:
    """Run a command of statecheck on a release to its end, with what it prints in a file; the exit code. Ctrl-C ends it, too."""
    command = [*program, *arguments, release.project.option, release.version]
    variables = rooms.added_to({**os.environ, **remembered()})
    return run_command(command, variables=variables, log=log).returncode


def last_line(log: Path) -> str:
    """What was printed last, which is why, where a command did not get to its end."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "nothing")
