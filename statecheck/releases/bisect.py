"""Since when a case is wrong: which releases to try next, so that few are enough, and the replay on one of them."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from packaging.version import Version

from statecheck.execution.verdict import MISCONFIGURED
from statecheck.releases.start import PROGRAM, last_line, release_of, run_on
from statecheck.report.bisection import NO_VERDICT, NOT_SET_UP, Bisection, TriedRelease
from statecheck.subject.loading import Project
from statecheck.util.text import brief
from statecheck.workers.commands import run_command

_LONGEST = 400


def search(
    bisection: Bisection,
    try_release: Callable[[str], TriedRelease],
    first: Sequence[str] = (),
    *,
    everything: bool = False,
) -> Bisection:
    """Try releases until every change of verdict that was seen lies between two neighbours.

    Between two releases of one verdict nothing is tried: a change there and back would not be seen.

    Args:
        bisection: all releases, and those that were tried already.
        first: tried before anything else, such as those that cost nothing.
        everything: try all of them.

    Returns: what is known at the end, or when the user interrupts it.
    """
    while True:
        tried = bisection.by_name
        wanted = [*(name for name in first if name in bisection.names), *_ends(bisection)]
        wanted += [*(bisection.names if everything else ()), *_middles(bisection)]
        name = next((name for name in wanted if name not in tried), None)
        if name is None:
            return bisection
        try:
            bisection = replace(bisection, tried=(*bisection.tried, try_release(name)))
        except KeyboardInterrupt:
            return replace(bisection, interrupted=True)


def _ends(bisection: Bisection) -> Iterator[str]:
    """From both ends inwards, up to the first release that something is known of."""
    tried = bisection.by_name
    for names in (bisection.names, bisection.names[::-1]):
        for name in names:
            yield name
            if name not in tried or tried[name].state:
                break


def _middles(bisection: Bisection) -> Iterator[str]:
    """Of what was not tried between two neighbours of different verdicts, the release in the middle."""
    tried = bisection.by_name
    for one, other in pairwise(bisection.decided):
        if one.state != other.state:
            between = [name for name in bisection.between(one.name, other.name) if name not in tried]
            yield from between[len(between) // 2 :][:1]


@dataclass(frozen=True)
class Replays:
    """Replays `case` on a device; `time_limit` is that of a call, in seconds."""

    case: Path
    device: str
    time_limit: float
    project: Project
    program: Sequence[str] = PROGRAM

    def on_release(self, name: str) -> TriedRelease:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            file, log = Path(folder, "verdict.json"), Path(folder, "log.txt")
            options = ("--device", self.device, "--verdict", str(file), "--time-limit", str(self.time_limit))
            arguments = ("replay", str(self.case.resolve()), *options)
            code = run_on(release_of(name, self.project), arguments, log, self.program)
            if file.is_file():
                replayed = json.loads(file.read_text(encoding="utf-8"))
                verdict, message = replayed["verdict"], replayed["message"]
            elif code == MISCONFIGURED:
                verdict, message = NOT_SET_UP, last_line(log)
            else:
                verdict = NO_VERDICT
                message = f"the replay ended with exit code {code}: {last_line(log)}"
        return TriedRelease(name, verdict, brief(message, _LONGEST), round(time.monotonic() - started, 1))


def releases_of(project: Project) -> list[str]:
    """All releases of a project that pip finds for this machine and this Python, oldest first, without previews and those before the oldest that is adapted.

    Raises:
        ValueError: there is none, or pip fails.
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "index",
        "versions",
        project.package,
        "--disable-pip-version-check",
    ]
    done = run_command(command)
    found = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    versions = [Version(part) for part in found[1].split(", ")] if found else []
    oldest = Version(project.oldest)
    names = [str(version) for version in sorted(versions) if version >= oldest and not version.is_prerelease]
    if not names:
        why = done.stderr.strip().split("\n")[-1]
        raise ValueError(f"releases = none in the index, but should be some since {project.oldest}: {why}")
    return names
