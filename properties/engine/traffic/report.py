"""What a replay of recorded traffic shows and leaves behind: progress, a table, and files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from oracle.lifecycle.requests import SchedulerStep as Scheduled
from properties.engine.driver import Engine
from properties.engine.flaws import Violation
from properties.engine.traffic.counts import ServedCounts
from properties.engine.traffic.engines import ReplayOptions
from properties.engine.traffic.requests import TrafficSummary
from properties.engine.world import World
from statecheck.report.numbers import environment, save
from statecheck.report.picture import svg
from statecheck.text import visible

_LINE_SECONDS = 10.0
_BOUNDARIES = (
    "boundary hit exactly by acceptance",
    "boundary crossed by one",
    "boundary crossed by several",
    "all accepted up to the boundary",
    "boundary hit by a prompt chunk",
)


class Progress:
    """Shows how far a replay is: a bar in a terminal, a line now and then elsewhere. Use as a context manager."""

    def __init__(self, console: Console, requests: int) -> None:
        self._console, self._requests = console, requests
        self._began = self._last_line = time.monotonic()
        self._bar = Bar(
            TextColumn("requests"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=requests)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._bar.stop()

    def show(self, counts: ServedCounts) -> None:
        rate = counts.steps / max(time.monotonic() - self._began, 1e-9)
        progress = (
            f"{counts.steps:,} steps, {rate:,.1f}/s, {counts.hits:,} hits, {counts.violations} violations"
        )
        self._bar.update(self._task, completed=counts.finished, description=progress)
        if not self._console.is_terminal and time.monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = time.monotonic()
            print_text(self._console, f"{counts.finished:,} of {self._requests:,} requests, {progress}")


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
    for name in _BOUNDARIES if "marks" in content else ():
        found.add_row(f"  {name}", f"{content['marks'].get(name, 0):,}")
    found.add_row("steps/s", f"{content['steps_per_second']:,.1f}")
    return found


def step_record(step: int, scheduled: Scheduled, sampled: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """A step as data, to find what went wrong after it."""
    rows = [
        {
            "request": row.id,
            "computed": row.computed,
            "length": row.length,
            "drafts": len(row.drafts),
            "sampled": len(sampled.get(row.id, ())),
            "hit": row.hit,
            "new_blocks": row.new_blocks,
        }
        for row in scheduled.rows
    ]
    gone = {"finished": scheduled.finished, "preempted": scheduled.preempted, "lost": scheduled.lost}
    return {"step": step, "rows": rows, **gone}


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


def engine_line(options: ReplayOptions, world: World, device: str) -> str:
    """The engine around a subject's functions."""
    groups = world.setup.groups
    block = sum(world.setup.pages().values())
    layers = " + ".join(str(group.layers) for group in groups)
    return (
        f"subject {options.subject}, device {device}, runner {world.runner}, layout {world.setup.layout}, {layers} layers, "
        f"{world.num_blocks:,} blocks of {world.block_size} tokens and {block:,} bytes"
    )


def sizes(world: World) -> dict[str, Any]:
    """The engine around a subject's functions, as plain data."""
    return {
        "groups": [[asdict(state) for state in group.states] for group in world.setup.groups],
        "layers": [group.layers for group in world.setup.groups],
        "blocks": world.num_blocks,
        "block_bytes": sum(world.setup.pages().values()),
        "block_size": world.block_size,
        "max_model_len": world.max_model_len,
        "builders": world.kinds,
    }


def tell_violation(
    console: Console,
    options: ReplayOptions,
    engine: Engine,
    violation: Violation | None,
    recent: Sequence[Mapping[str, Any]],
) -> None:
    """The message, where it was, the last steps, and a picture of the last moments; nothing where there is no violation."""
    if violation is None:
        return
    flaw = violation.flaw
    timeline = engine.story.timeline(flaw)
    (options.out / "violation.svg").write_text(svg(timeline), encoding="utf-8")
    content = {
        "message": flaw.message,
        "step": engine.steps,
        "request": timeline.finding.request if timeline.finding else None,
        "group": flaw.group,
        "block": flaw.block,
        "moments": [moment.title for moment in timeline.moments],
        "steps": list(recent),
    }
    save(options.out / "violation.json", content)
    print_text(
        console, f"VIOLATION: {flaw.message}\n  {options.out / 'violation.json'}, violation.svg beside it"
    )
    again = f"--requests {options.requests} --seed {options.seed}"
    print_text(console, f"  it comes again with the same options, {again} among them")


def tell_no_engine(console: Console, options: ReplayOptions, violation: Violation) -> None:
    """Of a subject that cannot even be set up there is nothing to tell but why."""
    save(options.out / "violation.json", {"message": str(violation), "step": None, "steps": []})
    print_text(console, f"VIOLATION: {violation}\n  {options.out / 'violation.json'}")
