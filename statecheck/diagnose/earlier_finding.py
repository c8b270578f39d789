"""Where the sanitizer ends a case that was found without it."""

from __future__ import annotations

from statecheck.case import Case
from statecheck.case.findings import FINDINGS
from statecheck.case.values import Raised
from statecheck.diagnose.rerun import Rerun
from statecheck.execution.port import Port


def ends_earlier(case: Case, port: Port) -> Case | None:
    """The case as the sanitizer's finding would have had it, None where it finds nothing in the steps."""
    rerun = Rerun(case, port)
    for taken in rerun:
        if isinstance(taken.outcome, Raised) and taken.outcome.exception in FINDINGS:
            return rerun.failed()
    return None
