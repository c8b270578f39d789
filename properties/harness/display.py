"""What a campaign shows while it runs and at its end: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from properties.harness.campaign import Campaign, Row, Status

_LINE_SECONDS = 10.0
_STYLES = {
    Status.FALSIFIED: "bold red",
    Status.ERROR: "bold red",
    Status.UNEXPECTED_PASS: "bold red",
    Status.PASSED: "green",
    Status.KNOWN: "yellow",
    Status.RUNNING: "cyan",
}


def summary(campaign: Campaign, *, caption: str = "") -> Table:
    """A row for each property: status, examples, examples per second, and failures with their report."""
    table = Table(caption=caption, caption_justify="left", show_edge=False, pad_edge=False)
    table.add_column("property", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("examples", justify="right", no_wrap=True)
    table.add_column("examples/s", justify="right", no_wrap=True)
    for row in campaign.rows.values():
        rate = f"{row.rate:,.0f}" if row.examples else ""
        style = _STYLES.get(row.status, "")
        status = f"[{style}]{row.status.value}[/]" if style else row.status.value
        table.add_row(escape(row.property_name), status, f"{row.examples:,}", rate)
    return table


def kernels(campaign: Campaign) -> Table | str:
    """A row for each kernel that Triton compiled, with its variants and compilations in all workers together."""
    if campaign.setting.device == "cpu":
        return "kernels: interpreted, none compiled"
    table = Table(show_edge=False, pad_edge=False)
    for column in ("kernels compiled", "variants", "compilations"):
        table.add_column(column, justify="left" if column == "kernels compiled" else "right", no_wrap=True)
    for name, one in campaign.compiled.items():
        table.add_row(escape(name), f"{len(one.variants)}", f"{one.compilations}")
    return table if campaign.compiled else "kernels: none compiled"


class Display:
    """Follows a campaign. Use as a context manager around `Campaign.run`, with `watch` as the campaign's watcher."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._last_line = 0.0
        self._told: set[str] = set()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                console=self.console, refresh_per_second=4, vertical_overflow="crop", transient=True
            )
            self._live.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def watch(self, campaign: Campaign) -> None:
        if self._live is not None:
            self._live.update(self._window(campaign))
        elif time.monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = time.monotonic()
            self.console.print(_line(campaign), markup=False, highlight=False, soft_wrap=True)
        for row in campaign.rows.values():
            if row.status in (Status.FALSIFIED, Status.ERROR) and row.property_name not in self._told:
                self._told.add(row.property_name)
                told = f"{row.status.value}: {row.property_name}: {_first_line(row)}"
                self.console.print(told, markup=False, highlight=False, soft_wrap=True)

    def _window(self, campaign: Campaign) -> Table:
        """The busiest part of the table, so that it fits the terminal."""
        room = max(4, self.console.height - 6)
        order = {Status.FALSIFIED: 0, Status.ERROR: 0, Status.RUNNING: 1}
        shown = sorted(campaign.rows.values(), key=lambda row: order.get(row.status, 2))[:room]
        table = Table(caption=_line(campaign), caption_justify="left", show_edge=False, pad_edge=False)
        for column in ("property", "status", "examples", "examples/s"):
            table.add_column(
                column, no_wrap=True, justify="right" if column.startswith("examples") else "left"
            )
        for row in shown:
            style = _STYLES.get(row.status, "")
            name = f"[{style}]{escape(row.property_name)}[/]" if style else escape(row.property_name)
            table.add_row(name, row.status.value, f"{row.examples:,}", f"{row.rate:,.0f}")
        return table


def _line(campaign: Campaign) -> str:
    spent = campaign.budget - campaign.left
    failures = sum(row.status is Status.FALSIFIED for row in campaign.rows.values())
    running = [row.property_name for row in campaign.rows.values() if row.status is Status.RUNNING]
    known = [f"the report of known defect {name}" for name in sorted(campaign.reporting)]
    now = f"; running {', '.join(running + known)}" if running or known else ""
    rate = campaign.examples / max(spent, 1e-9)
    return (
        f"{spent:4.0f} s of {campaign.budget:.0f}: {campaign.examples:,} examples, {rate:,.0f}/s, "
        f"{failures} falsified{now}"
    )


def _first_line(row: Row) -> str:
    return row.detail.strip().splitlines()[-1] if row.detail else ""


def conclusion(campaign: Campaign) -> str:
    """The campaign in one line."""
    counts = {status: sum(row.status is status for row in campaign.rows.values()) for status in Status}
    told = [f"{count} {status.value}" for status, count in counts.items() if count]
    defects = Counter(one.standing for one in campaign.defects.all.values())
    told += [f"{count} known defect{'s' * (count > 1)} {standing}" for standing, count in defects.items()]
    spent = campaign.budget - campaign.left
    early = "interrupted; " if campaign.interrupted else ""
    return f"{early}{', '.join(told)}; {campaign.examples:,} examples in {spent:.0f} s"
