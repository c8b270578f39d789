"""The command `traces`: a given number of scenarios of requests, and how often each interesting moment came up."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from statecheck.cli.campaign import console, fresh_plan, run_campaign
from statecheck.cli.options import add_campaign_options, seconds
from statecheck.execution.selection import heading

if TYPE_CHECKING:
    from statecheck.execution.example import Tally


def add_traces(commands: Any) -> None:
    """Add the command's parser."""
    traces = commands.add_parser(
        "traces", help="send generated requests through engines: so many traces, of so many steps at most"
    )
    traces.add_argument(
        "--count", type=int, default=300, help="how many traces, of all machines together (default 300)"
    )
    traces.add_argument("--steps", type=int, default=60, help="most rules of a trace (default 60)")
    traces.add_argument(
        "--budget", default="", help="how long at most: 90, 60s, 5m, 8h (default: until all are done)"
    )
    traces.add_argument("--seed", type=int, default=None, help="repeat a run's random choices")
    traces.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    add_campaign_options(traces)
    traces.set_defaults(run=run_traces)


def run_traces(options: argparse.Namespace) -> int:
    """Run them, and print the table; the exit codes are those of a campaign.

    Raises:
        ValueError: an option that cannot be.
    """
    from statecheck.execution.port import choose_device
    from statecheck.execution.selection import cores, require_processes

    for name in ("count", "steps"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} = {value}, but should be >= 1 [traces]")
    plan = fresh_plan(
        options,
        require_processes("workers", cores() if options.workers is None else options.workers, "traces"),
        device=choose_device(options.device),
        budget=seconds(options.budget) if options.budget else None,
        examples=options.count,
        steps=options.steps,
        scenarios=True,
    )
    return run_campaign(plan, console(wide=True), more=_moments)


def _moments(out: Console, campaign: Any) -> None:
    """A row for each moment, a column for each property."""
    followed = [standing for standing in campaign.ledger.standings.values() if not standing.reason]
    out.print(table_of([(heading(one.tested), one.tally) for one in followed]))


def table_of(tallies: Sequence[tuple[str, Tally]]) -> Table:
    """The share of each property's scenarios in which each moment came up."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("moment", no_wrap=True)
    for name, tally in tallies:
        heading = f"{name}\n{tally.scenarios:,} traces\n{tally.steps:,} steps"
        table.add_column(heading, justify="right", no_wrap=True)
    for mark, shares in shares_of([tally for _, tally in tallies]).items():
        table.add_row(mark, *(f"{share:.1%}" for share in shares))
    return table


def shares_of(tallies: Sequence[Tally]) -> dict[str, list[float]]:
    """By moment, the share of each property's scenarios in which it came up."""
    from properties.engine.marks import MARKS

    return {mark: [tally.marks[mark] / max(1, tally.scenarios) for tally in tallies] for mark in MARKS}
