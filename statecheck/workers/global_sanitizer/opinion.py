"""A second opinion on what Triton's sanitizer has reported: the very launch, executed on a CPU, and looked at by the byte."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from statecheck.kernels.gpu_launch import CannotLaunch, launch_again
from statecheck.kernels.sanitizer.cells import CellSanitizer, Race
from statecheck.subject import load
from statecheck.workers.run_in_worker import run_in_worker

WORD = 4
"""Bytes that Triton's sanitizer takes for one place."""
_SECONDS = 120.0


@dataclass(frozen=True)
class Opinion:
    """What our executor saw of a launch.

    `races` are of programs that touch the same byte, `shared` of those that touch different bytes of one word of 4. `reason` says
    why the launch was not made, "" if it was.
    """

    races: Sequence[Race] = ()
    shared: Sequence[Race] = ()
    reason: str = ""


def ask(subject: str, launch: str) -> Opinion:
    """Ask for it in a process of its own, which the launch may end.

    Args:
        launch: the file in which it was written down.
    """
    try:
        said: Any = run_in_worker(f"{__name__}:execute", subject, launch, device="cpu", time_limit=_SECONDS)
    except Exception as error:
        return Opinion(reason=f"{type(error).__name__}: {error}".splitlines()[0])
    if not isinstance(said, dict):
        return Opinion(reason=f"{said.kind}: {said.message}".splitlines()[0])
    races, shared = ([Race(**one) for one in said[name]] for name in ("races", "shared"))
    return Opinion(races, shared, said["reason"])


def execute(subject: str, launch: str) -> dict[str, Any]:
    """The fields of an `Opinion`, as plain data; called in a worker."""
    # An adapter may have to make the kernel's module importable.
    load(subject)
    recorded = pickle.loads(Path(launch).read_bytes())  # noqa: S301 - this run has written it
    if isinstance(recorded, str):
        return asdict(Opinion(reason=f"it was not written down: {recorded}"))
    watch = CellSanitizer(WORD)
    try:
        launch_again(recorded, watch)
    except CannotLaunch as why:
        return asdict(Opinion(reason=str(why)))
    return asdict(Opinion(watch.races, watch.shared))
