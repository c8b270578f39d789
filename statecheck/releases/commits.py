"""Commits of a checkout, each put into a folder of ours: the checkout itself, and its git state, stay as they are."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statecheck.releases.checkout import UNKNOWN, version_at

_DIGITS = 12
_PACKAGE = "vllm"
_TAKEN = (_PACKAGE, "requirements", "requirements-common.txt", "requirements.txt")
"""What is run, and what says what that requires."""
_RULE = "a range of commits that change vllm/, such as v0.32.0..HEAD"


@dataclass(frozen=True)
class Commits:
    """First parents of a range, oldest first: the last one before it, and those in it that change the package.

    Args:
        shas: whole ids, by the short ones that are shown.
        titles: first lines, by the short ids.
    """

    checkout: Path
    shas: dict[str, str]
    titles: dict[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.shas)


def commits_of(checkout: Path, range_: str = "") -> Commits:
    """The commits of a range, such as "v0.32.0..HEAD"; without one, those since the latest tag.

    Raises:
        ValueError: no checkout of git, no such range, or nothing in it changes the package.
    """
    wanted = range_ or _since_tag(checkout)
    if not re.fullmatch(r"[^\s.-][^\s]*?[^\s.]?\.\.[^\s.-][^\s]*", wanted):
        raise ValueError(f"commits = {range_!r}, but should be {_RULE} [bisect]")
    listed = ("log", "--first-parent", "--reverse", "--format=%H %s", wanted, "--", _PACKAGE)
    try:
        lines = _git(checkout, *listed).splitlines()
    except ValueError as error:
        raise ValueError(f"commits = {wanted!r}, but should be {_RULE} [bisect]: {error}") from None
    if not lines:
        raise ValueError(f"commits = {wanted!r}, which has none, but should be {_RULE} [bisect]")
    lines = [*_before(checkout, lines[0].partition(" ")[0]), *lines]
    pairs = [(sha, title) for sha, _, title in (line.partition(" ") for line in lines)]
    return Commits(
        checkout,
        {sha[:_DIGITS]: sha for sha, _ in pairs},
        {sha[:_DIGITS]: title for sha, title in pairs},
    )


def version_of_commit(commits: Commits, name: str) -> str:
    """The version of the latest tag that it has, or 999: newer than all."""
    return version_at(commits.checkout, commits.shas[name]) or UNKNOWN


def put_into(folder: Path, commits: Commits, name: str) -> None:
    """Make `folder` hold what a commit's package is run from, and nothing else.

    Raises:
        ValueError: the commit has no such package, or git cannot hand it out.
    """
    sha = commits.shas[name]
    shutil.rmtree(folder, ignore_errors=True)
    there = _git(commits.checkout, "ls-tree", "--name-only", sha, "--", *_TAKEN).split()
    if _PACKAGE not in there:
        raise ValueError(f"commit = {name}, but should be one with {_PACKAGE}/ [bisect]")
    folder.mkdir(parents=True)
    _extract(folder, commits.checkout, sha, there)


def _extract(folder: Path, checkout: Path, sha: str, paths: Sequence[str]) -> None:
    # Python takes a compiled file for that of any source of the same time and size; commits may share both.
    moment = int(sha[:7], 16)

    def taken(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        kept = tarfile.data_filter(member, path)
        return kept and kept.replace(mtime=moment, deep=False)

    command = ["git", "-C", str(checkout), "archive", "--format=tar", sha, "--", *paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                archive.extractall(folder, filter=taken)  # noqa: S202 - the filter keeps it inside
        except tarfile.TarError as error:
            raise ValueError(
                f"commit = {sha[:_DIGITS]}, but should be one that git archives: {error}"
            ) from error


def _since_tag(checkout: Path) -> str:
    try:
        tag = _git(checkout, "describe", "--tags", "--abbrev=0", "HEAD^").strip()
    except ValueError as error:
        raise ValueError(
            f"commits = '', but should be {_RULE}, where no tag is found [bisect]: {error}"
        ) from None
    return f"{tag}..HEAD"


def _before(checkout: Path, sha: str) -> list[str]:
    """The first parent, None at the root of the history, or where a clone does not reach further."""
    try:
        return _git(checkout, "log", "--first-parent", "-1", "--format=%H %s", f"{sha}^").splitlines()
    except ValueError:
        return []


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    except OSError as error:
        raise ValueError(f"git cannot be run: {error}") from None
    if done.returncode:
        raise ValueError(next(iter(done.stderr.splitlines()), f"git exits {done.returncode}"))
    return done.stdout
