"""Where the sanitizer ends a case that was found without it."""

from __future__ import annotations

from properties.harness.case import Case
from properties.harness.case.findings import FINDINGS
from properties.harness.case.values import Raised
from properties.harness.execution.port import Port
from properties.harness.execution.replay import wrong_with_last
from properties.harness.execution.run import Run, recorded


def ends_earlier(case: Case, port: Port) -> Case | None:
    """The case as the sanitizer's finding would have had it, None where it finds nothing in the steps."""
    port.begin()
    run = Run(port, recorded(case.expected))
    for taken in run.take_all(case.steps):
        if isinstance(taken.outcome, Raised) and taken.outcome.exception in FINDINGS:
            return wrong_with_last(case, run)
    return None
