"""The command `compatibility`: campaigns on several releases of vLLM, and the table of what came of them."""

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
    RESULTS,
    Compatibility,
    by_release,
    collected,
    gone_in,
)
from statecheck.releases.compatibility.table import FILES, parts, table
from statecheck.releases.start import wanted_release
from statecheck.rooms import FOLDER
from statecheck.text.command_lines import RELEASED
from statecheck.text.marked_parts import MarkedPart
from statecheck.text.terminal import say

RELEASES = "0.20.2,0.22.1,0.24.0,0.25.1,0.26.0,0.27.1,0.28.0,0.29.0,0.31.0,0.32.0,0.33.0"


def add_compatibility(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "compatibility", help="campaigns on releases of vLLM, and a table: releases x properties"
    )
    parser.add_argument("--releases", default=RELEASES, help=f"versions (default {RELEASES})")
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

    folders = by_release(options.saved) if options.saved else _campaigns(options)
    found = collected(folders, {name: tested.topic for name, tested in load_properties().items()})
    print(table(found))
    complaints = _keep(found) if options.write else []
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not found.complete or complaints:
        return INCOMPLETE
    return CLEAN if found.clean else FALSIFIED


def _campaigns(options: argparse.Namespace) -> list[Path]:
    releases = [name.strip() for name in options.releases.split(",") if name.strip()]
    # What cannot be is found out before the first campaign.
    seconds(options.budget)
    for release in releases or [""]:
        wanted_release(release)
    require_own(options.reports, "compatibility", "reports", "compatibility")
    mark(options.reports, "compatibility")
    command = ["fuzz", "--subject", RELEASED, "--budget", options.budget, "--device", options.device]
    command += ["--only", options.only] if options.only else []
    command += ["--seed", str(options.seed)] if options.seed is not None else []
    return [campaign_on(release, options.reports / release, command) for release in releases]


def campaign_on(release: str, folder: Path, command: Sequence[str], program: Sequence[str] = PROGRAM) -> Path:
    """Run a campaign on a release; its folder, with its record, or a log that says why there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    mark(folder, "reports")
    (folder / CAMPAIGN).unlink(missing_ok=True)
    say(f"{release}: a campaign, whose log is {folder / LOG}")
    run_on(release, (*command, "--reports", str(folder)), folder / LOG, program)
    (column,) = collected([folder], {}).releases
    gone = gone_in(column)
    counted = ", ".join(f"{column.count(state)} {state}" for state in ("passed", "known defect", "NEW"))
    say(f"{release}: {column.trouble or counted}" + (f", gone: {', '.join(gone)}" if gone else ""))
    return folder


def _keep(found: Compatibility) -> list[str]:
    found.save(RESULTS)
    texts = parts(found)
    return [
        wrong for name, file in FILES.items() for wrong in MarkedPart(name, FOLDER, file).write(texts[name])
    ]
