"""`python -m lab.compatibility`: campaigns on several releases of vLLM or SGLang, and the table of what came of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import click

from lab.compatibility.record import (
    CAMPAIGN,
    LOG,
    Compatibility,
    by_release,
    collected,
    gone_in,
    loaded,
    results_of,
)
from lab.compatibility.table import FILES, parts, table
from lab.marked_parts import MarkedPart
from statecheck.cli.main import run, run_command
from statecheck.cli.options import (
    Duration,
    OptionsCommand,
    location,
    only_option,
    option,
    require_own,
    seed_option,
)
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.releases.start import PROGRAM, release_of, run_on
from statecheck.rooms import FOLDER
from statecheck.subject.loading import PROJECTS, Project
from statecheck.util.files import mark
from statecheck.util.text import say


@click.command(cls=OptionsCommand)
@option("--subject", type=click.Choice(list(PROJECTS)), default="vllm", help="what the releases are of")
@option(
    "--releases", metavar="A,B", help=f"versions (default, of vLLM: {','.join(PROJECTS['vllm'].compared)})"
)
@option("--budget", type=Duration(), default="3m", help="for each release: 90, 60s, 5m")
@option("--device", default="auto", metavar="DEVICE", help="auto, cpu or cuda")
@only_option
@seed_option
@option(
    "--reports",
    type=location,
    default="reports/compatibility",
    metavar="FOLDER",
    help="where reports go, a folder for each release",
)
@option("--from", "saved", type=location, metavar="FOLDER", help="make the table from saved campaigns only")
@option("--write", is_flag=True, help="keep the table, and put it into docs/compatibility.md")
def compatibility(options: SimpleNamespace) -> int:
    """Run campaigns on several releases of a project, and make a table: releases x properties.

    Exit codes: 1 if anything is new or gone; 2 if a release could not be tried as a whole.
    """
    from statecheck.execution.registry import load_properties

    project = PROJECTS[options.subject]
    folders = by_release(options.saved) if options.saved else _campaigns(options, project)
    found = collected(folders, {name: tested.topic for name, tested in load_properties().items()})
    print(table(found))
    complaints = _keep(found, project) if options.write else []
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not found.complete or complaints:
        return INCOMPLETE
    return CLEAN if found.clean else FALSIFIED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code, as those of statecheck."""
    return run_command(compatibility, arguments, "python -m lab.compatibility")


def _campaigns(options: SimpleNamespace, project: Project) -> list[Path]:
    given = project.compared if options.releases is None else options.releases.split(",")
    releases = [name.strip() for name in given if name.strip()]
    # What cannot be is found out before the first campaign.
    for release in releases or [""]:
        release_of(release, project)
    require_own(options.reports, "compatibility", "reports")
    mark(options.reports, "compatibility")
    command = ["fuzz", "--budget", f"{options.budget:g}s", "--device", options.device]
    command += ["--only", options.only] if options.only else []
    command += ["--seed", str(options.seed)] if options.seed is not None else []
    return [campaign_on(project, release, options.reports / release, command) for release in releases]


def campaign_on(
    project: Project, release: str, folder: Path, command: Sequence[str], program: Sequence[str] = PROGRAM
) -> Path:
    """Run a campaign on a release; its folder, with its record, or a log that says why there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    mark(folder, "reports")
    (folder / CAMPAIGN).unlink(missing_ok=True)
    say(f"{release}: a campaign, whose log is {folder / LOG}")
    run_on(release_of(release, project), (*command, "--reports", str(folder)), folder / LOG, program)
    (column,) = collected([folder], {}).releases
    gone = gone_in(column)
    counted = ", ".join(f"{column.count(state)} {state}" for state in ("passed", "known defect", "NEW"))
    say(f"{release}: {column.problem or counted}" + (f", gone: {', '.join(gone)}" if gone else ""))
    return folder


def _keep(found: Compatibility, project: Project) -> list[str]:
    path = results_of(project)
    if path.exists():
        found = found.with_older(loaded(path), project.oldest)
    found.save(path)
    texts = parts(found, project)
    return [
        wrong for name, text in texts.items() for wrong in MarkedPart(name, FOLDER, FILES[name]).write(text)
    ]


if __name__ == "__main__":
    sys.exit(run(main))
