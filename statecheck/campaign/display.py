"""What a campaign shows: while it runs, a line that is renewed in a terminal and plain lines elsewhere; at its end, its sections and its verdict.

What is wrong comes first, and what passed is folded into a number: the page has a row for each property.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import PurePath
from typing import Self

from rich.console import Console
from rich.text import Text

from statecheck.campaign.coordinator import Campaign
from statecheck.campaign.plan import seed_of
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.report import bucket_entry, sections
from statecheck.campaign.summary import evidence, verdict
from statecheck.execution.verdict import Status
from statecheck.report.failure import Entry
from statecheck.report.render import entry_lines, github_annotations
from statecheck.util.command_lines import near
from statecheck.util.text import brief, said, visible

_FIRST_LINE_SECONDS, _LINE_SECONDS = 3.0, 10.0
Say = Callable[[str], None]


class Display:
    """Follows a campaign. Use as a context manager around it, with `watch` as the campaign's watcher."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = console.width if console.is_terminal else 0
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
            # Beside the spinner.
            self._status.update(Text(brief(line(campaign), self.width - 3)))
        elif time.monotonic() > self._next_line:
            self._next_line = time.monotonic() + _LINE_SECONDS
            self.say(line(campaign))
        for key, news in _news(campaign, self._printed):
            if key not in self._printed:
                self._printed.add(key)
                for text in entry_lines(Entry(news), self.width):
                    self.say(text)

    def say(self, text: str) -> None:
        """Print a line, unless the output is closed or full."""
        with suppress(OSError, ValueError):
            self.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def _news(campaign: Campaign, printed: Collection[str]) -> Iterator[tuple[str, str]]:
    """What happened by now: a key, and its line."""
    state, plan, record = campaign.state, campaign.plan, campaign.record
    for unit, property_state in state.property_states.items():
        if property_state.failing:
            yield f"failing {unit}", f"failing, being shrunk: {unit}"
        if property_state.error:
            yield unit, f"{Status.ERROR.value}: {unit}: {property_state.error.strip().splitlines()[-1]}"
    # To read their cases takes time, and this is asked several times a second.
    for bucket in (bucket for bucket in state.buckets.values() if bucket.id not in printed):
        line = f"{bucket_entry(bucket, record).headline} ({bucket.property})"
        # The bucket's id is in the name of its case, so that what was announced can be looked for.
        yield bucket.id, f"{Status.FALSIFIED.value} {bucket.id}: {line}"
    for warning in record.warnings:
        yield warning, f"warning: {warning}"
    if record.rounds > 1 and plan.seed is None:
        number = plan.first_round + record.rounds - 1
        yield f"round {number}", f"round {number}: seed {seed_of(plan, number)}"


def line(campaign: Campaign) -> str:
    """Where the campaign stands, in a line."""
    state, plan, spent = campaign.state, campaign.plan, campaign.at
    states = state.property_states.values()
    falsified = len({property_state.id for property_state in states if property_state.failed})
    failing = sum(property_state.failing for property_state in states)
    running = [property_state.unit for property_state in states if property_state.running]
    now = f"; running {', '.join(running)}" if running else ""
    of = f" of {plan.budget:.0f}" if plan.budget is not None else ""
    rate = state.examples / max(spent, 1e-9)
    reached = sum(mark.examples > 0 for mark in state.marks.values())
    shrinking = f", {failing} failing, being shrunk" if failing else ""
    return (
        f"{spent:4.0f} s{of}: {falsified} falsified{shrinking}, {state.examples:,} examples, {rate:,.0f}/s, "
        f"{reached} of {len(state.marks)} marks{now}"
    )


def print_sections(say: Say, record: CampaignRecord, width: int = 0) -> None:
    """Print everything that is to be read beside the verdict, what is wrong first; on GitHub, failures are annotations, too."""
    for section in sections(record):
        for entry in section.entries:
            if entry.rows:
                say("")
            kind = f"{section.kind}: " if section.kind else ""
            for text in entry_lines(Entry(f"{kind}{entry.headline}", entry.rows), width):
                say(text)
        if section.kind == Status.FALSIFIED.value:
            for command in github_annotations(section.entries):
                say(command)
        say("")


def print_verdict(say: Say, record: CampaignRecord, directory: PurePath, width: int = 0) -> int:
    """Print the verdict with its reasons, and where the page is; the exit code.

    Args:
        directory: the campaign's.
    """
    outcome = verdict(record)
    say(outcome.word)
    for reason in (*outcome.reasons, evidence(record)):
        for text in entry_lines(Entry(f"- {reason}"), width):
            say(f"  {text.removeprefix('- ')}")
    say(f"report: {said(near(directory / 'report.html'))}")
    return outcome.exit_code


def conclusion(record: CampaignRecord) -> str:
    """The campaign in one line."""
    counts = {status: sum(row.status == status.value for row in record.properties) for status in Status}
    parts = [f"{count} {status.value}" for status, count in counts.items() if count]
    statuses = [defect.status for defect in record.known]
    for status in dict.fromkeys(statuses):
        count = statuses.count(status)
        what = status if count == 1 else status.replace("no longer fails", "no longer fail")
        parts.append(f"{count} known defect{'s' * (count > 1)} {what}")
    early = "interrupted; " if record.interrupted else ""
    return f"{early}{', '.join(parts)}; {record.examples:,} examples in {record.seconds:.0f} s"
