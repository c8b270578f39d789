"""Runs a saved case again. Only its data is used: neither the property nor its strategy needs to exist any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from properties.harness import triton_mode
from properties.harness.answers import answered
from properties.harness.case import Case
from properties.harness.codec import encode
from properties.harness.compare import outcome_difference
from properties.harness.device.faults import DEVICE_FAULT
from properties.harness.device.port import InWorker
from properties.harness.port import Port, choose_device, ordinary_port
from properties.harness.values import Call, Raised
from properties.subjects import Subject, load


def replay_file(path: Path, subject: str, device: str) -> tuple[str, str]:
    """The verdict, "FIXED", "FAILED" or "NOT APPLICABLE", and a line that explains it.

    Raises:
        ValueError: no readable case at `path`, or an unknown subject or device.
    """
    try:
        case = Case.load(path)
    except OSError as error:
        raise ValueError(f"case = {str(path)!r}, but should be a readable file [replay]: {error}") from error
    device = choose_device(device)
    triton_mode.prepare(device)
    return replay_case(case, load(subject), device)


def replay_case(case: Case, subject: Subject, device: str, port: Port | None = None) -> tuple[str, str]:
    """As `replay_file`; `port` may lend one that is open already, for cases that can do it no harm.

    Raises:
        ValueError: the case calls what no document has.
    """
    reason = _not_applicable(case, subject, device)
    if reason is not None:
        return "NOT APPLICABLE", reason
    found = _replayed(case, subject, device, port)
    if found is None:
        return "FIXED", f"{subject.name} now answers {case.property_name} by the rules"
    return "FAILED", found


def _not_applicable(case: Case, subject: Subject, device: str) -> str | None:
    missing = missing_functions(case, subject)
    if missing:
        return f"{subject.name} has no {', '.join(missing)}"
    if device == "cpu" and any(call.function in _NEED_CUDA for call in case.calls):
        return "there are no graphs without CUDA"
    return None


_NEED_CUDA = frozenset({"harness.capture", "harness.replay"})


def _replayed(case: Case, subject: Subject, device: str, port: Port | None) -> str | None:
    """Where the case's fault, or any on a GPU, would take this process along, another one runs it."""
    faulted = any(isinstance(one, Raised) and one.exception == DEVICE_FAULT for one in case.actual)
    if isinstance(port, InWorker) or (port is not None and not faulted):
        return replay(case, port)
    if device == "cpu" and not faulted:
        return replay(case, ordinary_port(subject, device))
    with InWorker(subject.name, device, spare=False) as own:
        return replay(case, own)


def missing_functions(case: Case, subject: Subject) -> list[str]:
    """What the case calls, launches or hands over that the subject does not have.

    Raises:
        ValueError: among it is something that no document has. Names are looked up in the subject, so that a case from
            elsewhere could otherwise call anything that it imports.
    """
    handed_over = set(_handed_over(encode(case.steps)))
    undocumented = sorted(({call.function for call in case.calls} | handed_over) - answered())
    if undocumented:
        raise ValueError(f"functions = {undocumented}, but should be documented ones [replay]")
    functions = {call.function for call in case.calls if not call.function.startswith("harness.")}
    kernels = {call.named["kernel"] for call in case.calls if call.function == "harness.launch"}
    return sorted(name for name in functions | kernels | handed_over if not subject.has(name))


def _handed_over(data: Any) -> Iterator[str]:
    """Names of the functions that are arguments, in the JSON of steps."""
    if isinstance(data, list):
        for item in data:
            yield from _handed_over(item)
    elif isinstance(data, dict):
        for tag, content in data.items():
            if tag == "Function":
                yield content["name"]
            yield from _handed_over(content)


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
