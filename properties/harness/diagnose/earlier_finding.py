"""Where the sanitizer ends a case that was found without it."""

from __future__ import annotations

from properties.harness.case import Case
from properties.harness.case.findings import FINDINGS
from properties.harness.case.values import Raised
from properties.harness.diagnose.rerun import Rerun
from properties.harness.execution.port import Port


def ends_earlier(case: Case, port: Port) -> Case | None:
    """The case as the sanitizer's finding would have had it, None where it finds nothing in the steps."""
    rerun = Rerun(case, port)
    for taken in rerun:
        if isinstance(taken.outcome, Raised) and taken.outcome.exception in FINDINGS:
            return rerun.failed()
    return None
