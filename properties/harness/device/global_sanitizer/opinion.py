"""A second opinion on what Triton's sanitizer has reported: the case's launches executed on a CPU, byte by byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from properties.harness.case import Case
from properties.harness.case.values import Raised, Refusal
from properties.harness.device.pool import run_in_worker
from properties.harness.device.replay import NEED_CUDA, missing_functions
from properties.harness.execution.objects.sanitizer import Watched
from properties.harness.execution.port import InProcess
from properties.harness.execution.run import Run, recorded
from properties.harness.kernels.sanitizer.cells import CellSanitizer, Race
from properties.harness.subject import load

WORD = 4
"""Bytes that Triton's sanitizer takes for one place."""
_SECONDS = 120.0


@dataclass(frozen=True)
class Opinion:
    """What our sanitizer saw of a case's launches on a CPU.

    `races` are of programs that touch the same byte, `shared` of those that touch different bytes of one word of 4. `programs` has
    for each kernel the numbers of programs that it was launched with. `reason` says why the case was not executed to its
    end, "" if it was.
    """

    races: Sequence[Race] = ()
    shared: Sequence[Race] = ()
    programs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    reason: str = ""


def ask(subject: str, path: str) -> Opinion:
    """Ask for it in a process of its own, which the case may end."""
    try:
        said: Any = run_in_worker(f"{__name__}:execute", subject, path, device="cpu", time_limit=_SECONDS)
    except Exception as error:
        return Opinion(reason=f"{type(error).__name__}: {error}".splitlines()[0])
    if not isinstance(said, dict):
        return Opinion(reason=f"{said.kind}: {said.message}".splitlines()[0])
    races, shared = ([Race(**one) for one in said[name]] for name in ("races", "shared"))
    return Opinion(races, shared, said["programs"], said["reason"])


def execute(subject_name: str, path: str) -> dict[str, Any]:
    """The fields of an `Opinion`, as plain data; called in a worker."""
    subject, case = load(subject_name), Case.load(Path(path))
    if missing_functions(case, subject) or any(call.function in NEED_CUDA for call in case.calls):
        return asdict(Opinion(reason="what it calls does not exist on a CPU"))
    watched = Watched(make=partial(CellSanitizer, WORD))
    port = InProcess(subject, "cpu", guards=False, sanitized=watched)
    port.begin()
    seen = watched.sanitizer
    assert isinstance(seen, CellSanitizer)
    reason = ""
    for taken in Run(port, recorded(case.expected)).take_all(case.steps):
        outcome = taken.outcome
        if isinstance(outcome, Raised) and not isinstance(taken.expected, Refusal):
            reason = reason or f"{taken.call.function} raised {outcome.exception}: {outcome.message}"
    programs = {kernel: sorted(counts) for kernel, counts in seen.programs.items()}
    return asdict(Opinion(seen.races, seen.shared, programs, reason))
