"""What a run of the tools tells on the terminal."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from statecheck.text import visible
from statecheck.text.command_lines import command_line
from statecheck.workers.compute_sanitizer.parse import ToolFinding
from statecheck.workers.compute_sanitizer.run import ToolRun

_SHOWN = 10


def tell_run(run: ToolRun, console: Console) -> None:
    """What a tool went through, before anything that it found."""
    ended = Counter(run.ended.values())
    endings = ", ".join(f"{count} {how}" for how, count in sorted(ended.items())) or "no case begun"
    kernels = ", ".join(sorted(run.compiled)) or "none"
    _print(console, f"{run.tool}: cases: {endings}; {len(run.processes)} processes, {run.seconds:.0f} s")
    _print(console, f"  kernels compiled: {kernels}")
    for line in run.notes[:_SHOWN]:
        _print(console, f"  {line}")
    _tell_rest(console, run.notes)


def tell_findings(runs: Sequence[ToolRun], console: Console) -> None:
    """A table of the subject's findings, a line for what others did, and what is not known."""
    own = [one for run in runs for one in run.own]
    if own:
        console.print(_table(own))
    for run in runs:
        _tell_others(run, console)
        for one in run.false_alarms:
            _print(
                console, f"false alarm: {run.tool}: {one.kind} of {one.kernel} at {one.place}: {one.opinion}"
            )
        for line in run.trouble[:_SHOWN]:
            _print(console, f"INCOMPLETE: {run.tool}: {line}")
        _tell_rest(console, run.trouble)
    undecided = [one for run in runs for one in run.undecided]
    for path in dict.fromkeys(one.case for one in (*own, *undecided) if one.case):
        _print(console, f"again: {command_line('sanitize-gpu', Path(path))}")


def _table(findings: Sequence[ToolFinding]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for column in ("tool", "finding", "kernel", "place", "case"):
        table.add_column(column, overflow="fold")
    table.add_column("times", justify="right", no_wrap=True)
    for one in findings:
        said = one.kind if one.kind != "other" else f"other: {one.text}"
        cells = (
            one.tool,
            f"{said}; {one.opinion}".removesuffix("; "),
            one.kernel,
            one.place,
            _near(one.case),
        )
        table.add_row(*map(escape, cells), f"{one.count:,}")
    return table


def _tell_others(run: ToolRun, console: Console) -> None:
    if not run.others:
        return
    calls = sum(one.count for one in run.others if not one.kernel)
    kernels = sum(one.count for one in run.others if one.kernel)
    _print(
        console, f"{run.tool}: in other kernels {kernels:,}, in calls of CUDA {calls:,}: see findings.json"
    )


def conclusion(runs: Sequence[ToolRun], out: Path) -> str:
    """The run in one line."""
    own = sum(len(run.own) for run in runs)
    found = f"{own} finding{'s' * (own > 1)}" if own else "no finding"
    early = "incomplete; " if any(run.trouble for run in runs) else ""
    cases = max((run.counted("done") for run in runs), default=0)
    tools = ", ".join(run.tool for run in runs)
    return f"{early}{found} of {tools} in {cases} whole cases; {out / 'findings.json'}"


def _near(path: str) -> str:
    """The path from here, where that is shorter."""
    return min(path, os.path.relpath(path), key=len) if path else ""


def _tell_rest(console: Console, lines: Sequence[str]) -> None:
    if len(lines) > _SHOWN:
        _print(console, f"  and {len(lines) - _SHOWN} more: see findings.json")


def _print(console: Console, line: str) -> None:
    console.print(visible(line), markup=False, highlight=False, soft_wrap=True)
