"""Runs a saved case again, and says what came of it; in a worker where the case could end this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from properties.harness.case import Case
from properties.harness.case.codec import encode
from properties.harness.case.faults import DEVICE_FAULT
from properties.harness.case.values import Raised
from properties.harness.device.port import InWorker
from properties.harness.execution.breadth import require_narrow
from properties.harness.execution.patience import Patient, TooLong
from properties.harness.execution.port import InProcess, Port, choose_device, ordinary_port
from properties.harness.execution.replay import NotTried, replay
from properties.harness.execution.run import rules_of
from properties.harness.expectations import answered
from properties.harness.kernels import coverage, triton_mode
from properties.harness.subject import Subject, load

FIXED, FAILED, KNOWN, NOT_APPLICABLE = "FIXED", "FAILED", "KNOWN", "NOT APPLICABLE"
LEFT_OUT = "LEFT OUT"


@dataclass(frozen=True)
class ReplayVerdict:
    """What came of a case, a line that explains it, and the case as it is now.

    `verdict` is "FIXED", "FAILED", "KNOWN", "NOT APPLICABLE" or, where it took too long, "LEFT OUT".
    """

    verdict: str
    message: str
    case: Case


def replay_file(path: Path, subject: str, device: str, *, as_new: bool = False) -> ReplayVerdict:
    """Replay the case in a file.

    Args:
        as_new: what the subject declares as known is taken for new.

    Raises:
        ValueError: no readable case at `path`, an unknown subject or device, or declared defects that match most of what can fail.
    """
    try:
        case = Case.load(path)
    except OSError as error:
        raise ValueError(f"case = {str(path)!r}, but should be a readable file [replay]: {error}") from error
    device = choose_device(device)
    triton_mode.prepare(device)
    chosen = load(subject)
    if not as_new:
        require_narrow(chosen)
    return replay_case(case, chosen, device, as_new=as_new)


def replay_case(
    case: Case, subject: Subject, device: str, port: Port | None = None, *, as_new: bool = False
) -> ReplayVerdict:
    """As `replay_file`; `port` may lend one that is open already, for cases that can do it no harm.

    Raises:
        ValueError: the case calls what no document has.
    """
    reason = _not_applicable(case, subject, device)
    if reason is not None:
        return ReplayVerdict(NOT_APPLICABLE, reason, case)
    interpreted_before = coverage.interpreted()
    try:
        found = _replayed(case, subject, device, port)
    except NotTried as left:
        return ReplayVerdict(NOT_APPLICABLE, str(left), case)
    except TooLong as late:
        return ReplayVerdict(LEFT_OUT, f"left out: {late}", case)
    if found is None and case.sanitized and not _watches(port, device):
        return ReplayVerdict(NOT_APPLICABLE, "the sanitizer found it, and watches no kernels here", case)
    interpreted = coverage.unwatched(coverage.interpreted() - interpreted_before)
    if found is None and interpreted and (case.sanitized or any(call.schedule for call in case.calls)):
        return ReplayVerdict(NOT_APPLICABLE, interpreted, case)
    if found is None:
        return ReplayVerdict(FIXED, f"{subject.name} now answers {case.property_name} by the rules", case)
    known = None if as_new else subject.known(_with_id(found, subject))
    if known is not None:
        return ReplayVerdict(KNOWN, f"{known.id or known.link}: {_sentence(found)}", found)
    errors = () if as_new else subject.defect_index.errors.values()
    return ReplayVerdict(FAILED, "; ".join((_sentence(found), *errors)), found)


def _with_id(case: Case, subject: Subject) -> Case:
    """A case from before there were ids, with the id that its property has now, where a declaration names one."""
    if case.property_id or not any("/" in name for one in subject.known_deviations for name in one.names):
        return case
    from properties.harness.execution.registry import load_properties

    tested = load_properties().get(case.property_name)
    return case if tested is None else replace(case, property_id=tested.id)


def _sentence(case: Case) -> str:
    return case.failure.sentence if case.failure is not None else case.message


def _not_applicable(case: Case, subject: Subject, device: str) -> str | None:
    missing = missing_functions(case, subject)
    if missing:
        return f"{subject.name} has no {', '.join(missing)}"
    if device == "cpu" and any(call.function in NEED_CUDA for call in case.calls):
        return "there are no graphs without CUDA"
    if device != "cpu" and any(call.schedule for call in case.calls):
        return f"where kernels are compiled, on {device}, programs run in an order of the device's own"
    return None


def _watches(port: Port | None, device: str) -> bool:
    """Whether the sanitizer sees what launches do, as it did where it found the case."""
    return device == "cpu" and not (isinstance(port, InProcess) and port.watched is None)


NEED_CUDA = frozenset({"harness.capture", "harness.replay"})


def _replayed(case: Case, subject: Subject, device: str, port: Port | None) -> Case | None:
    """Where the case's fault, or any on a GPU, would take this process along, another one runs it."""
    rules = Patient(rules_of(subject.profile))
    faulted = any(isinstance(one, Raised) and one.exception == DEVICE_FAULT for one in case.actual)
    if isinstance(port, InWorker) or (port is not None and not faulted):
        return replay(case, port, subject, rules)
    if device == "cpu" and not faulted:
        return replay(case, ordinary_port(subject, device), subject, rules)
    with InWorker(subject.name, device, spare=False) as own:
        return replay(case, own, subject, rules)


def missing_functions(case: Case, subject: Subject) -> list[str]:
    """What the case calls or launches that the subject does not have.

    Raises:
        ValueError: among what it calls, launches or hands over is something that no document has. Names are looked up in the
            subject, so that a case from elsewhere could otherwise call anything that it imports.
    """
    called = {call.function for call in case.calls}
    handed_over = set(_handed_over(encode(case.steps)))
    undocumented = sorted((called | handed_over) - answered())
    if undocumented:
        raise ValueError(f"functions = {undocumented}, but should be documented ones [replay]")
    functions = {name for name in called if not name.startswith("harness.")}
    kernels = {call.named["kernel"] for call in case.calls if call.function == "harness.launch"}
    return sorted(name for name in functions | kernels if not subject.has(name))


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
