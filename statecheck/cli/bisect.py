"""The command `bisect`: which release of a subject broke a case, and which release repaired it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import click
from packaging.version import InvalidVersion, Version
from rich.table import Table

from statecheck.cli.campaign import console
from statecheck.cli.options import OptionsCommand, corpus_option, option, time_limit_option
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.releases.bisect import Replays, releases_of, search
from statecheck.releases.environment import is_ready
from statecheck.releases.start import PROGRAM, release_of
from statecheck.report.bisection import FILE, RIGHT, WRONG, Bisection, TriedRelease
from statecheck.subject.loading import PROJECTS, Project
from statecheck.util.command_lines import command_line
from statecheck.util.text import cell, said, say


@click.command(cls=OptionsCommand)
@click.argument("case")
@corpus_option("ids are looked up")
@option("--subject", default="", metavar="PROJECT", help=f"{', '.join(PROJECTS)} (default: the case's own)")
@option("--device", default="auto", metavar="DEVICE", help="auto, cpu or cuda")
@option(
    "--releases", default="", metavar="A,B", help="only these (default: all of the index that are adapted)"
)
@option(
    "--first",
    default="",
    metavar="VERSION",
    help="the release that the case was seen with: it is tried first",
)
@option("--all", is_flag=True, help="try every release, also between two of the same verdict")
@time_limit_option
def bisect(options: SimpleNamespace) -> int:
    """Replay a CASE on releases of its subject, and say which of them broke it and which repaired it."""
    return run_bisect(options)


def run_bisect(options: SimpleNamespace, program: Sequence[str] = PROGRAM) -> int:
    """Bisect, show it, and keep it in the case's report, if it stands in one; also what is known when it is interrupted.

    Args:
        program: what replays the case on a release.

    Returns:
        the verdict on the newest release: 0 right, 1 wrong, 2 not known.

    Raises:
        ValueError: an option that cannot be, or a case that cannot be read.
    """
    from statecheck.campaign.corpus import path_of
    from statecheck.case import Case
    from statecheck.execution.executors import choose_device
    from statecheck.report.render import add_bisection

    path = path_of(options.case, options.corpus)
    case = Case.named(path, "bisect")
    subject = options.subject or case.subject
    if subject not in PROJECTS:
        raise ValueError(f"subject = {subject!r}, but should be {' or '.join(PROJECTS)}, which have releases")
    project = PROJECTS[subject]
    replays = Replays(path, choose_device(options.device), options.time_limit, project, program)
    found = _bisected(options, replays)
    _show(found, path, options, project)
    # What is known when it is interrupted replaces nothing that may be whole.
    is_of_report = path.name == "case.json" and (path.parent / "report.md").is_file()
    if is_of_report and not (found.interrupted and (path.parent / FILE).exists()):
        add_bisection(path.parent, found)
        say(f"report: {path.parent / 'report.md'}")
    if found.interrupted:
        return INCOMPLETE
    state = found.newest.state if found.newest else None
    return {RIGHT: CLEAN, WRONG: FALSIFIED}.get(state or "", INCOMPLETE)


def _bisected(options: SimpleNamespace, replays: Replays) -> Bisection:
    project = replays.project
    given = _listed(options.releases, project)
    names = given or releases_of(project)
    ready = [name for name in names if is_ready(release_of(name, project))]
    first = [*_listed(options.first, project), *ready]
    many = f"{len(names)} releases, {names[0]} to {names[-1]}; {len(ready)} are set up in {project.root}"
    if len(ready) < len(names):
        many += f"; each other one that is tried downloads about {project.megabytes} MB once, and takes a minute to set up"
    say(many)
    if not given:
        say(f"--releases {project.compared[0]},{project.compared[-1]} tries only these")

    def tried(name: str) -> TriedRelease:
        release = replays.on_release(name)
        say(f"{name}: {release.verdict} ({release.seconds:.0f} s): {said(release.message)}")
        return release

    return search(Bisection(tuple(names), complete=not given), tried, first, everything=options.all)


def _listed(text: str, project: Project) -> list[str]:
    """The releases that a text names, oldest first."""
    named = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    for one in named:
        release_of(one, project)
    try:
        return sorted(named, key=Version)
    except InvalidVersion as error:
        raise ValueError(
            f"releases = {text!r}, but should be versions such as 0.29.0,0.33.0: {error}"
        ) from None


def _show(found: Bisection, path: Path, options: SimpleNamespace, project: Project) -> None:
    table = Table("release", "verdict", "", box=None, pad_edge=False)
    for row in found.rows:
        table.add_row(*map(cell, row))
    out = console()
    out.print()
    out.print(table)
    if found.note:
        say(said(found.note))
    if found.untried and not any(release.state == WRONG for release in found.tried):
        say(
            "None of the releases that were tried is wrong: --first names the one that the case was seen with."
        )
    if found.untried:
        given = {"releases": options.releases} if options.releases else {}
        line = command_line("bisect", path, subject=project.subject, device=options.device, all=True, **given)
        say(f"{line} tries all of them.")
    say(said(found.line))
