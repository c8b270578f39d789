"""Going on in the environment of the release that a variable names: VLLM or VLLM_PATH, SGLANG or SGLANG_PATH."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from statecheck import rooms
from statecheck.releases.checkout import version_of
from statecheck.releases.environment import Maker, Wanted, this_base
from statecheck.releases.project import VLLM, Project, released
from statecheck.text.command_lines import remembered

LIBRARY = {"llamacpp": "LLAMACPP_PATH"}
"""By subject, the variable that names a library in place of a release; no environment is needed for one."""


def go_on_in_release(
    options: argparse.Namespace, arguments: Sequence[str] | None, module: str = "statecheck"
) -> None:
    """Run the command in the environment of the release that is asked for; returns where this is the right one.

    Args:
        options: of a command; those without a subject, or with another one, are run here.
        arguments: of the command line, those of this process if None.
        module: what `python -m` runs there.

    Raises:
        ValueError: there is no such release or checkout, its environment cannot be made, or none is asked for or installed.
    """
    project = released(getattr(options, "subject", None))
    if project is None:
        return
    wanted = wanted_by(os.environ, project)
    if wanted is None and os.environ.get(LIBRARY.get(project.subject, "")):
        return
    if wanted is None:
        _require_importable(project)
    elif not is_here(wanted):
        _replace_process(wanted, [module, *(sys.argv[1:] if arguments is None else arguments)])


def wanted_by(variables: Mapping[str, str], project: Project = VLLM) -> Wanted | None:
    """What VLLM and VLLM_PATH ask for, or those of another project; beside a path, the former says which version it is.

    Raises:
        ValueError: they say something that cannot be.
    """
    name, package = project.variable, project.package
    version, path = variables.get(name, "").strip(), variables.get(f"{name}_PATH", "").strip()
    release = wanted_release(version, project) if version else None
    if not path:
        return release
    folder = Path(path).expanduser().resolve()
    if not (folder / package / "__init__.py").is_file():
        rule = f"a folder with {package}/__init__.py"
        raise ValueError(f"{name}_PATH = {path!r}, but should be {rule} [{package}]")
    return Wanted(version or version_of(folder, project), folder, project)


def wanted_release(version: str, project: Project = VLLM) -> Wanted:
    """A release of that version.

    Raises:
        ValueError: it cannot be one.
    """
    if not re.fullmatch(r"\d+(\.\d+)*[A-Za-z0-9.+]*", version):
        rule = f"the version of a release, such as {project.example}"
        raise ValueError(f"{project.variable} = {version!r}, but should be {rule} [{project.package}]")
    return Wanted(version, project=project)


def is_here(wanted: Wanted) -> bool:
    """Whether this interpreter imports just that."""
    package = wanted.project.package
    spec, installed = find_spec(package), _installed(package)
    if spec is None or spec.origin is None or installed is None:
        return False
    if wanted.checkout is not None:
        return Path(spec.origin).resolve() == wanted.checkout / package / "__init__.py"
    return wanted.version in (installed, installed.partition("+")[0])


def _replace_process(wanted: Wanted, arguments: Sequence[str]) -> None:
    """Become `python -m` with these arguments, the module first, in the release's environment."""
    root = wanted.project.root
    environment = Maker(this_base(root), root, wanted.project.adapter, _tell).enter(wanted)
    if environment.lock is not None:
        # Held until the command ends, by what is run instead of this process.
        os.set_inheritable(environment.lock, True)
    _tell(f"statecheck: {wanted}, with {environment.python}")
    command = [str(environment.python), "-m", *arguments]
    inherited = {**os.environ, **remembered(), **environment.variables}
    os.execve(command[0], command, rooms.added_to(inherited))  # noqa: S606 - a command of our own


def _require_importable(project: Project) -> None:
    package, name = project.package, project.variable
    if find_spec(package) is None:
        rule = f"importable, or {name}={project.example} (a release) or {name}_PATH=<checkout> be set"
        raise ValueError(f"subject = {package!r}, but {package} should be {rule} [{package}]")


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _tell(text: str) -> None:
    print(text, flush=True)
