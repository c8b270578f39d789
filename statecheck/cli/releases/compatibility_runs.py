"""Campaigns on releases of vLLM, one after the other, each in its environment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from statecheck.cli.folders import require_own
from statecheck.cli.options import seconds
from statecheck.data.marked import mark
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.releases.command import PROGRAM, run_on
from statecheck.releases.compatibility.pages import FILES, parts_of_releases
from statecheck.releases.compatibility.record import (
    CAMPAIGN,
    LOG,
    RESULTS,
    Compatibility,
    by_release,
    collected,
    gone_in,
)
from statecheck.releases.compatibility.table import table
from statecheck.releases.start import wanted_release
from statecheck.rooms import FOLDER
from statecheck.text.command_lines import RELEASED
from statecheck.text.marked_parts import MarkedPart


def run_compatibility(options: argparse.Namespace) -> int:
    """Run the campaigns, or take saved ones, and show the table.

    Returns:
        1 if anything is new or gone, 2 if a release could not be tried as a whole.
    """
    folders = by_release(options.saved) if options.saved else _campaigns(options)
    found = collected(folders, _topics())
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
    return [campaign_on(release, options.reports / release, _command(options)) for release in releases]


def _command(options: argparse.Namespace) -> tuple[str, ...]:
    command = ("fuzz", "--subject", RELEASED, "--budget", options.budget, "--device", options.device)
    chosen = ("--only", options.only) if options.only else ()
    seeded = ("--seed", str(options.seed)) if options.seed is not None else ()
    return (*command, *chosen, *seeded)


def campaign_on(release: str, folder: Path, command: Sequence[str], program: Sequence[str] = PROGRAM) -> Path:
    """Run a campaign on a release; its folder, with its record, or a log that says why there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    mark(folder, "reports")
    (folder / CAMPAIGN).unlink(missing_ok=True)
    _tell(f"{release}: a campaign, whose log is {folder / LOG}")
    run_on(release, (*command, "--reports", str(folder)), folder / LOG, program)
    (column,) = collected([folder], {}).releases
    gone = gone_in(column)
    counted = ", ".join(f"{column.count(state)} {state}" for state in ("passed", "known defect", "NEW"))
    _tell(f"{release}: {column.trouble or counted}" + (f", gone: {', '.join(gone)}" if gone else ""))
    return folder


def _keep(found: Compatibility) -> list[str]:
    found.save(RESULTS)
    parts = parts_of_releases(RESULTS)
    return [
        wrong for name, file in FILES.items() for wrong in MarkedPart(name, FOLDER, file).write(parts[name])
    ]


def _topics() -> dict[str, str]:
    from statecheck.execution.registry import load_properties

    return {name: tested.topic for name, tested in load_properties().items()}


def _tell(text: str) -> None:
    print(text, flush=True)
