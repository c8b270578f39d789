"""Runs cases under a tool that watches: in one process, and behind a case that kills the process in another one."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from statecheck.workers.compute_sanitizer.parse import Parsed, ToolFinding, parse
from statecheck.workers.compute_sanitizer.process import Process, execute
from statecheck.workers.compute_sanitizer.tool import ERROR_EXITCODE, ComputeSanitizer, environment

_LINE = re.compile(r"^(CASE|DONE|FAILED|SKIPPED|DEAD|KERNEL) (\S+) ?(.*)$")


@dataclass(frozen=True)
class WatchedCases:
    """What a tool is to watch: the cases, listed in the file `listed`, in the hands of the subject."""

    subject: str
    cases: Sequence[Path]
    listed: Path
    kernels: Collection[str]
    out: Path


@dataclass
class ToolRun:
    """What came of one tool: by the case's number how it ended, and what makes the run incomplete."""

    tool: str
    processes: list[Process] = field(default_factory=list)
    findings: list[ToolFinding] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)
    compiled: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.processes)

    @property
    def own(self) -> list[ToolFinding]:
        return [one for one in self.findings if one.own]


def run_tool(sanitizer: ComputeSanitizer, tool: str, work: WatchedCases, timeout: float) -> ToolRun:
    """Run all cases under the tool, for `timeout` seconds at most."""
    run, until, skip = ToolRun(tool), time.monotonic() + timeout, 0
    while skip < len(work.cases):
        log = work.out / f"{tool}-{len(run.processes)}.log"
        command = sanitizer.command(tool, _replay(work, skip))
        process = execute(command, log, max(1.0, until - time.monotonic()), environment())
        run.processes.append(process)
        last = _note(run, process, work)
        if process.code is None:
            run.trouble.append(f"the time of {timeout:g} s was up")
            break
        if last < skip:
            run.trouble.append(f"no case was begun, exit code {process.code}: see {log}")
            break
        skip = last + 1
    run.trouble += _left_out(run, work)
    return run


def _replay(work: WatchedCases, skip: int) -> list[str]:
    module = "statecheck.workers.compute_sanitizer.replay"
    options = ["--subject", work.subject, "--skip", str(skip), f"@{work.listed}"]
    # The interpreter itself: a tool that watches one process would watch a wrapper.
    return [sys.executable, "-m", module, *options]


def _note(run: ToolRun, process: Process, work: WatchedCases) -> int:
    """Add what the log of a process says; the number of the last case in it, or -1."""
    text = Path(process.log).read_text(encoding="utf-8", errors="replace")
    parsed = parse(text, run.tool, work.kernels)
    run.findings += parsed.findings
    run.trouble += parsed.trouble
    if parsed.unprinted:
        run.trouble.append(f"{parsed.unprinted} errors were not printed: see {process.log}")
    last = _follow(run, text)
    if last >= 0:
        run.ended.setdefault(last, "crashed" if process.code is not None else "timed out")
    if last == len(work.cases) - 1 and run.ended[last] in ("done", "failed", "skipped"):
        _note_summary(run, process, parsed)
    return last


def _follow(run: ToolRun, text: str) -> int:
    """Add what the replay announces; the number of the last case that it began."""
    last = -1
    for word, about, more in (found.groups() for found in map(_LINE.match, text.splitlines()) if found):
        if word == "CASE":
            last = int(about)
        elif word == "KERNEL":
            run.compiled[about] = None
        else:
            run.ended[int(about)] = word.lower()
            run.notes += [f"case {about}: {more}"] if more else []
    return last


def _note_summary(run: ToolRun, process: Process, parsed: Parsed) -> None:
    """Whether the tool came to its summary, behind the last case."""
    if process.code is not None and parsed.errors is None:
        run.trouble.append(f"{run.tool} printed no summary, exit code {process.code}: see {process.log}")
    elif process.code not in (None, 0, ERROR_EXITCODE):
        run.trouble.append(f"{run.tool} ended with exit code {process.code}: see {process.log}")


def _left_out(run: ToolRun, work: WatchedCases) -> list[str]:
    """Cases of which nothing can be said: not run to their end, and no finding tells why."""
    explained = {one.case for one in run.own}
    ended = [(run.ended.get(number, "not run"), str(path)) for number, path in enumerate(work.cases)]
    return [
        f"{how}: {path}" for how, path in ended if how not in ("done", "skipped") and path not in explained
    ]
