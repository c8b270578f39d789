"""Where a case was seen: versions of the subject and of what it runs on, as maintainers ask for them."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from statecheck import rooms
from statecheck.case import Case
from statecheck.subject import Subject
from statecheck.util import limits
from statecheck.util.markdown import escaped, inert, table
from statecheck.workers.commands import run_command

_VERSIONS = ("torch", "triton", "numpy", "hypothesis")


def environment() -> dict[str, str]:
    """Revision, system and versions that results depend on, by name."""
    installed = "" if rooms.is_checkout() else rooms.release()
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: _version(name) for name in _VERSIONS},
        "revision": revision(rooms.home()),
        **({"statecheck": installed} if installed else {}),
    }


def environment_of_numbers() -> dict[str, Any]:
    """Where numbers were measured."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return environment() | {"threads": torch.get_num_threads(), "gpu": gpu}


def environment_table(case: Case, subject: Subject | None) -> str:
    """What maintainers ask for, the subject's version first, as a table; no host, user or folder is named."""
    rows = {
        **_versions_of(case.subject, subject),
        "device": _device_name(case.device),
        **_system(),
        **environment(),
        "seed": str(case.seed),
    }
    return "\n".join(table(("", ""), ((name, escaped(value, 200)) for name, value in rows.items())))


def _versions_of(name: str, subject: Subject | None) -> dict[str, str]:
    """The subject's release and its commit, by its name, as far as they are known."""
    commit = _commit_of(name) if subject is not None else ""
    release = subject.release if subject is not None else ""
    known = " ".join(filter(None, (release, commit and f"(commit {commit})")))
    return {inert(name): known} if known else {}


def _commit_of(name: str) -> str:
    """That of the checkout in which the package lies; "" where it lies in none of its own."""
    try:
        found = find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        return ""
    if found is None or found.origin is None:
        return ""
    folder = Path(found.origin).resolve().parents[1]
    return revision(folder) if (folder / ".git").exists() and folder != rooms.FOLDER else ""


def _system() -> dict[str, str]:
    try:
        return {"os": platform.freedesktop_os_release()["PRETTY_NAME"]}
    except (OSError, KeyError):
        return {}


def _device_name(device: str) -> str:
    if device != "cuda" or not (found := gpus_here()):
        return device
    _, name, driver = found[0]
    return f"cuda ({name}, driver {driver})"


@cache
def gpus_here() -> tuple[tuple[str, str, str], ...]:
    """Index, name and driver of each GPU; empty where they are not known."""
    # Not from torch: the process that searches for counterexamples keeps away from the GPU.
    command = ["nvidia-smi", "--query-gpu=index,name,driver_version", "--format=csv,noheader"]
    done = run_command(command, seconds=limits.COMMAND)
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    found = (tuple(line.split(", ")) for line in lines)
    return tuple((fields[0], fields[1], fields[2]) for fields in found if len(fields) == 3)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@cache
def revision(folder: Path) -> str:
    """The git revision of a checkout, or of the port where statecheck is installed, with `+changes` where files differ."""
    command = ["git", "describe", "--always", "--dirty=+changes"]
    return run_command(command, folder=folder, seconds=limits.COMMAND).stdout.strip() or "unknown"
