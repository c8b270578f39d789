"""A call that ended its process, or did not come back, as the case that shows it."""

from __future__ import annotations

from dataclasses import replace

from statecheck.case.case import Case
from statecheck.case.compare import outcome_difference
from statecheck.case.failure import failure_of
from statecheck.case.faults import Fault


def as_fault(case: Case, fault: Fault) -> Case:
    """The case of an example that was ended in its last call by this fault."""
    number = len(case.calls) - 1
    outcome, expected, call = fault.outcome, case.expected[-1], case.calls[-1]
    found = outcome_difference(expected, outcome, places=False)
    assert found is not None
    failure = failure_of(
        found, expected, outcome, function=call.function, call=number, shown=f"{call.function}(…)"
    )
    return replace(case, actual=(*case.actual[:-1], outcome), failure=failure)
