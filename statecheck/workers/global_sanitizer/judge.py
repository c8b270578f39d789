"""Which reports of Triton's sanitizer are races, which are false alarms, and which are undecided.

It takes the bytes of a word of 4 for one place, so that neighbours which two programs store are a race for it. Our executor
makes the same launch on a CPU, and looks at bytes. A report is a false alarm only where ours found no race in the launch, and
a shared word at the very line; and where a kernel that is known to be right, and shares words, was reported on this machine
too. All others are undecided, and are reported as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from statecheck.kernels.sanitizer.cells import Race
from statecheck.workers.compute_sanitizer.parse import FALSE_ALARM, FINDING, UNDECIDED, ToolFinding
from statecheck.workers.global_sanitizer.opinion import Opinion
from statecheck.workers.global_sanitizer.parse import RACES


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
