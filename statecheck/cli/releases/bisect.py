"""The command `bisect`: which release of a subject broke a case, and which one repaired it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version
from rich.table import Table

from statecheck.cli.campaign import console
from statecheck.cli.options import add_corpus_option, seconds
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.releases.bisect import Replays, search
from statecheck.releases.command import PROGRAM
from statecheck.releases.environment import Maker, this_base
from statecheck.releases.pip import releases_of
from statecheck.releases.project import PROJECTS, Project, released
from statecheck.releases.start import wanted_by, wanted_release
from statecheck.report.bisection import FILE, RIGHT, WRONG, Bisection, TriedRelease
from statecheck.text.command_lines import command_line, option
from statecheck.text.terminal import cell, said, say

_DESCRIPTION = """Replays a case on releases of vLLM or SGLang, and says since which of them it is wrong, and since which it is right
again. Exit code: 0 if it is right in the newest one, 1 if it is wrong there, 2 if nothing is known of that one, 3 if the command
cannot be run as given."""
_OPTIONS: dict[str, dict[str, Any]] = {
    # Not `subject`: with that, a command goes on in the environment of one release.
    "--subject": {
        "dest": "released",
        "metavar": "SUBJECT",
        "default": "",
        "help": "what the releases are of: vllm or sglang (default: the case's own)",
    },
    "--device": {"default": "auto", "help": "auto, cpu or cuda (default auto)"},
    "--releases": {
        "default": "",
        "help": "only these, such as 0.25.1,0.33.0 (default: all of the index since the oldest that is adapted)",
    },
    "--all": {
        "action": "store_true",
        "help": "try every release, instead of bisecting between those whose verdicts differ",
    },
    "--time-limit": {
        "default": "30s",
        "help": "for each call; one without an answer by then hangs: 90, 60s, 10m (default 30s)",
    },
}


def add_bisect(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "bisect",
        help="replay a case on releases of its subject: which one broke it, which one repaired it",
        description=_DESCRIPTION,
    )
    parser.add_argument("case", help="path to a case.json, or the first digits of an id in the corpus")
    add_corpus_option(parser, "ids are looked up")
    for name, given in _OPTIONS.items():
        parser.add_argument(name, **given)
    parser.set_defaults(run=run_bisect)


def run_bisect(options: argparse.Namespace, program: Sequence[str] = PROGRAM) -> int:
    """Bisect, show it, and keep it in the case's report, if it stands in one; also what is known when it is interrupted.

    Args:
        program: what replays the case on a release.

    Raises:
        ValueError: an option that cannot be, or a case that cannot be read.
    """
    from statecheck.campaign.corpus import path_of
    from statecheck.case import Case
    from statecheck.execution.ports import choose_device
    from statecheck.report.markdown import add_bisection

    path = path_of(options.case, options.corpus)
    try:
        case = Case.load(path)
    except OSError as error:
        raise ValueError(f"case = {str(path)!r}, but should be a readable file [bisect]: {error}") from error
    subject = options.released or case.subject
    project = released(subject)
    if project is None or subject != project.subject:
        rule = f"{' or '.join(PROJECTS)}, which have releases"
        raise ValueError(f"subject = {subject!r}, but should be {rule} [bisect]")
    seconds(options.time_limit, "time_limit")
    replays = Replays(path, choose_device(options.device), options.time_limit, program, project)
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


def _bisected(options: argparse.Namespace, replays: Replays) -> Bisection:
    project = replays.project
    checkout = f"{project.variable}_PATH"
    if os.environ.get(checkout):
        rule = "not set: releases are tried; `git bisect run python repro.py --bisect` goes through commits"
        raise ValueError(f"{checkout} = {os.environ[checkout]!r}, but should be {rule} [bisect]")
    wanted = wanted_by(os.environ, project)
    maker = Maker(this_base(project.root), project.root)
    asked = _listed(options.releases, project)
    names = asked or _of_index(project)
    ready = [name for name in names if maker.is_ready(wanted_release(name, project))]
    # The one that the case was seen with is the one that is known to be wrong.
    first = [*([wanted.version] if wanted else []), *ready]
    bisection = Bisection(tuple(names), complete=not asked)
    many = f"{len(names)} releases, {names[0]} to {names[-1]}; {len(ready)} are set up in {maker.root}"
    if len(ready) < len(names):
        many += f"; each other one that is tried downloads about {project.megabytes} MB once, and takes a minute to set up"
    say(many)
    if not asked:
        two = f"{project.compared[0]},{project.compared[-1]}"
        say(f"{option('releases', two)} tries only these")

    def tried(name: str) -> TriedRelease:
        release = replays.on_release(name)
        say(f"{name}: {release.verdict} ({release.seconds:.0f} s): {said(release.message)}")
        return release

    return search(bisection, tried, first, everything=options.all)


def _listed(text: str, project: Project) -> list[str]:
    """The releases that are asked for, oldest first."""
    named = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    for one in named:
        wanted_release(one, project)
    try:
        return sorted(named, key=Version)
    except InvalidVersion as error:
        raise ValueError(
            f"releases = {text!r}, but should be versions such as 0.25.1,0.33.0 [bisect]: {error}"
        ) from None


def _of_index(project: Project) -> list[str]:
    found = releases_of(Path(sys.executable), project.package)
    names = [one for one in found if Version(one) >= Version(project.oldest)]
    if not names:
        raise ValueError(f"releases = none in the index, but should be some since {project.oldest} [bisect]")
    return names


def _show(found: Bisection, path: Path, options: argparse.Namespace, project: Project) -> None:
    table = Table("release", "verdict", "", box=None, pad_edge=False)
    for row in found.rows:
        table.add_row(*map(cell, row))
    out = console()
    out.print()
    out.print(table)
    for remark in found.remarks:
        say(said(remark))
    if found.untried and not any(release.state == WRONG for release in found.tried):
        chosen = f"{project.variable}=<release>"
        say(
            f"None of the releases that were tried is wrong: {chosen} names the one that the case was seen with."
        )
    if found.untried:
        given = {"releases": options.releases} if options.releases else {}
        line = command_line("bisect", path, subject=project.subject, device=options.device, all=True, **given)
        say(f"{line} tries all of them.")
    say(said(found.line))
