"""Where `impl`, `oracle` and `properties` lie: in a checkout, or within the installed package `statecheck`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1]


def is_checkout() -> bool:
    """Whether this is the repository, or an archive of it, and not what was installed from it."""
    return (FOLDER / "pyproject.toml").exists()


def installed_release() -> str:
    """The version that is installed, with the commit that pip took it from where it knows one; "" in a checkout."""
    if is_checkout():
        return ""
    try:
        found = distribution("statecheck")
    except PackageNotFoundError:
        return "unknown"
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id", "")
    return f"{found.version} ({commit[:12]})" if commit else found.version


def home() -> Path:
    """The folder below which commands keep what they make: the checkout, or the working folder outside of one."""
    return FOLDER if is_checkout() else working_folder()


def working_folder() -> Path:
    """The folder in which this process works; `FOLDER` where that has been removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return FOLDER


def variables(folders: Iterable[str] | None = None) -> dict[str, str]:
    """Variables with which another Python process imports these rooms, whatever lies in its working folder.

    Args:
        folders: what else is to be on its import path; by default all that is on this process's.
    """
    return {"PYTHONPATH": os.pathsep.join(import_path(folders)), "PYTHONSAFEPATH": "1"}


def import_path(folders: Iterable[str] | None = None) -> list[str]:
    """An import path on which these rooms come first; see `variables`."""
    # Relative to the working folder, which may be another one there, or another one later.
    others = [str(working_folder() / one) for one in (sys.path if folders is None else folders)]
    return list(dict.fromkeys((str(FOLDER), *others)))


def added_to(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment with which Python imports these rooms, and beside them what its PYTHONPATH leads to."""
    folders = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    return {**environment, **variables(folders)}
