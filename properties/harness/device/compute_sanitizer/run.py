"""Runs cases under compute-sanitizer: in one process, and behind a case that kills the process in another one."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from properties.harness import rooms
from properties.harness.device.compute_sanitizer.parse import Parsed, ToolFinding, parse

ERROR_EXITCODE = 86
_PRINT_LIMIT = 100_000
"""So much that what torch's kernels do hides nothing."""
_GRACE_SECONDS = 5.0
# Those that a version's --help does not name are left out.
_OPTIONS: dict[str, str] = {
    "--print-limit": str(_PRINT_LIMIT),
    "--error-exitcode": str(ERROR_EXITCODE),
    "--show-backtrace": "no",
    # Triton starts ptxas, which has no need to be watched.
    "--target-processes": "application-only",
    # Importing torch takes longer than the tool is used to wait for a first call of CUDA.
    "--launch-timeout": "300",
    "--require-cuda-init": "no",
}
_MEMCHECK: dict[str, str] = {
    # Allocations next to each other would hide what reaches from one into the other.
    "--padding": "4096",
}
_UNSET = ("TRITON_INTERPRET", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_ENVIRONMENT: dict[str, str] = {
    # Each tensor its own cudaMalloc: the tools know nothing of what torch's allocator makes of one.
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "NO_COLOR": "1",
    "PYTHONFAULTHANDLER": "1",
}
_ENDED = re.compile(r"^(DONE|FAILED|SKIPPED|DEAD|NOTE) (\d+) ?(.*)$")
_BEGUN = re.compile(r"^CASE (\d+) ")
_KERNEL = re.compile(r"^KERNEL (\S+)$")


@dataclass(frozen=True)
class ComputeSanitizer:
    """compute-sanitizer as it is found on this machine."""

    path: str
    version: str
    options: frozenset[str]

    @classmethod
    def at(cls, path: str) -> ComputeSanitizer:
        told = re.findall(r"--[a-z][a-z-]+", _output(path, "--help"))
        return cls(path, _output(path, "--version"), frozenset(told))

    def command(self, tool: str) -> list[str]:
        wanted = _OPTIONS | (_MEMCHECK if tool == "memcheck" else {})
        known = ((name, value) for name, value in wanted.items() if name in self.options)
        return [self.path, "--tool", tool, *(word for pair in known for word in pair)]


def _output(*command: str) -> str:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(
            f"compute-sanitizer = {command[0]!r}, but should run [sanitize-gpu]: {error}"
        ) from error
    return (ended.stdout + ended.stderr).strip()


@dataclass(frozen=True)
class WatchedCases:
    """What a tool is to watch: the cases, listed in the file `listed`, in the hands of the subject."""

    subject: str
    cases: Sequence[Path]
    listed: Path
    kernels: Collection[str]
    out: Path


@dataclass(frozen=True)
class Process:
    """A process that has ended: its command, log and exit code, None after a time-out."""

    command: str
    log: str
    seconds: float
    code: int | None


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
        return [one for one in self.findings if one.own]

    @property
    def others(self) -> list[ToolFinding]:
        return [one for one in self.findings if not one.own]

    def counted(self, how: str) -> int:
        return sum(one == how for one in self.ended.values())


def run_tool(sanitizer: ComputeSanitizer, tool: str, work: WatchedCases, timeout: float) -> ToolRun:
    """Run all cases under the tool, for `timeout` seconds at most."""
    run, until, skip = ToolRun(tool), time.monotonic() + timeout, 0
    while skip < len(work.cases):
        log = work.out / f"{tool}-{len(run.processes)}.log"
        command = [*sanitizer.command(tool), *_replay(work, skip)]
        process = _execute(command, log, max(1.0, until - time.monotonic()))
        run.processes.append(process)
        last = _note(run, log.read_text(encoding="utf-8", errors="replace"), process, work)
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
    module = "properties.harness.device.compute_sanitizer.replay"
    options = ["--subject", work.subject, "--skip", str(skip), f"@{work.listed}"]
    # The interpreter itself: a tool that watches one process would watch a wrapper.
    return [sys.executable, "-m", module, *options]


def _execute(command: list[str], log: Path, seconds: float) -> Process:
    """Run it into the log, and end it with all that it started when the time is up.

    The tool prints into the log as well, and not into a --log-file of its own: what it prints then stands behind the
    line of the case that it is about. Both believe to print on a terminal, so that neither keeps lines back.
    """
    started = time.monotonic()
    reader, writer = pty.openpty()
    tty.setraw(writer)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=writer,
        env=_environment(),
        start_new_session=True,
    )
    # The process has its own: with this one open, the reader would never come to an end.
    os.close(writer)
    copying = threading.Thread(target=_copy, args=(reader, log), daemon=True)
    copying.start()
    try:
        code: int | None = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process)
        copying.join(_GRACE_SECONDS)
    return Process(shlex.join(command), str(log), time.monotonic() - started, code)


def _copy(reader: int, log: Path) -> None:
    """Everything that is printed, until nobody is left who could print."""
    with log.open("wb") as file, contextlib.suppress(OSError):
        # At the end of a terminal there is an error, or nothing.
        while printed := os.read(reader, 1 << 16):
            file.write(printed)
            file.flush()
    os.close(reader)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its children, if it still runs; its session is its own. The tool may say what it has."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
    return kept | _ENVIRONMENT | rooms.variables()


def _note(run: ToolRun, text: str, process: Process, work: WatchedCases) -> int:
    """Add what the log of a process says; the number of the last case in it, or -1."""
    parsed = parse(text, run.tool, work.kernels)
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
    explained = {one.case for one in run.own}
    told = []
    for number, path in enumerate(work.cases):
        how = run.ended.get(number, "not run")
        if how not in ("done", "skipped") and str(path) not in explained:
            told.append(f"{how}: {path}")
    return told
