"""What a replay of recorded traffic shows and leaves behind: progress, a table, and files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from properties.engine.traffic.counts import ServedCounts
from properties.engine.traffic.options import ReplayOptions
from properties.engine.traffic.requests import TrafficSummary
from statecheck.report.numbers import environment, save
from statecheck.util.text import visible

_LINE_SECONDS = 10.0


class Progress:
    """Prints how far a replay is, a line now and then."""

    def __init__(self, console: Console, requests: int) -> None:
        self._console, self._requests = console, requests
        self._began = self._last_line = time.monotonic()

    def show(self, counts: ServedCounts) -> None:
        now = time.monotonic()
        if now - self._last_line > _LINE_SECONDS:
            self._last_line = now
            rate = counts.steps / max(now - self._began, 1e-9)
            print_text(
                self._console,
                f"{counts.finished:,} of {self._requests:,} requests, {counts.steps:,} steps, {rate:,.1f}/s, "
                f"{counts.hits:,} hits, {counts.violations} violations",
            )


def print_text(console: Console, text: str) -> None:
    """A line, whatever is in it."""
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def print_headline(console: Console, options: ReplayOptions, traffic: TrafficSummary, engine: str) -> None:
    """What is replayed, and in what engine."""
    print_text(
        console,
        f"{options.trace.name}, lengths / {options.factor}: {traffic.requests:,} requests, {traffic.tokens_in:,} prompt tokens "
        f"({traffic.share_seen:.0%} seen before), {traffic.tokens_out:,} to generate",
    )
    print_text(console, f"{engine}, {options.num_spec} drafts, seed {options.seed}")


def table(content: Mapping[str, Any]) -> Table:
    """All counts of a replay, a row each."""
    found = Table(show_edge=False, pad_edge=False, show_header=False)
    found.add_column("what")
    found.add_column("count", justify="right", no_wrap=True)
    for name, number in content["counts"].items():
        found.add_row(name.replace("_", " "), f"{number:,}")
    found.add_row("steps/s", f"{content['steps_per_second']:,.1f}")
    return found


def finish(
    console: Console,
    options: ReplayOptions,
    content: dict[str, Any],
    world: Mapping[str, Any],
    tell: Callable[[], None],
) -> None:
    """Write the files and print what they are about; `tell` does so for what broke a law."""
    plain = {
        name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()
    }
    content["steps_per_second"] = content["counts"]["steps"] / max(content["seconds"], 1e-9)
    content |= {"options": plain, "world": world, "environment": environment()}
    save(options.out / "replay.json", content)
    console.print(table(content))
    tell()
    seconds = f"{content['seconds']:.0f} s"
    print_text(
        console,
        f"{content['outcome']}: {content['counts']['steps']:,} steps in {seconds}; {options.out / 'replay.json'}",
    )
