"""A script of the user's under the sanitizer, as `python script.py` would run it, but that its kernels are executed here."""

from __future__ import annotations

import contextlib
import linecache
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from statecheck.case.findings import Access, Finding, NotExecuted
from statecheck.kernels import triton_mode
from statecheck.kernels.launch_counts import EXECUTED, LAUNCHES, NOT_EXECUTED, How
from statecheck.util.text import counted, visible

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched

CLEAN, FOUND, FAILED = 0, 1, 2
_LINES_AROUND = 3


@dataclass(frozen=True)
class SanitizedScript:
    """What to run, and how."""

    path: Path
    arguments: tuple[str, ...] = ()
    order: str = ""
    empties: bool = True


def sanitize_script(script: SanitizedScript) -> int:
    """Run a script and report what was found.

    Returns:
        0 if it is clean, 1 after a finding, 2 if the script failed on its own or launched nothing.

    Raises:
        ValueError: no such file or order, or a process whose kernels are compiled.
    """
    if not script.path.is_file():
        raise ValueError(f"script = '{script.path}', but should be a file [sanitize]")
    triton_mode.prepare("cpu")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    seen = _SeenLaunches()
    error = _run(script, seen)
    return _report(script, seen, error)


class _SeenLaunches:
    """What a script has launched."""

    def __init__(self) -> None:
        self.programs = 0
        self.finding: Finding | None = None
        self._before = LAUNCHES.copy()

    def note(self, launched: Launched, make: Callable[[], None]) -> None:
        """Findings are remembered here, since a script may catch every exception."""
        try:
            make()
        except Finding as finding:
            self.finding = self.finding or finding
            raise
        self.programs += prod(launched.grid)

    def made(self, how: str) -> dict[How, int]:
        """How many launches of each kernel were made so."""
        return {launch: count for launch, count in (LAUNCHES - self._before).items() if launch.how == how}


def _run(script: SanitizedScript, seen: _SeenLaunches) -> BaseException | None:
    """What the script has raised, its end by `sys.exit` included."""
    with _watching(script, seen), _as_main(script):
        try:
            runpy.run_path(str(script.path.absolute()), run_name="__main__")
        except (Exception, SystemExit) as raised:
            return raised
    return None


@contextlib.contextmanager
def _watching(script: SanitizedScript, seen: _SeenLaunches) -> Iterator[None]:
    from statecheck.kernels.launch import launching, watching
    from statecheck.kernels.orders import program_schedule
    from statecheck.kernels.sanitizer.empties import empties_unwritten
    from statecheck.kernels.sanitizer.watch import Sanitizer

    watch = Sanitizer()
    with watching(lambda: watch), contextlib.ExitStack() as more:
        if script.empties:
            more.enter_context(empties_unwritten(watch))
        more.enter_context(program_schedule(script.order))
        more.enter_context(launching(seen.note))
        yield


@contextlib.contextmanager
def _as_main(script: SanitizedScript) -> Iterator[None]:
    arguments, path = sys.argv, list(sys.path)
    sys.argv = [str(script.path), *script.arguments]
    sys.path[:1] = [str(script.path.resolve().parent)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = arguments, path
        # Whatever it says there, kernels were executed.
        os.environ.pop(triton_mode.INTERPRET, None)


def _report(script: SanitizedScript, seen: _SeenLaunches, error: BaseException | None) -> int:
    if seen.finding is not None:
        _report_finding(seen.finding)
        return FOUND
    if error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0)):
        _report_failure(script, error)
        return FAILED
    watched, others = sum(seen.made(EXECUTED).values()), seen.made(NOT_EXECUTED)
    if not watched and not others:
        print(f"error: no kernel was launched by {script.path}", file=sys.stderr)
        return FAILED
    if watched:
        launches, programs = counted(watched, "launch", "launches"), counted(seen.programs, "program")
        _say(f"CLEAN: {launches}, {programs}")
    for launch, count in others.items():
        kernel = f"{launch.kernel} ({counted(count, 'launch', 'launches')})"
        _say(f"not executed: {kernel}: {launch.why}")
    if not watched:
        print("error: no launch could be watched", file=sys.stderr)
    return CLEAN if watched else FAILED


def _say(text: str) -> None:
    print(visible(text))


def _report_finding(finding: Finding) -> None:
    _say(f"{type(finding).__name__}: {finding}")
    others = [finding.other] if finding.other and finding.other.path != finding.access.path else []
    for access in (finding.access, *others):
        _say(f"\n{access.path}  {access.verb}, program {access.program} of {access.kernel}")
        _show_source(access)


def _show_source(access: Access) -> None:
    path, _, number = access.path.rpartition(":")
    lines, line = linecache.getlines(path), int(number or 0)
    first, last = max(line - _LINES_AROUND, 1), min(line + _LINES_AROUND, len(lines))
    for at in range(first, last + 1):
        _say(f"{'>' if at == line else ' '} {at:4} {lines[at - 1].rstrip()}".rstrip())


def _report_failure(script: SanitizedScript, error: BaseException) -> None:
    if isinstance(error, SystemExit):
        print(f"error: {script.path} ended with exit code {error.code}", file=sys.stderr)
        return
    if isinstance(error, NotExecuted):
        print(f"error: {visible(str(error))}", file=sys.stderr)
        return
    traceback.print_exception(error)
    print(f"error: {script.path} failed", file=sys.stderr)
    if any(name in str(error).lower() for name in ("cuda", "nvidia")):
        print("hint: tensors have to be on the CPU", file=sys.stderr)
