"""Runs a saved case again. Only its data is used: neither the property nor its strategy needs to exist any more."""

from __future__ import annotations

from pathlib import Path

from properties.harness.answers import answered
from properties.harness.case import Case
from properties.harness.compare import outcome_difference
from properties.harness.port import InProcess, Port, choose_device
from properties.harness.values import Call
from properties.subjects import load


def replay_file(path: Path, subject: str, device: str) -> tuple[str, str]:
    """The verdict, "FIXED", "FAILED" or "NOT APPLICABLE", and a line that explains it.

    Raises:
        ValueError: no readable case at `path`, or an unknown subject or device.
    """
    try:
        case = Case.load(path)
    except OSError as error:
        raise ValueError(f"case = {str(path)!r}, but should be a readable file [replay]: {error}") from error
    target = load(subject)
    # Names are looked up in the subject, so that a case from elsewhere could otherwise call anything it imports.
    undocumented = sorted({call.function for call in case.calls} - answered())
    if undocumented:
        raise ValueError(f"functions = {undocumented}, but should be documented ones [replay]")
    functions = {call.function for call in case.calls if not call.function.startswith("harness.")}
    missing = sorted(function for function in functions if not target.has(function))
    if missing:
        return "NOT APPLICABLE", f"{subject} has no {', '.join(missing)}"
    found = replay(case, InProcess(target, choose_device(device)))
    if found is None:
        return "FIXED", f"{subject} now answers {case.property_name} by the rules"
    return "FAILED", found


def replay(case: Case, port: Port) -> str | None:
    """The first difference between the outcomes on `port` and the expected ones in the case, None without one."""
    port.begin()
    expected = iter(case.expected)
    for step in case.steps:
        outcome = port.execute(step)
        if isinstance(step, Call):
            assert outcome is not None
            found = outcome_difference(next(expected), outcome, places=port.device != "cpu")
            if found is not None:
                return str(found)
    return None
