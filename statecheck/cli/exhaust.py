"""The command `exhaust`: all inputs of each decision up to a bound, the oracle beside the subject, as far as the budget goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from statecheck.cli.campaign import console, run_campaign, timed_options, timed_plan
from statecheck.cli.options import OptionsCommand
from statecheck.util.text import visible

if TYPE_CHECKING:
    from statecheck.campaign.scheduler import DecisionProgress, Exhaustion


@click.command(cls=OptionsCommand)
@timed_options
def exhaust(options: SimpleNamespace) -> int:
    """Try all inputs of each decision up to a bound that grows until the time is up."""
    options.seed = 0
    # A saved case is an input that is larger than the smallest.
    plan = timed_plan(options, "exhaust", exhaustive=True, replayed=False)
    return run_campaign(plan, console(wide=True), more=_bounds)


def _bounds(out: Console, campaign: Any, _: Path) -> None:
    """A row for each decision, and what its bound counts and leaves out."""
    out.print()
    out.print(table_of(campaign.exhaustion))
    for line in _meanings(campaign.exhaustion):
        out.print(visible(line), markup=False, highlight=False, soft_wrap=True)


def table_of(exhaustion: Exhaustion) -> Table:
    """The last bound of each decision of which all inputs were tried, their number, and how far the next one came."""
    table = Table(show_edge=False, pad_edge=False)
    for name in ("decision", "property", "bound", "inputs", "of the next bound"):
        table.add_column(name, justify="right" if name in ("bound", "inputs") else "left")
    for progress in exhaustion.progress.values():
        enumeration = progress.enumeration
        table.add_row(enumeration.decision, enumeration.property, *_reached(progress))
    return table


def _reached(progress: DecisionProgress) -> tuple[str, str, str]:
    """Bound, inputs and what is incomplete."""
    if progress.property_state.reason:
        return "", "0", f"not applicable: {progress.property_state.reason}"
    bound = str(progress.bound - 1) if progress.bound else "none"
    state = "falsified" if progress.falsified else "incomplete"
    return bound, f"{progress.complete:,}", f"{progress.bound}: {state}, {progress.begun:,} inputs"


def _meanings(exhaustion: Exhaustion) -> Iterator[str]:
    """For decisions of one meaning, what a bound counts, which inputs stand for others, and what no bound reaches."""
    decisions: dict[tuple[str, str, str], list[str]] = {}
    for progress in exhaustion.progress.values():
        one = progress.enumeration
        decisions.setdefault((one.bound, one.symmetry, one.left_out), []).append(one.decision)
    for (bound, symmetry, left_out), names in decisions.items():
        yield f"{', '.join(names)}: a bound counts {bound}"
        if symmetry:
            yield f"  tried once: {symmetry}"
        if left_out:
            yield f"  left out: {left_out}"
