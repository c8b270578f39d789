"""Which reports of Triton's sanitizer are races, which are false alarms, and which nobody can decide.

It takes the bytes of a word of 4 for one place, so that neighbours which two programs store are a race for it. Our executor
looks at bytes, but on a CPU, where a subject may launch fewer programs. A report is a false alarm only where ours has made the
same launch, found no race in the kernel, and found a shared word at the very line; and where a kernel that is known to be
right, and shares words, was reported on this machine too. Whatever is left is undecided, and is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from properties.harness.device.compute_sanitizer.parse import FALSE_ALARM, FINDING, UNDECIDED, ToolFinding
from properties.harness.device.global_sanitizer.opinion import Opinion
from properties.harness.device.global_sanitizer.parse import RACES
from properties.harness.kernels.sanitizer.cells import Race


def judge(finding: ToolFinding, opinion: Opinion, *, shares_words: bool) -> ToolFinding:
    """The report with a verdict, and with what ours has to say.

    Args:
        opinion: on the case that the report is of.
        shares_words: whether the control that shares words without a race was reported.
    """
    if finding.kind not in RACES.values():
        return finding
    race = next((one for one in opinion.races if one.kernel == finding.kernel), None)
    if race is not None:
        return replace(
            finding, verdict=FINDING, opinion=f"ours reports a race of this kernel, too: {race.message}"
        )
    missing = _missing(finding, opinion, shares_words)
    if missing:
        return replace(finding, verdict=UNDECIDED, opinion=f"Triton's says: race; {'; '.join(missing)}")
    shared = _at(finding, opinion.shared)
    assert shared is not None
    why = f"ours says: no race; {shared.message}; the right control that shares words was reported, too"
    return replace(finding, verdict=FALSE_ALARM, opinion=why)


def _missing(finding: ToolFinding, opinion: Opinion, shares_words: bool) -> list[str]:
    """What ours says, and what else a false alarm would need; nothing where nothing is missing."""
    if opinion.reason:
        return [f"ours could not execute all of the case: {opinion.reason}"]
    if finding.kernel not in opinion.programs:
        return ["ours did not launch this kernel"]
    missing, here = [], opinion.programs[finding.kernel]
    if list(here) != [finding.programs]:
        counts = ", ".join(f"{count:,}" for count in here)
        missing.append(f"launched with {counts} programs, and on the GPU with {finding.programs:,}")
    if _at(finding, opinion.shared) is None:
        missing.append("no word of 4 bytes that two programs share at this line")
    elif not shares_words:
        missing.append(
            "two programs share a word of 4 bytes at this line, but the right control that does was not reported"
        )
    return ["ours says: no race", *missing] if missing else []


def _at(finding: ToolFinding, races: Sequence[Race]) -> Race | None:
    """The race, in the finding's kernel, one access of which is at its line."""
    place = f"{Path(finding.file).name}:{finding.line}"
    return next((one for one in races if one.kernel == finding.kernel and place in one.places), None)
