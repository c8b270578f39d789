"""pip, in an environment: quiet, with its failures as sentences."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from statecheck.releases.project import Project
from statecheck.releases.requirements import is_heavy

_UNREACHABLE = re.compile(
    r"NewConnectionError|ConnectTimeout|NameResolutionError|ReadTimeout|ProxyError|Max retries|SSLError"
    r"|Temporary failure in name resolution|Connection refused|Network is unreachable"
)
_AVAILABLE = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_MOST_LINES = 12


class PipFailed(Exception):
    """What pip said, as far as it tells why."""


def install_release(python: Path, project: Project, version: str) -> None:
    """Install a release itself, and nothing that it requires.

    Raises:
        ValueError: the index has no such release for this machine, or cannot be reached.
    """
    package = project.package
    try:
        run_pip(python, "install", "--no-deps", "--only-binary", package, f"{package}=={version}")
    except PipFailed as failed:
        rule = "a release that installs"
        if "No matching distribution" in str(failed):
            rule = "a release that the package index has as a wheel for this machine and this Python"
        raise ValueError(
            f"{project.variable} = {version!r}, but should be {rule} [{package}]\n{failed}"
        ) from None


def install(python: Path, requirements: Sequence[str], pins: Sequence[str], what: str) -> None:
    """Install requirements with what they require in turn, the base's torch and Triton untouched.

    Args:
        what: whose requirements they are, for messages.

    Raises:
        ValueError: they cannot be had, or not with these, or not without what is heavy.
    """
    chosen = _resolved(python, requirements, pins, what) if requirements else []
    for name, version in chosen:
        if is_heavy(name):
            rule = "the base environment's, or not needed at all"
            raise ValueError(f"{name} = {version!r}, but should be {rule} [requirements of {what}]")
    if chosen:
        try:
            run_pip(python, "install", "--no-deps", *(f"{name}=={version}" for name, version in chosen))
        except PipFailed as failed:
            raise ValueError(
                f"the requirements of {what} cannot be installed [requirements]\n{failed}"
            ) from None


def releases_of(python: Path, name: str) -> list[str]:
    """All releases of a package that the index has for this machine and this Python, oldest first; no previews.

    Raises:
        ValueError: there is none, or the index cannot be reached.
    """
    try:
        found = _AVAILABLE.search(run_pip(python, "index", "versions", name))
    except PipFailed as failed:
        raise ValueError(f"releases of {name} cannot be listed [bisect]\n{failed}") from None
    listed = [Version(one) for one in found[1].split(", ")] if found else []
    return [str(one) for one in sorted(listed) if not one.is_prerelease]


def run_pip(python: Path, *arguments: str) -> str:
    """Run a command of pip's; what it printed.

    Raises:
        PipFailed: with what it said.
        ValueError: the index cannot be reached.
    """
    command = [str(python), "-m", "pip", *arguments, "--no-input", "--disable-pip-version-check"]
    # Not every command has it as an option.
    quiet = {**os.environ, "PIP_PROGRESS_BAR": "off"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=quiet
    )
    if done.returncode and _UNREACHABLE.search(done.stdout):
        rule = "within reach, where something new has to be set up; a checkout needs none where the base has all else"
        raise ValueError(
            f"the package index that pip is configured for cannot be reached, but should be {rule} [pip]"
        )
    if done.returncode:
        raise PipFailed(_telling(done.stdout))
    return done.stdout


def _resolved(
    python: Path, requirements: Sequence[str], pins: Sequence[str], what: str
) -> list[tuple[str, str]]:
    """Names and versions of what would be installed; only looking shows it before gigabytes are fetched."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder, "constraints.txt"), Path(folder, "report.json")
        constraints.write_text("\n".join(pins) + "\n", encoding="utf-8")
        options = ("--dry-run", "--report", str(report), "-c", str(constraints))
        try:
            run_pip(python, "install", *options, *requirements)
        except PipFailed as failed:
            if "ResolutionImpossible" not in str(failed):
                raise ValueError(
                    f"the requirements of {what} cannot be installed [requirements]\n{failed}"
                ) from None
            rule = f"such that the requirements of {what} can be installed beside it"
            raise ValueError(
                f"base = {', '.join(pins)}, but should be {rule} [requirements]\n{failed}"
            ) from None
        found = json.loads(report.read_text(encoding="utf-8"))
    return [(one["metadata"]["name"], one["metadata"]["version"]) for one in found["install"]]


def _telling(output: str) -> str:
    """The lines that say why, without those about what was looked at on the way."""
    lines = [line for line in output.splitlines() if line.strip() and "is ignored: it is" not in line]
    return "\n".join(lines[-_MOST_LINES:])
