"""`python -m lab.adapters`: what a user runs, on the newest release of each system that the adapters are tried with.

In an environment of the release run the tests of its adapter and the fixed examples of a profile. A system whose environment cannot be made, since the
package index does not answer, is left out with the reason; the others decide.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from packaging.version import Version

from lab.sources import ROOT
from statecheck import rooms
from statecheck.cli.main import run, run_command
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.releases.bisect import releases_of
from statecheck.releases.environment import enter
from statecheck.releases.start import last_line, release_of, run_on
from statecheck.subject.loading import PROJECTS, Project
from statecheck.util.text import say
from statecheck.workers.commands import run_command as run_program

PROFILES = {"vllm": "engines", "sglang": "engines"}
"""The profile of an engine; a library of sequences has `sequences`."""
LOGS = ROOT / "build" / "adapters"
NO_TESTS = 5
"""The exit code of pytest where no test was chosen."""
_END = 6000
"""The characters of a log that are printed of a system that failed."""


@dataclass(frozen=True)
class AdapterResult:
    """What became of a system; `left_out` is the reason why nothing was run, "" where something was."""

    system: str
    logs: tuple[Path, ...] = ()
    left_out: str = ""
    tests: str = ""
    profile: str = ""
    failed: bool = False
    seconds: int = 0

    @property
    def line(self) -> str:
        """For the log, and for people."""
        if self.left_out:
            return f"{self.system}: LEFT OUT: {self.left_out}"
        verdict = "FAILED" if self.failed else "passed"
        return f"{self.system}: {verdict} after {self.seconds} s; tests: {self.tests}; {self.profile}"


def newest(project: Project, *, published: bool) -> str:
    """The newest release that the adapter is tried with, or that the package index has.

    Raises:
        ValueError: the index has none, or does not answer.
    """
    return releases_of(project)[-1] if published else max((*project.compared, project.example), key=Version)


def verified(project: Project, profile: str, *, published: bool) -> AdapterResult:
    """Make the environment of the newest release, and run the tests and the profile in it."""
    started = time.monotonic()
    try:
        release = release_of(newest(project, published=published), project)
        python = enter(release)
    except ValueError as error:
        return AdapterResult(project.name, left_out=str(error).replace("\n", " "))
    log, tested = LOGS / f"{project.subject}-profile.log", LOGS / f"{project.subject}-tests.log"
    variables = rooms.added_to({**os.environ, **release.variables})
    tests = (
        "-m",
        "pytest",
        "tests/adapters",
        "-k",
        project.subject,
        "--slow",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
    )
    code = run_program([str(python), *tests], variables=variables, log=tested, folder=ROOT).returncode
    reports = ("--reports", str(LOGS / project.subject))
    conformed = run_on(
        release, ("conform", "--subject", project.subject, "--profile", profile, *reports), log
    )
    return AdapterResult(
        str(release),
        (tested, log),
        tests=last_line(tested),
        profile=f"{profile}: {last_line(log)}",
        failed=code not in (0, NO_TESTS) or conformed != CLEAN,
        seconds=round(time.monotonic() - started),
    )


@click.command()
@click.argument("systems", nargs=-1, type=click.Choice(sorted(PROJECTS)))
@click.option(
    "--published",
    is_flag=True,
    help="the newest release of the package index, which the adapters may not know yet",
)
def adapters(systems: Sequence[str], *, published: bool) -> int:
    """Run the adapters' tests and the profiles on the newest release of SYSTEMS, of all without one.

    Exit codes: 1 if a test or a profile failed; 2 if no system could be tried.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    results = []
    for name in systems or PROJECTS:
        say(f"== {name}")
        results.append(verified(PROJECTS[name], PROFILES.get(name, "sequences"), published=published))
        say(results[-1].line)
    failed = [one for one in results if one.failed]
    for path in (path for one in failed for path in one.logs):
        say(f"== {path}\n{path.read_text(encoding='utf-8', errors='replace')[-_END:]}")
    left_out = [one.system for one in results if one.left_out]
    say(
        f"adapters: {len(results) - len(failed) - len(left_out)} passed, {len(failed)} failed, {len(left_out)} left out"
        + (f" ({', '.join(left_out)}: the reason is above)" if left_out else "")
    )
    if failed:
        return FALSIFIED
    return INCOMPLETE if len(left_out) == len(results) else CLEAN


if __name__ == "__main__":
    sys.exit(run(lambda: run_command(adapters, None, "python -m lab.adapters")))
