"""Which reports of Triton's sanitizer are races, which are false alarms, and which are undecided.

It takes the bytes of a word of 4 for one place, so that neighbours which two programs store are a race for it. Our executor
makes the same launch on a CPU, and looks at bytes. A report is a false alarm only where ours found no race in the launch, and
a shared word at the very line; and where a kernel that is known to be right, and shares words, was reported on this machine
too. All others are undecided, and are reported as such.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from statecheck.kernels.gpu_launch import CannotLaunch, launch_again
from statecheck.kernels.sanitizer.cells import CellSanitizer, Race
from statecheck.subject import load
from statecheck.workers.compute_sanitizer.parse import FALSE_ALARM, FINDING, UNDECIDED, ToolFinding
from statecheck.workers.global_sanitizer.parse import RACES
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


def judge(finding: ToolFinding, opinion: Opinion, *, shares_words: bool) -> ToolFinding:
    """The report with a verdict, and with what ours has to say.

    Args:
        opinion: on the launch that the report is of.
        shares_words: whether the control that shares words without a race was reported.
    """
    if finding.kind not in RACES.values():
        return finding
    if opinion.races:
        return replace(finding, verdict=FINDING, opinion=f"ours says: race; {opinion.races[0].message}")
    shared = _at(finding, opinion.shared)
    if opinion.reason:
        said = f"ours could not make the launch: {opinion.reason}"
    elif shared is None:
        said = "ours says: no race, and no word of 4 bytes that two programs share at this line"
    elif not shares_words:
        said = (
            f"ours says: no race; {shared.message}; but the right control that shares words was not reported"
        )
    else:
        why = f"ours says: no race; {shared.message}; the right control that shares words was reported, too"
        return replace(finding, verdict=FALSE_ALARM, opinion=why)
    return replace(finding, verdict=UNDECIDED, opinion=f"Triton's says: race; {said}")


def _at(finding: ToolFinding, races: Sequence[Race]) -> Race | None:
    """The race one access of which is at the finding's line."""
    place = f"{Path(finding.file).name}:{finding.line}"
    return next((one for one in races if place in one.places), None)
