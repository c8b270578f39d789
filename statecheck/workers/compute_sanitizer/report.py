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
    tell(console, f"{run.tool}: cases: {endings}; {len(run.processes)} processes, {run.seconds:.0f} s")
    tell(console, f"  kernels compiled: {', '.join(sorted(run.compiled)) or 'none'}")
    _tell_all(console, [f"  {line}" for line in run.notes])


def tell_findings(runs: Sequence[ToolRun], console: Console) -> None:
    """A table of the subject's findings, a line for what others did, and what is not known."""
    own = [one for run in runs for one in run.own]
    if own:
        console.print(_table(own))
    for run in runs:
        others = [one for one in run.findings if not one.own]
        kernels = sum(one.count for one in others if one.kernel)
        calls = sum(one.count for one in others) - kernels
        if others:
            seen = f"in other kernels {kernels:,}, in calls of CUDA {calls:,}"
            tell(console, f"{run.tool}: {seen}: see findings.json")
        _tell_all(console, [f"INCOMPLETE: {run.tool}: {line}" for line in run.trouble])
    for path in dict.fromkeys(one.case for one in own if one.case):
        tell(console, f"again: {command_line('sanitize-gpu', Path(path))}")


def _table(findings: Sequence[ToolFinding]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for column in ("tool", "finding", "kernel", "place", "case"):
        table.add_column(column, overflow="fold")
    table.add_column("times", justify="right", no_wrap=True)
    for one in findings:
        # The path from here, where that is shorter.
        case = min(one.case, os.path.relpath(one.case), key=len) if one.case else ""
        table.add_row(*map(escape, (one.tool, one.kind, one.kernel, one.place, case)), f"{one.count:,}")
    return table


def conclusion(runs: Sequence[ToolRun], out: Path) -> str:
    """The run in one line."""
    own = sum(len(run.own) for run in runs)
    found = f"{own} finding{'s' * (own > 1)}" if own else "no finding"
    early = "incomplete; " if any(run.trouble for run in runs) else ""
    cases = max((Counter(run.ended.values())["done"] for run in runs), default=0)
    tools = ", ".join(run.tool for run in runs)
    return f"{early}{found} of {tools} in {cases} whole cases; {out / 'findings.json'}"


def _tell_all(console: Console, lines: Sequence[str]) -> None:
    for line in lines[:_SHOWN]:
        tell(console, line)
    if len(lines) > _SHOWN:
        tell(console, f"  and {len(lines) - _SHOWN} more: see findings.json")


def tell(console: Console, line: str) -> None:
    """Print a line, with nothing in it that a terminal obeys."""
    console.print(visible(line), markup=False, highlight=False, soft_wrap=True)
