"""Runs cases under a tool that watches: in one process, and behind a case that kills the process in another one."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from statecheck.workers.compute_sanitizer.parse import (
    FALSE_ALARM,
    FINDING,
    UNDECIDED,
    Parsed,
    ToolFinding,
)
from statecheck.workers.compute_sanitizer.process import Process, execute
from statecheck.workers.compute_sanitizer.tool import ERROR_EXITCODE

_ENDED = re.compile(r"^(DONE|FAILED|SKIPPED|DEAD|NOTE) (\d+) ?(.*)$")
_BEGUN = re.compile(r"^CASE (\d+) ")
_KERNEL = re.compile(r"^KERNEL (\S+)$")


@dataclass(frozen=True)
class WatchedCases:
    """What a tool is to watch: the cases, listed in the file `listed`, in the hands of the subject."""

    subject: str
    cases: Sequence[Path]
    listed: Path
    kernels: Collection[str]
    out: Path


class Watcher(Protocol):
    """A tool: how it runs a command, what it prints, and what its reports are worth."""

    @property
    def name(self) -> str: ...

    @property
    def environment(self) -> Mapping[str, str]: ...

    def command(self, replay: Sequence[str]) -> list[str]: ...

    def parse(self, text: str, kernels: Collection[str]) -> Parsed: ...

    def judged(self, findings: Sequence[ToolFinding]) -> list[ToolFinding]: ...


@dataclass
class ToolRun:
    """What came of one tool: by the case's number how it ended, and what makes the run incomplete."""

    tool: str
    processes: list[Process] = field(default_factory=list)
    findings: list[ToolFinding] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)
    compiled: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.processes)

    @property
    def own(self) -> list[ToolFinding]:
        return self._judged(FINDING)

    @property
    def undecided(self) -> list[ToolFinding]:
        return self._judged(UNDECIDED)

    @property
    def false_alarms(self) -> list[ToolFinding]:
        return self._judged(FALSE_ALARM)

    @property
    def others(self) -> list[ToolFinding]:
        return [one for one in self.findings if not one.own]

    def counted(self, how: str) -> int:
        return sum(one == how for one in self.ended.values())

    def _judged(self, verdict: str) -> list[ToolFinding]:
        return [one for one in self.findings if one.own and one.verdict == verdict]


def run_tool(tool: Watcher, work: WatchedCases, timeout: float) -> ToolRun:
    """Run all cases under the tool, for `timeout` seconds at most."""
    run, until, skip = ToolRun(tool.name), time.monotonic() + timeout, 0
    while skip < len(work.cases):
        log = work.out / f"{tool.name}-{len(run.processes)}.log"
        command = tool.command(_replay(work, skip))
        process = execute(command, log, max(1.0, until - time.monotonic()), tool.environment)
        run.processes.append(process)
        text = log.read_text(encoding="utf-8", errors="replace")
        parsed = tool.parse(text, work.kernels)
        last = _note(run, text, parsed, process, work)
        if process.code is None:
            run.trouble.append(f"the time of {timeout:g} s was up")
            break
        if last < skip:
            run.trouble.append(f"no case was begun, exit code {process.code}: see {log}")
            break
        skip = last + 1
        if parsed.limit and last > _first(text):
            # What ran out may have been used up by the cases before.
            skip = last
            del run.ended[last]
        elif parsed.limit:
            run.trouble.append(f"a limit of the tool: {parsed.limit}: {work.cases[last]}")
    run.findings = tool.judged(run.findings)
    run.trouble += [f"undecided: {one.kind} of {one.kernel}: {one.opinion}" for one in run.undecided]
    run.trouble += _left_out(run, work)
    return run


def _replay(work: WatchedCases, skip: int) -> list[str]:
    module = "statecheck.workers.compute_sanitizer.replay"
    options = ["--subject", work.subject, "--skip", str(skip), f"@{work.listed}"]
    # The interpreter itself: a tool that watches one process would watch a wrapper.
    return [sys.executable, "-m", module, *options]


def _first(text: str) -> int:
    """The number of the first case in a log."""
    return next((int(begun[1]) for line in text.splitlines() if (begun := _BEGUN.match(line))), -1)


def _note(run: ToolRun, text: str, parsed: Parsed, process: Process, work: WatchedCases) -> int:
    """Add what the log of a process says; the number of the last case in it, or -1."""
    run.findings += parsed.findings
    run.trouble += parsed.trouble
    if parsed.unprinted:
        run.trouble.append(f"{parsed.unprinted} errors were not printed: see {process.log}")
    last = _follow(run, text)
    if last >= 0:
        _note_end(run, last, process, parsed, whole=last == len(work.cases) - 1)
    return last


def _follow(run: ToolRun, text: str) -> int:
    last = -1
    for line in text.splitlines():
        begun, ended, kernel = _BEGUN.match(line), _ENDED.match(line), _KERNEL.match(line)
        if begun:
            last = int(begun[1])
        elif ended and ended[1] == "NOTE":
            run.notes.append(f"case {ended[2]}: {ended[3]}")
        elif ended:
            run.ended[int(ended[2])] = ended[1].lower()
            run.notes += [f"case {ended[2]}: {ended[3]}"] if ended[3] else []
        elif kernel:
            run.compiled.add(kernel[1])
    return last


def _note_end(run: ToolRun, last: int, process: Process, parsed: Parsed, *, whole: bool) -> None:
    """How the last case of a process ended, and whether the tool came to its summary."""
    run.ended.setdefault(last, "crashed" if process.code is not None else "timed out")
    if whole and run.ended[last] in ("done", "failed", "skipped") and process.code is not None:
        if parsed.errors is None:
            run.trouble.append(f"{run.tool} printed no summary, exit code {process.code}: see {process.log}")
        elif process.code not in (0, ERROR_EXITCODE):
            run.trouble.append(f"{run.tool} ended with exit code {process.code}: see {process.log}")


def _left_out(run: ToolRun, work: WatchedCases) -> list[str]:
    """Cases of which nothing can be said: not run to their end, and no finding tells why."""
    explained = {one.case for one in run.own} | {one.case for one in run.undecided}
    alarmed = {one.case for one in run.false_alarms}
    missing = []
    for number, path in enumerate(work.cases):
        how = run.ended.get(number, "not run")
        if how not in ("done", "skipped") and str(path) not in explained:
            missing.append(f"{'not watched behind a false alarm' if str(path) in alarmed else how}: {path}")
    return missing
