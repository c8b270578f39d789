"""Campaigns on releases of vLLM, one after the other, each in its environment."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from statecheck.cli.folders import require_own
from statecheck.cli.options import seconds
from statecheck.data.marked import mark
from statecheck.execution.exit_codes import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.releases.command import last_line, run_in
from statecheck.releases.compatibility.pages import FILES, parts_of_releases
from statecheck.releases.compatibility.record import (
    CAMPAIGN,
    RESULTS,
    RUN,
    Compatibility,
    by_release,
    collected,
    gone_in,
)
from statecheck.releases.compatibility.table import table
from statecheck.releases.environment import ROOT, Environment, Maker, this_base
from statecheck.releases.start import wanted_release
from statecheck.rooms import FOLDER
from statecheck.text.marked_parts import MarkedPart

_LOG = "log.txt"


@dataclass(frozen=True)
class ReleaseCampaigns:
    """Runs the campaigns.

    Args:
        command: what to run with an environment's interpreter; reports go to the folder that is appended.
        reports: has a folder for each release.
    """

    maker: Maker
    command: tuple[str, ...]
    reports: Path

    def run(self, release: str) -> Path:
        """One release; its folder, with the campaign or with why there is none."""
        folder, started = self.reports / release, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        mark(folder, "reports")
        (folder / CAMPAIGN).unlink(missing_ok=True)
        trouble = ""
        try:
            environment = self.maker.enter(wanted_release(release))
        except ValueError as error:
            trouble, ready = str(error), started
        else:
            ready = time.monotonic()
            trouble = self._campaign(release, environment, folder)
        run = {"release": release, "trouble": trouble, "seconds": round(time.monotonic() - ready, 1)}
        run["set_up_seconds"] = round(ready - started, 1)
        (folder / RUN).write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
        return folder

    def _campaign(self, release: str, environment: Environment, folder: Path) -> str:
        """Run it; why it did not get to its end, or ""."""
        arguments = [*self.command, "--reports", str(folder)]
        code = run_in(environment, arguments, {"VLLM": release}, folder / _LOG)
        if (folder / CAMPAIGN).exists():
            return ""
        return f"the campaign ended with exit code {code}: {last_line(folder / _LOG)}"


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
    runner = ReleaseCampaigns(Maker(this_base(ROOT), tell=_tell), _command(options), options.reports)
    return [_told(runner, release) for release in releases]


def _command(options: argparse.Namespace) -> tuple[str, ...]:
    command = ("-m", "statecheck", "fuzz", "--subject", "vllm", "--budget", options.budget)
    chosen = ("--only", options.only) if options.only else ()
    seeded = ("--seed", str(options.seed)) if options.seed is not None else ()
    return (*command, "--device", options.device, *chosen, *seeded)


def _told(runner: ReleaseCampaigns, release: str) -> Path:
    _tell(f"{release}: a campaign, whose log is {runner.reports / release / _LOG}")
    folder = runner.run(release)
    column = collected([folder], {}).columns[0]
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

    prefix = "properties.test_"
    return {name: tested.module.removeprefix(prefix) for name, tested in load_properties().items()}


def _tell(text: str) -> None:
    print(text, flush=True)
