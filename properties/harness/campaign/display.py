"""What a campaign shows while it runs: a live table in a terminal, plain lines elsewhere; and its table at the end."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from properties.harness.campaign.coordinator import Campaign
from properties.harness.campaign.launched import coverage_of
from properties.harness.campaign.record import PropertyRecord, Record
from properties.harness.campaign.standing import Standing
from properties.harness.execution.verdict import Status
from properties.harness.kernels import coverage
from properties.harness.text import visible
from properties.harness.text.terminal import cell, said

_LINE_SECONDS = 10.0
_STYLES = {
    Status.FALSIFIED: "bold red",
    Status.ERROR: "bold red",
    Status.UNEXPECTED_PASS: "bold red",
    Status.PASSED: "green",
    Status.KNOWN: "yellow",
}
_BY_VALUE = {status.value: style for status, style in _STYLES.items()}
_ENDED_BEFORE = ("outside", "not offered", "no evidence", "discarded", "vacuous")


def summary(record: Record) -> Table:
    """A row for each property: verdict, examples, those that were compared, and where the others ended."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("property", overflow="fold")
    table.add_column("status", no_wrap=True)
    shown = [name for name in _ENDED_BEFORE if any(_ended(one)[name] for one in record.properties)]
    for name in ("examples", "compared", *shown, "examples/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in record.properties:
        style = _BY_VALUE.get(one.status, "")
        ended = (f"{_ended(one)[name]:,}" for name in shown)
        rate = f"{one.rate:,.0f}" if one.examples else ""
        table.add_row(
            cell(one.name), cell(one.status, style), f"{one.examples:,}", f"{one.compared:,}", *ended, rate
        )
    return table


def _ended(one: PropertyRecord) -> dict[str, int]:
    counts = one.counts
    reasons = (counts.outside.total(), counts.not_offered.total(), counts.no_evidence.total())
    numbers = (*reasons, counts.discarded, max(0, counts.vacuous))
    return dict(zip(_ENDED_BEFORE, numbers, strict=True))


def kernels(record: Record) -> Table | str:
    """A row for each kernel that Triton compiled, with its variants and compilations in all workers together.

    Where kernels are not compiled: a line that says how those were run that were launched, "" without any.
    """
    if record.device == "cpu":
        launched = coverage.summary(coverage_of(record.launched).launches)
        return f"kernels: {launched}" if launched else ""
    table = Table(show_edge=False, pad_edge=False)
    for column in ("kernels compiled", "variants", "compilations"):
        table.add_column(column, justify="left" if column == "kernels compiled" else "right", no_wrap=True)
    for name, one in record.kernels.items():
        table.add_row(cell(name), f"{len(one['variants'])}", f"{one['compilations']}")
    return table if record.kernels else "kernels: none compiled"


class Display:
    """Follows a campaign. Use as a context manager around it, with `watch` as the campaign's watcher."""

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
            with suppress(OSError):
                self._live.__exit__(None, None, None)

    def watch(self, campaign: Campaign) -> None:
        """Show where it stands, and each new failure once."""
        if self._live is not None:
            self._live.update(_window(campaign, max(4, self.console.height - 6)))
        elif time.monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = time.monotonic()
            self.say(line(campaign))
        for key, told in _news(campaign):
            if key not in self._told:
                self._told.add(key)
                self.say(told)

    def say(self, text: str) -> None:
        """Print a line, as far as anybody listens."""
        with suppress(OSError, ValueError):
            self.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def _news(campaign: Campaign) -> list[tuple[str, str]]:
    ledger, plan = campaign.ledger, campaign.plan
    found = [
        (one.id, f"FALSIFIED {one.id}: {one.property}: {said(one.message)}")
        for one in ledger.buckets.values()
    ]
    found += [
        (name, f"ERROR: {name}: {said(_last_line(one))}")
        for name, one in ledger.standings.items()
        if one.error
    ]
    found += [(one, f"trouble: {said(one)}") for one in ledger.troubles]
    if campaign.record.rounds > 1 and plan.seed is None:
        from properties.harness.campaign.plan import seed_of

        number = plan.first_round + campaign.record.rounds - 1
        found.append((f"round {number}", f"round {number}: seed {seed_of(plan, number)}"))
    return found


def _last_line(one: Standing) -> str:
    return one.error.strip().splitlines()[-1]


def _window(campaign: Campaign, room: int) -> Table:
    """The busiest part of the table, so that it fits the terminal."""
    shown = sorted(campaign.ledger.standings.values(), key=_importance)[:room]
    table = Table(caption=line(campaign), caption_justify="left", show_edge=False, pad_edge=False)
    for column in ("property", "status", "examples", "compared", "examples/s"):
        table.add_column(
            column, no_wrap=True, justify="left" if column in ("property", "status") else "right"
        )
    for one in shown:
        style = _STYLES.get(one.status, "cyan" if one.running else "")
        status = Status.RUNNING if one.running and one.status is Status.NOT_TESTED else one.status
        table.add_row(
            cell(one.name, style),
            status.value,
            f"{one.examples:,}",
            f"{one.counts.compared:,}",
            f"{one.rate:,.0f}",
        )
    return table


def _importance(one: Standing) -> int:
    if one.status in (Status.FALSIFIED, Status.ERROR):
        return 0
    return 1 if one.running else 2


def line(campaign: Campaign) -> str:
    """Where the campaign stands, in a line."""
    ledger, plan, spent = campaign.ledger, campaign.plan, campaign.at
    falsified = sum(one.status is Status.FALSIFIED for one in ledger.standings.values())
    running = [one.name for one in ledger.standings.values() if one.running]
    running += [f"the report of known defect {name}" for name in sorted(campaign.reporting)]
    now = f"; running {', '.join(running)}" if running else ""
    of = f" of {plan.budget:.0f}" if plan.budget is not None else ""
    rate = ledger.examples / max(spent, 1e-9)
    reached = sum(one.examples > 0 for one in ledger.marks.values())
    return (
        f"{spent:4.0f} s{of}: {ledger.examples:,} examples, {rate:,.0f}/s, {ledger.behaviours:,} behaviours, "
        f"{reached} of {len(ledger.marks)} marks, {falsified} falsified{now}"
    )


def conclusion(record: Record) -> str:
    """The campaign in one line."""
    counts = {status: sum(one.status == status.value for one in record.properties) for status in Status}
    told = [f"{count} {status.value}" for status, count in counts.items() if count]
    standings = [one.standing for one in record.known]
    for standing in dict.fromkeys(standings):
        count = standings.count(standing)
        told.append(f"{count} known defect{'s' * (count > 1)} {standing}")
    early = "interrupted; " if record.interrupted else ""
    return f"{early}{', '.join(told)}; {record.examples:,} examples in {record.seconds:.0f} s"
