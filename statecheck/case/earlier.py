"""Cases that earlier versions have written: a sentence says what went wrong, and no `Failure`."""

from __future__ import annotations

from collections.abc import Sequence

from statecheck.case.compare import outcome_difference
from statecheck.case.failure import Failure, failure_of, raised_instead, stated
from statecheck.case.faults import DEVICE_FAULT
from statecheck.case.findings import FINDINGS
from statecheck.case.values import Call, Expected, Outcome, Raised


def failure_in(
    message: str, calls: Sequence[Call], expected: Sequence[Expected], actual: Sequence[Outcome], device: str
) -> Failure:
    """What a case's message says, as far as outcomes and sentence say; its rule is the one that its bucket had."""
    places = device != "cpu"
    functions = dict.fromkeys(call.function for call in calls)
    function = next((name for name in functions if f" [{name}(" in message), "")
    sentence, _, shown = message.partition(f" [{function}(") if function else (message, "", "")
    shown = f"{function}({shown.removesuffix(']')}" if function else ""
    for number, (call, wanted, seen) in enumerate(zip(calls, expected, actual, strict=False)):
        difference = outcome_difference(wanted, seen, places=places)
        fatal = isinstance(seen, Raised) and (seen.exception == DEVICE_FAULT or seen.exception in FINDINGS)
        if difference is not None and (fatal or message.startswith(f"{difference} [")):
            return failure_of(difference, wanted, seen, function=call.function, call=number, shown=shown)
    last = actual[-1] if actual else None
    if isinstance(last, Raised) and message.startswith(f"the call = {last.exception}: {last.message}"):
        return raised_instead(last, function=calls[-1].function, call=len(calls) - 1, shown=shown)
    observed, _, rest = sentence.partition(", but ")
    return stated(observed, rest, function=function, shown=shown)
