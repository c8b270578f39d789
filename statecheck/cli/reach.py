"""The command `reach`: a campaign that notes which refusals, lines and branches its examples come to, and what they never do."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from statecheck.cli.campaign import console, run_campaign, timed_plan
from statecheck.cli.options import add_campaign_options, add_timed_options

_PAGE = "reach.md"
_MOST = 30
"""Refusals that the terminal names; the page has all."""


def add_reach(commands: Any) -> None:
    """Add the command's parser."""
    reach = commands.add_parser(
        "reach", help="run all properties, and list the refusals, lines and branches that no example came to"
    )
    add_timed_options(reach)
    reach.add_argument("--seed", type=int, default=None, help="repeat a campaign's random choices")
    add_campaign_options(reach)
    reach.set_defaults(run=run_reach)


def run_reach(options: argparse.Namespace) -> int:
    """Run the campaign, print the table, and write the page beside its report; the exit codes are those of a campaign.

    Raises:
        ValueError: an option that cannot be, or a subject that runs in processes of its own, where nothing is noted.
    """
    from statecheck.execution.ports import choose_device

    # A GPU compiles kernels, whose branches are then nowhere to be seen.
    device = "cpu" if options.device == "auto" else choose_device(options.device)
    if options.isolated or (device != "cpu" and options.isolated is None):
        raise ValueError("isolated = True, but should be False where lines are noted: --in-process [reach]")
    rooms = rooms_of(options.subject)
    watched = tuple(file for files in rooms.values() for file in files)
    plan = timed_plan(options, "reach", device, watched=watched)

    def show(out: Console, campaign: Any, folder: Path) -> None:
        try:
            _show(out, campaign, folder, rooms)
        except (OSError, SyntaxError) as error:
            out.print(f"what was reached could not be written: {error}", markup=False, soft_wrap=True)

    return run_campaign(plan, console(wide=True), more=show)


def rooms_of(subject: str) -> dict[str, list[str]]:
    """The files of the rules, and of a subject."""
    import sys

    import oracle
    from statecheck.campaign.start import loaded
    from statecheck.subject.source_files import source_files

    module = loaded(subject).module
    found = source_files(module)
    if Path(module.__file__ or "").name != "__init__.py":
        imported = {getattr(one, "__file__", None) for one in [*sys.modules.values()]}
        found = [path for path in found if str(path) in imported]
    rules = [path for path in source_files(oracle) if "situations" not in path.parts]
    return {"the rules": [*map(str, rules)], subject: [*map(str, found)]}


def _show(out: Console, campaign: Any, folder: Path, rooms: dict[str, list[str]]) -> None:
    from statecheck.campaign.pages.reach import reach_page
    from statecheck.data.files import write_text
    from statecheck.expectations.situations import REFUSALS
    from statecheck.text.command_lines import near

    ledger = campaign.ledger
    marks = ledger.marks | ledger.unexpected
    page = reach_page(REFUSALS.declared(), marks, ledger.reached, rooms, ledger.covered)
    table = Table("", "reached", "there are", show_edge=False, pad_edge=False)
    for name, reached, number in page.table():
        table.add_row(name, f"{reached:,}", f"{number:,}")
    out.print(table)
    missed = page.shares[0].missed
    for sentence in (*missed[:_MOST], *page.wrong):
        out.print(f"never reached: {sentence}", markup=False, highlight=False, soft_wrap=True)
    if len(missed) > _MOST:
        out.print(f"and {len(missed) - _MOST} more", markup=False)
    path = folder / _PAGE
    write_text(path, page.markdown())
    out.print(f"reached: {near(path)}", markup=False, soft_wrap=True)
