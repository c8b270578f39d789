"""Runs saved cases one after another on the GPU, for a tool that watches: `python -m statecheck.workers.compute_sanitizer.replay`.

Lines of their own on stdout are for the reader of the tool's log: CASE and a number before each case, and
DONE, SKIPPED, FAILED or DEAD with the number behind it; KERNEL names one that was compiled, and for Triton's sanitizer LAUNCH
one that is launched, with the file in which the launch was written down. Outcomes are not compared: under such a tool they prove nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from statecheck.case import Case
from statecheck.case.values import Raised, Refusal
from statecheck.execution.port import InProcess, Port
from statecheck.execution.run import Run, recorded
from statecheck.execution.selection import NEED_CUDA, missing_functions
from statecheck.kernels import compilations, triton_mode
from statecheck.subject import Subject, load
from statecheck.workers.global_sanitizer.memory import Grid, own_memory, tell_launches, write_down

DEAD = 75
"""Exit code after a case that left the GPU's context unusable: nothing more can be run in this process."""
_LAST_WORDS_SECONDS = 1.0
_SETTLE_SECONDS = 0.03
"""The tool prints in a process of its own, which should have done so before the next case is announced."""


class NotApplicable(Exception):
    """The subject lacks what the case calls."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases. Ends the process with `DEAD` behind a case that killed the context."""
    options = _parser().parse_args(arguments)
    # The number of a case is the same in all processes of a run.
    numbered = list(enumerate(options.cases))[options.skip :]
    triton_mode.prepare(options.device)
    subject = load(options.subject)
    port = InProcess(subject, options.device, guards=False)
    _tell_versions(options.device)
    launches = _Launches(options.launches) if options.launches else None
    with own_memory() if launches else nullcontext():
        for number, path in numbered:
            _say(f"CASE {number} {path}")
            with launches.of_case(number) if launches else nullcontext():
                _take(number, path, subject, port, graphs=launches is None)


class _Launches:
    """Writes launches down as they are made: after a report the memory of the GPU can be read no more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._case = 0
        self._written: list[Path] = []
        folder.mkdir(parents=True, exist_ok=True)
        tell_launches(self._tell)

    @contextmanager
    def of_case(self, number: int) -> Iterator[None]:
        """Files are left behind only where the process ends in the case."""
        self._case = number
        yield
        self._remove()

    def _tell(self, kernel: str, grid: Grid, source: Any, arguments: tuple[Any, ...]) -> None:
        path = self._folder / f"{self._case}-{len(self._written)}.pickle"
        if write_down(path, grid, source, arguments):
            # The memory could be read, so that nothing was reported of the launch before.
            self._remove()
        self._written.append(path)
        _say(f"LAUNCH {kernel} {path}")

    def _remove(self) -> None:
        for path in self._written:
            path.unlink(missing_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--subject", default="impl")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--skip", type=int, default=0, help="how many of the cases to leave out, from the first"
    )
    parser.add_argument(
        "--launches",
        type=Path,
        help="for Triton's sanitizer: in memory that it watches; where to write launches down",
    )
    parser.add_argument("cases", type=Path, nargs="+", help="case files, or @file with a path on each line")
    return parser


def _take(number: int, path: Path, subject: Subject, port: Port, *, graphs: bool) -> None:
    """Run a case and say what came of it."""
    try:
        for note in _run(Case.load(path), subject, port, graphs=graphs):
            _say(f"NOTE {number} {note}")
        _end_if_dead(number, port.device)
        _say(f"DONE {number}")
    except NotApplicable as error:
        _say(f"SKIPPED {number} {error}")
    except Exception as error:
        # Before the tensors in the traceback are freed, which aborts the process where the context is dead.
        _end_if_dead(number, port.device)
        traceback.print_exc(file=sys.stdout)
        _say(f"FAILED {number} {_one_line(error)}")
    _say_compiled()


def _end_if_dead(number: int, device: str) -> None:
    dead = _context_error(device)
    if dead:
        _say_compiled()
        _say(f"DEAD {number} {dead}")
        time.sleep(_LAST_WORDS_SECONDS)
        os._exit(DEAD)


def _say_compiled() -> None:
    for name in compilations.take():
        _say(f"KERNEL {name}")


def _run(case: Case, subject: Subject, port: Port, *, graphs: bool) -> Iterator[str]:
    """Execute the steps; what is worth a note."""
    _check_functions(case, subject)
    if not graphs and any(call.function in NEED_CUDA for call in case.calls):
        raise NotApplicable("it captures graphs, in which Triton's sanitizer sees nothing")
    port.begin()
    for taken in Run(port, recorded(case.expected)).take_all(case.steps):
        outcome = taken.outcome
        if isinstance(outcome, Raised) and not isinstance(taken.expected, Refusal):
            yield f"{taken.call.function} raised {outcome.exception}: {outcome.message}"


def _check_functions(case: Case, subject: Subject) -> None:
    """Refuse a case that calls anything but documented functions, or ones that the subject lacks."""
    missing = missing_functions(case, subject)
    if missing:
        raise NotApplicable(f"{subject.name} has no {', '.join(missing)}")


def _context_error(device: str) -> str:
    """What is wrong with the GPU's context, or nothing."""
    if device == "cpu":
        return ""
    import torch

    try:
        torch.cuda.synchronize()
        time.sleep(_SETTLE_SECONDS)
    except RuntimeError as error:
        return _one_line(error)
    return ""


def _tell_versions(device: str) -> None:
    import torch
    import triton

    where = torch.cuda.get_device_name() if device != "cpu" else "cpu"
    _say(f"RUNS ON {where}, torch {torch.__version__}, triton {triton.__version__}, Python {sys.version}")


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _say(line: str) -> None:
    print(" ".join(line.splitlines()), flush=True)


if __name__ == "__main__":
    main()
    if "--launches" in sys.argv:
        # Python would end the allocator before the tensors that lie in its memory.
        sys.stdout.flush()
        os._exit(0)
