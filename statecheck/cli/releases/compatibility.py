"""The command `compatibility`: campaigns on several releases of vLLM or SGLang, and the table of what came of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from statecheck.cli.folders import require_own
from statecheck.cli.options import add_only_option, location, seconds
from statecheck.data.marked import mark
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.releases.command import PROGRAM, run_on
from statecheck.releases.compatibility.record import (
    CAMPAIGN,
    LOG,
    Compatibility,
    by_release,
    collected,
    gone_in,
    results_of,
)
from statecheck.releases.compatibility.table import FILES, parts, table
from statecheck.releases.project import PROJECTS, VLLM, Project
from statecheck.releases.start import wanted_release
from statecheck.rooms import FOLDER
from statecheck.text.marked_parts import MarkedPart
from statecheck.text.terminal import say


def add_compatibility(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "compatibility", help="campaigns on releases of vLLM or SGLang, and a table: releases x properties"
    )
    # Not `subject`: with that, a command goes on in the environment of one release.
    parser.add_argument(
        "--subject",
        dest="released",
        metavar="SUBJECT",
        choices=list(PROJECTS),
        default=VLLM.package,
        help=f"what the releases are of: {' or '.join(PROJECTS)} (default {VLLM.package})",
    )
    parser.add_argument(
        "--releases", default=None, help=f"versions (default, of vLLM: {','.join(VLLM.compared)})"
    )
    parser.add_argument("--budget", default="3m", help="for each release: 90, 60s, 5m (default 3m)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    add_only_option(parser)
    parser.add_argument("--seed", type=int, default=None, help="repeat the campaigns' random choices")
    parser.add_argument(
        "--reports",
        type=location,
        default="reports/compatibility",
        help="where reports go, a folder for each release (default reports/compatibility/)",
    )
    parser.add_argument(
        "--from",
        dest="saved",
        type=location,
        metavar="FOLDER",
        help="make the table from saved campaigns only",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="keep the table, and put it into README.md and docs/compatibility.md",
    )
    parser.set_defaults(run=run_compatibility)


def run_compatibility(options: argparse.Namespace) -> int:
    """Run the campaigns, or take saved ones, and show the table.

    Returns:
        1 if anything is new or gone, 2 if a release could not be tried as a whole.
    """
    from statecheck.execution.registry import load_properties

    project = PROJECTS[options.released]
    folders = by_release(options.saved) if options.saved else _campaigns(options, project)
    found = collected(folders, {name: tested.topic for name, tested in load_properties().items()})
    print(table(found))
    complaints = _keep(found, project) if options.write else []
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not found.complete or complaints:
        return INCOMPLETE
    return CLEAN if found.clean else FALSIFIED


def _campaigns(options: argparse.Namespace, project: Project) -> list[Path]:
    asked = project.compared if options.releases is None else options.releases.split(",")
    releases = [name.strip() for name in asked if name.strip()]
    # What cannot be is found out before the first campaign.
    seconds(options.budget)
    for release in releases or [""]:
        wanted_release(release, project)
    require_own(options.reports, "compatibility", "reports", "compatibility")
    mark(options.reports, "compatibility")
    command = ["fuzz", "--subject", project.subject, "--budget", options.budget, "--device", options.device]
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
    run_on(project, release, (*command, "--reports", str(folder)), folder / LOG, program)
    (column,) = collected([folder], {}).releases
    gone = gone_in(column)
    counted = ", ".join(f"{column.count(state)} {state}" for state in ("passed", "known defect", "NEW"))
    say(f"{release}: {column.trouble or counted}" + (f", gone: {', '.join(gone)}" if gone else ""))
    return folder


def _keep(found: Compatibility, project: Project) -> list[str]:
    found.save(results_of(project))
    texts = parts(found, project)
    return [
        wrong for name, text in texts.items() for wrong in MarkedPart(name, FOLDER, FILES[name]).write(text)
    ]
