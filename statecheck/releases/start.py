"""Going on in the environment of the release that VLLM or VLLM_PATH names."""

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
from statecheck.releases.environment import ROOT, Maker, Wanted, this_base
from statecheck.releases.probe import ADAPTER
from statecheck.text.command_lines import RELEASED, is_released, remembered


def go_on_in_release(
    options: argparse.Namespace, arguments: Sequence[str] | None, module: str = "statecheck"
) -> None:
    """Run the command in the environment of the release that is asked for; returns where this is the right one.

    Args:
        options: of a command; those without a subject, or with another one, are run here.
        arguments: of the command line, those of this process if None.
        module: what `python -m` runs there.

    Raises:
        ValueError: there is no such release or checkout, its environment cannot be made, or there is no vLLM at all.
    """
    if not is_released(getattr(options, "subject", None)):
        return
    wanted = wanted_by(os.environ)
    if wanted is None:
        _require_importable()
    elif not is_here(wanted):
        _replace_process(wanted, [module, *(sys.argv[1:] if arguments is None else arguments)])


def wanted_by(variables: Mapping[str, str]) -> Wanted | None:
    """What VLLM and VLLM_PATH ask for; beside a path, VLLM says which version it is.

    Raises:
        ValueError: they say something that cannot be.
    """
    version, path = variables.get("VLLM", "").strip(), variables.get("VLLM_PATH", "").strip()
    release = wanted_release(version) if version else None
    if not path:
        return release
    folder = Path(path).expanduser().resolve()
    if not (folder / "vllm" / "__init__.py").is_file():
        raise ValueError(f"VLLM_PATH = {path!r}, but should be a folder with vllm/__init__.py [vllm]")
    return Wanted(version or version_of(folder), folder)


def wanted_release(version: str) -> Wanted:
    """A release of that version.

    Raises:
        ValueError: it cannot be one.
    """
    if not re.fullmatch(r"\d+(\.\d+)*[A-Za-z0-9.+]*", version):
        raise ValueError(f"VLLM = {version!r}, but should be the version of a release, such as 0.33.0 [vllm]")
    return Wanted(version)


def is_here(wanted: Wanted) -> bool:
    """Whether this interpreter imports just that."""
    spec, installed = find_spec("vllm"), _installed()
    if spec is None or spec.origin is None or installed is None:
        return False
    if wanted.checkout is not None:
        return Path(spec.origin).resolve() == wanted.checkout / "vllm" / "__init__.py"
    return wanted.version in (installed, installed.partition("+")[0])


def _replace_process(wanted: Wanted, arguments: Sequence[str]) -> None:
    """Become `python -m` with these arguments, the module first, in the release's environment."""
    environment = Maker(this_base(ROOT), ROOT, ADAPTER, _tell).enter(wanted)
    if environment.lock is not None:
        # Held until the command ends, by what is run instead of this process.
        os.set_inheritable(environment.lock, True)
    _tell(f"statecheck: {wanted}, with {environment.python}")
    command = [str(environment.python), "-m", *arguments]
    inherited = {**os.environ, **remembered(), **environment.variables}
    os.execve(command[0], command, rooms.added_to(inherited))  # noqa: S606 - a command of our own


def _require_importable() -> None:
    if find_spec("vllm") is None:
        rule = "importable, or VLLM=0.33.0 (a release) or VLLM_PATH=<checkout> be set"
        raise ValueError(f"subject = {RELEASED!r}, but vllm should be {rule} [vllm]")


def _installed() -> str | None:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return None


def _tell(text: str) -> None:
    print(text, flush=True)
