"""What a campaign shows while it runs, a line that is renewed in a terminal and plain lines elsewhere; and its table at the end."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Self

from rich.console import Console
from rich.table import Table
from rich.text import Text

from statecheck.campaign.coordinator import Campaign
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.state import PropertyState
from statecheck.execution.verdict import Status
from statecheck.kernels import launch_counts
from statecheck.util.text import cell, on_one_line, said, visible

_FIRST_LINE_SECONDS, _LINE_SECONDS = 3.0, 10.0
_STYLES = {
    Status.FALSIFIED.value: "bold red",
    Status.ERROR.value: "bold red",
    Status.NOT_FINISHED.value: "bold red",
    Status.UNEXPECTED_PASS.value: "bold red",
    Status.PASSED.value: "green",
    Status.KNOWN.value: "yellow",
}


def summary(record: CampaignRecord) -> Table:
    """A row for each property that applies: verdict, examples, and those that were compared; the page has where the others ended."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("property", ratio=1, overflow="fold")
    table.add_column("status", no_wrap=True)
    for name in ("examples", "compared", "examples/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in (row for row in record.properties if row.status != Status.NOT_APPLICABLE.value):
        rate = f"{row.rate:,.0f}" if row.examples else ""
        status = cell(row.status, _STYLES.get(row.status, ""))
        table.add_row(cell(row.id), status, f"{row.examples:,}", f"{row.compared:,}", rate)
    return table


def kernels(record: CampaignRecord) -> str:
    """How launched kernels were run: executed, and which were not; "" without any, and where kernels are compiled."""
    launched = launch_counts.summary(dict(record.launched))
    return f"kernels: {launched}" if launched else ""


class Display:
    """Follows a campaign. Use as a context manager around it, with `watch` as the campaign's watcher."""

    def __init__(self, console: Console) -> None:
        self.console = console
        # Not for a file: the status imports modules for .013 s.
        self._status = console.status("") if console.is_terminal else None
        self._next_line = time.monotonic() + _FIRST_LINE_SECONDS
        self._printed: set[str] = set()

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *details: object) -> None:
        if self._status is not None:
            with suppress(OSError):
                self._status.stop()

    def watch(self, campaign: Campaign) -> None:
        """Show where it stands, and each new failure once."""
        if self._status is not None:
            shown = Text(on_one_line(line(campaign)), no_wrap=True, overflow="ellipsis")
            self._status.update(shown)
        elif time.monotonic() > self._next_line:
            self._next_line = time.monotonic() + _LINE_SECONDS
            self.say(line(campaign))
        for key, text in _news(campaign):
            if key not in self._printed:
                self._printed.add(key)
                self.say(text)

    def say(self, text: str) -> None:
        """Print a line, unless the output is closed or full."""
        with suppress(OSError, ValueError):
            self.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def _news(campaign: Campaign) -> list[tuple[str, str]]:
    state, plan = campaign.state, campaign.plan
    found = [
        (bucket.id, f"FALSIFIED {bucket.id}: {bucket.property}: {said(bucket.message)}")
        for bucket in state.buckets.values()
    ]
    found += [
        (name, f"ERROR: {name}: {said(_last_line(property_state))}")
        for name, property_state in state.property_states.items()
        if property_state.error
    ]
    found += [(warning, f"warning: {said(warning)}") for warning in campaign.record.warnings]
    if campaign.record.rounds > 1 and plan.seed is None:
        from statecheck.campaign.plan import seed_of

        number = plan.first_round + campaign.record.rounds - 1
        found.append((f"round {number}", f"round {number}: seed {seed_of(plan, number)}"))
    return found


def _last_line(property_state: PropertyState) -> str:
    return property_state.error.strip().splitlines()[-1]


def line(campaign: Campaign) -> str:
    """Where the campaign stands, in a line."""
    state, plan, spent = campaign.state, campaign.plan, campaign.at
    falsified = len(
        {property_state.id for property_state in state.property_states.values() if property_state.failed}
    )
    running = [
        property_state.unit for property_state in state.property_states.values() if property_state.running
    ]
    now = f"; running {', '.join(running)}" if running else ""
    of = f" of {plan.budget:.0f}" if plan.budget is not None else ""
    rate = state.examples / max(spent, 1e-9)
    reached = sum(mark.examples > 0 for mark in state.marks.values())
    return (
        f"{spent:4.0f} s{of}: {state.examples:,} examples, {rate:,.0f}/s, "
        f"{reached} of {len(state.marks)} marks, {falsified} falsified{now}"
    )


def conclusion(record: CampaignRecord) -> str:
    """The campaign in one line."""
    counts = {status: sum(row.status == status.value for row in record.properties) for status in Status}
    parts = [f"{count} {status.value}" for status, count in counts.items() if count]
    property_states = [defect.standing for defect in record.known]
    for property_state in dict.fromkeys(property_states):
        count = property_states.count(property_state)
        what = property_state if count == 1 else property_state.replace("no longer fails", "no longer fail")
        parts.append(f"{count} known defect{'s' * (count > 1)} {what}")
    early = "interrupted; " if record.interrupted else ""
    return f"{early}{', '.join(parts)}; {record.examples:,} examples in {record.seconds:.0f} s"
