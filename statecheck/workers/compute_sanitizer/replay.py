"""Runs saved cases one after another on the GPU, for a tool that watches: `python -m statecheck.workers.compute_sanitizer.replay`.

Lines of their own on stdout are for the reader of the tool's log: CASE and a number before each case, and
DONE, SKIPPED, FAILED or DEAD with the number behind it; KERNEL names one that was compiled. Outcomes are not compared: under
such a tool they prove nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from statecheck.case import Case
from statecheck.case.values import Raised, Refusal
from statecheck.execution.port import InProcess, Port
from statecheck.execution.run import Run, recorded
from statecheck.execution.selection import missing_functions
from statecheck.kernels import compilations, triton_mode
from statecheck.subject import Subject, load

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
    for number, path in numbered:
        _say(f"CASE {number} {path}")
        _take(number, path, subject, port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--subject", default="impl")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--skip", type=int, default=0, help="how many of the cases to leave out, from the first"
    )
    parser.add_argument("cases", type=Path, nargs="+", help="case files, or @file with a path on each line")
    return parser


def _take(number: int, path: Path, subject: Subject, port: Port) -> None:
    """Run a case and say what came of it."""
    try:
        raised = "; ".join(_run(Case.load(path), subject, port))
        _end_if_dead(number, port.device)
        _say(f"DONE {number} {raised}")
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


def _run(case: Case, subject: Subject, port: Port) -> Iterator[str]:
    """Execute the steps; which calls raise, and should not."""
    # Refuses a case that calls anything but documented functions.
    missing = missing_functions(case, subject)
    if missing:
        raise NotApplicable(f"{subject.name} has no {', '.join(missing)}")
    port.begin()
    for taken in Run(port, recorded(case.expected)).take_all(case.steps):
        outcome = taken.outcome
        if isinstance(outcome, Raised) and not isinstance(taken.expected, Refusal):
            yield f"{taken.call.function} raised {outcome.exception}: {outcome.message}"


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


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _say(line: str) -> None:
    print(" ".join(line.splitlines()), flush=True)


if __name__ == "__main__":
    main()
