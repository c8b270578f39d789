"""What a property's examples come to, and what commands exit with: the same words, from the same code, in every command."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from statecheck.execution.counts import Counts

CLEAN = 0
FALSIFIED = 1
"""Something is wrong with the subject."""
INCOMPLETE = 2
"""Too little was tried to say so, or the harness itself went wrong."""
MISCONFIGURED = 3
"""The command cannot be run as given."""


class Status(enum.Enum):
    """What became of a property; design: what a verdict means."""

    PASSED = "passed"
    KNOWN = "known"
    FALSIFIED = "FALSIFIED"
    UNEXPECTED_PASS = "UNEXPECTED PASS"
    ERROR = "ERROR"
    NOT_FINISHED = "not finished"
    NOT_VERIFIED = "not verified"
    NOT_TESTED = "not tested"
    NOT_APPLICABLE = "not applicable"


TELLING = 25
"""Examples after which more would hardly lead to a comparison; with fewer it may be chance that there was none."""


@dataclass(frozen=True)
class Verdict:
    """A status, and why where that is no matter of course."""

    status: Status
    reason: str = ""


def verdict_of(counts: Counts, *, known: bool = False) -> Verdict:
    """The verdict on a property that no new failure was seen of, and that applies.

    Args:
        known: an example showed a declared defect.
    """
    if known:
        return Verdict(Status.KNOWN)
    if counts.compared:
        return Verdict(Status.PASSED)
    if not counts.examples:
        return Verdict(Status.NOT_TESTED, "no example was run")
    if counts.unverified:
        return Verdict(Status.NOT_VERIFIED, "; ".join(counts.unverified.values()))
    if counts.not_offered or counts.no_evidence:
        # The others had nothing to compare, or were inputs that the contract leaves out: other inputs may be inside of it.
        return Verdict(Status.NOT_APPLICABLE, counts.left_out)
    ended = f"nothing was compared in all {counts.examples:,} examples"
    if counts.examples == 1:
        ended = "nothing was compared in the only example"
    return Verdict(Status.NOT_TESTED, f"{ended}: {counts.reasons}")
