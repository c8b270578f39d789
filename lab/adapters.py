"""`python -m lab.adapters`: what a user runs, on the newest release of each system that the adapters are tried with.

In an environment of the release run the tests of its adapter and the fixed examples of a profile, of two systems at once: one often waits for the
package index. A system is left out with the reason if its environment cannot be made, or if its time is over and nothing was wrong; the others decide.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from packaging.version import Version

from lab.sources import ROOT
from statecheck import rooms
from statecheck.cli.main import run, run_command
from statecheck.execution.verdict import CLEAN, FALSIFIED
from statecheck.releases.bisect import releases_of
from statecheck.releases.environment import Release, is_ready
from statecheck.releases.start import PROGRAM, last_line, release_of, run_on
from statecheck.subject.loading import PROJECTS, Project
from statecheck.util.text import counted, say
from statecheck.workers.commands import run_command as run_program

PROFILES = {"vllm": "engines", "sglang": "engines", "fla": "recurrences"}
"""A library of sequences has `sequences`."""
LOGS = ROOT / "build" / "adapters"
NOTHING_TRIED = 5
"""The exit code where all systems are left out; 2 is that of a command that is interrupted."""
_AT_ONCE = 2
_END = 6000
"""The characters of a log that are printed of a system that failed."""
_MEGABYTES = 10
"""Disk space that an environment takes for a megabyte of the release: the wheel, its files, and its requirements."""
_LEAST_MEGABYTES = 1000
_ENTER = """
import sys
from statecheck.releases.environment import enter
from statecheck.releases.start import release_of
from statecheck.subject.loading import PROJECTS
try:
    enter(release_of(sys.argv[2], PROJECTS[sys.argv[1]]))
except ValueError as error:
    sys.exit(" ".join(str(error).split()))
"""
"""In a process of its own, since pip may wait for an index for a long time."""


@dataclass(frozen=True)
class AdapterResult:
    """What became of a system; `left_out` is the reason why it decides nothing, "" where it does."""

    system: str
    logs: tuple[Path, ...] = ()
    left_out: str = ""
    tests: int = 0
    skipped: tuple[str, ...] = ()
    examples: int = 0
    failures: tuple[str, ...] = ()
    seconds: int = 0

    @property
    def counts(self) -> str:
        return f"{counted(self.tests, 'test')} and {counted(self.examples, 'example')}"

    @property
    def line(self) -> str:
        if self.left_out:
            return f"{self.system}: LEFT OUT: {self.left_out}"
        verdict = f"FAILED ({'; '.join(self.failures)})" if self.failures else "passed"
        return f"{self.system}: {verdict} after {self.seconds} s; {self.counts}"


def newest(project: Project, *, published: bool) -> str:
    """The newest release that the adapter is tried with, or that the package index has.

    Raises:
        ValueError: the index has none, or does not answer.
    """
    return releases_of(project)[-1] if published else max((*project.compared, project.example), key=Version)


def adapter_tests(project: Project) -> list[str]:
    """The files with the tests of its adapter, by their names."""
    return sorted(map(str, (ROOT / "tests" / "adapters").rglob(f"test_*{project.subject}*.py")))


def verified(
    project: Project, *, published: bool = False, limit: float, remove: bool = False
) -> AdapterResult:
    """Make the environment of the newest release, and run the tests and the profile in it.

    Args:
        published: the newest release of the package index, which the adapters may not know yet.
        limit: the seconds that all of it may take.
        remove: remove the environment afterwards if it was made here.
    """
    say(f"== {project.name}")
    started = time.monotonic()

    def limited() -> tuple[str, ...]:
        """Ctrl-C reaches the program, too, and it ends its processes when its time is over."""
        left = max(1, round(started + limit - time.monotonic()))
        return ("timeout", "--foreground", "--signal=INT", "--kill-after=30", str(left))

    try:
        release = release_of(newest(project, published=published), project)
    except ValueError as error:
        return AdapterResult(project.name, left_out=" ".join(str(error).split()))
    is_new = not is_ready(release)
    if reason := (_lacks_space(release) or _not_made(release, limited())) if is_new else "":
        return AdapterResult(str(release), left_out=reason)
    log, tested = LOGS / f"{project.subject}-profile.log", LOGS / f"{project.subject}-tests.log"
    variables = rooms.added_to({**os.environ, **release.variables})
    options = ("--slow", "-q", "-rs", "-p", "no:cacheprovider")
    tests = [*limited(), str(release.python), "-m", "pytest", *adapter_tests(project), *options]
    code = run_program(tests, variables=variables, log=tested, folder=ROOT).returncode
    # A slow machine is no fault of a system: what ends with the limit, and has shown nothing wrong, is left out.
    is_over = time.monotonic() - started >= limit
    has_failed = bool(code) and (not is_over or bool(re.search(r"\d+ (failed|error)", last_line(tested))))
    failures = [f"tests: {last_line(tested)}"] if has_failed else []
    reports = LOGS / project.subject
    shutil.rmtree(reports, ignore_errors=True)
    profile = PROFILES.get(project.subject, "sequences")
    # The other core is the other system's.
    command = ("conform", "--subject", project.subject, "--profile", profile, "--workers", "1")
    code = run_on(release, (*command, "--reports", str(reports)), log, (*limited(), *PROGRAM))
    seconds = round(time.monotonic() - started)
    is_over = seconds >= limit
    if code != CLEAN and (code == FALSIFIED or not is_over):
        failures.append(f"profile {profile}: {last_line(log)}")
    if remove and is_new:
        shutil.rmtree(release.folder, ignore_errors=True)
    lines = tested.read_text(encoding="utf-8", errors="replace").splitlines()
    passed = re.search(r"(\d+) passed", lines[-1] if lines else "")
    return AdapterResult(
        str(release),
        (tested, log),
        left_out=f"its {round(limit)} s were over before the end" if is_over and not failures else "",
        tests=int(passed[1]) if passed else 0,
        skipped=tuple(line for line in lines if line.startswith("SKIPPED")),
        examples=sum(
            row.get("examples", 0)
            for path in reports.glob("campaigns/*/conformance.json")
            for row in json.loads(path.read_text(encoding="utf-8"))["properties"].values()
        ),
        failures=tuple(failures),
        seconds=seconds,
    )


def _lacks_space(release: Release) -> str:
    """That the disk has no room for the environment; "" where it has."""
    root = release.project.root
    free = shutil.disk_usage(root if root.exists() else root.parent).free // 2**20
    needed = max(_LEAST_MEGABYTES, _MEGABYTES * release.project.megabytes)
    return f"its environment takes up to {needed:,} MB, and the disk has {free:,}" if free < needed else ""


def _not_made(release: Release, limited: Sequence[str]) -> str:
    """Why the environment cannot be made; "" where it is there."""
    log = LOGS / f"{release.project.subject}-environment.log"
    words = [*limited, sys.executable, "-c", _ENTER, release.project.subject, release.version]
    code = run_program(words, variables=rooms.added_to(dict(os.environ)), log=log, folder=ROOT).returncode
    return f"exit code {code}: {last_line(log)}" if code else ""


@click.command()
@click.argument("systems", nargs=-1, type=click.Choice(sorted(PROJECTS)))
@click.option(
    "--published",
    is_flag=True,
    help="the newest release of the package index, which the adapters may not know yet",
)
@click.option("--limit", default=900.0, show_default=True, help="seconds that a system may take")
@click.option("--remove", is_flag=True, help="remove the environments that this command makes")
def adapters(systems: Sequence[str], *, published: bool, limit: float, remove: bool) -> int:
    """Run the adapters' tests and the profiles on the newest release of SYSTEMS, of all without one.

    Exit codes: 1 if a test or a profile failed; 5 if no system could be tried.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    results = []
    verify = partial(verified, published=published, limit=limit, remove=remove)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for result in pool.map(verify, [PROJECTS[name] for name in systems or PROJECTS]):
            results.append(result)
            say("\n".join([result.line, *result.skipped]))
    failed = [result for result in results if result.failures]
    for path in (path for result in failed for path in result.logs):
        log = path.read_text(encoding="utf-8", errors="replace")
        # A campaign prints its failures before the verdicts of its properties, which may fill the end of the log.
        failures = [part for part in log[:-_END].split("\n\n") if part.startswith("FALSIFIED: ")]
        say("\n\n".join([f"== {path}", *failures, log[-_END:]]))
    say("adapters: " + "; ".join(result.line for result in results))
    if failed:
        return FALSIFIED
    return NOTHING_TRIED if all(result.left_out for result in results) else CLEAN


if __name__ == "__main__":
    sys.exit(run(lambda: run_command(adapters, None, "python -m lab.adapters")))
