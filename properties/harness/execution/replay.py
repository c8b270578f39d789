"""Runs a saved case again. Only its data is used: neither the property nor its strategy needs to exist any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from properties.harness.case import Case
from properties.harness.case.codec import encode
from properties.harness.case.compare import outcome_difference
from properties.harness.case.failure import failure_of
from properties.harness.case.faults import DEVICE_FAULT
from properties.harness.case.values import Call, Raised, Step
from properties.harness.device.port import InWorker
from properties.harness.execution.domain import left_out, not_offered
from properties.harness.execution.example import spell
from properties.harness.execution.patience import Patient, TooLong
from properties.harness.execution.port import InProcess, Port, choose_device, ordinary_port
from properties.harness.execution.run import Expectation, Run, recorded, rules_of
from properties.harness.expectations import answered
from properties.harness.kernels import triton_mode
from properties.subjects import Subject, load

FIXED, FAILED, KNOWN, NOT_APPLICABLE = "FIXED", "FAILED", "KNOWN", "NOT APPLICABLE"
LEFT_OUT = "LEFT OUT"


@dataclass(frozen=True)
class Replay:
    """What came of a case, a line that explains it, and the case as it is now.

    `verdict` is "FIXED", "FAILED", "KNOWN", "NOT APPLICABLE" or, where it took too long, "LEFT OUT".
    """

    verdict: str
    message: str
    case: Case


class _Left(Exception):
    """The case comes to something that is not tried on the subject."""


def replay_file(path: Path, subject: str, device: str, *, as_new: bool = False) -> Replay:
    """Replay the case in a file.

    Args:
        as_new: what the subject declares as known is taken for new.

    Raises:
        ValueError: no readable case at `path`, or an unknown subject or device.
    """
    try:
        case = Case.load(path)
    except OSError as error:
        raise ValueError(f"case = {str(path)!r}, but should be a readable file [replay]: {error}") from error
    device = choose_device(device)
    triton_mode.prepare(device)
    return replay_case(case, load(subject), device, as_new=as_new)


def replay_case(
    case: Case, subject: Subject, device: str, port: Port | None = None, *, as_new: bool = False
) -> Replay:
    """As `replay_file`; `port` may lend one that is open already, for cases that can do it no harm.

    Raises:
        ValueError: the case calls what no document has.
    """
    reason = _not_applicable(case, subject, device)
    if reason is not None:
        return Replay(NOT_APPLICABLE, reason, case)
    try:
        found = _replayed(case, subject, device, port)
    except _Left as left:
        return Replay(NOT_APPLICABLE, str(left), case)
    except TooLong as late:
        return Replay(LEFT_OUT, f"left out: {late}", case)
    if found is None and case.sanitized and not _watches(port, device):
        return Replay(NOT_APPLICABLE, "the sanitizer found it, and watches no kernels here", case)
    if found is None:
        return Replay(FIXED, f"{subject.name} now answers {case.property_name} by the rules", case)
    known = None if as_new else subject.known(_with_id(found, subject))
    if known is not None:
        return Replay(KNOWN, f"{known.id or known.link}: {_sentence(found)}", found)
    return Replay(FAILED, _sentence(found), found)


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
    if device == "cpu" and any(call.function in _NEED_CUDA for call in case.calls):
        return "there are no graphs without CUDA"
    if device != "cpu" and any(call.schedule for call in case.calls):
        return f"where kernels are compiled, on {device}, programs run in an order of the device's own"
    return None


def _watches(port: Port | None, device: str) -> bool:
    """Whether the sanitizer sees what launches do, as it did where it found the case."""
    return device == "cpu" and not (isinstance(port, InProcess) and port.watched is None)


_NEED_CUDA = frozenset({"harness.capture", "harness.replay"})


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


def replay(
    case: Case, port: Port, subject: Subject | None = None, expect: Expectation | None = None
) -> Case | None:
    """The case as it fails on `port`, None where it does not.

    Args:
        subject: whose contract may leave out what the case does. Without one, everything is tried.
        expect: the rules to ask; without them, what the case expects.
    """
    run = Run(port, expect or recorded(case.expected))
    port.begin()
    for step in case.steps:
        _take(run, step, subject)
        found = wrong_with_last(case, run) if isinstance(step, Call) else None
        if found is not None:
            return found
    return _still_stated(case, run)


def _take(run: Run, step: Step, subject: Subject | None) -> None:
    asked = run.asked(step)
    if subject is not None and asked is not None:
        reason = left_out(subject, asked.call, asked.expected)
        if reason is not None:
            raise _Left(reason)
    taken = run.take(step, asked)
    reason = not_offered(taken.outcome) if taken is not None else None
    if reason is not None:
        raise _Left(reason)


def wrong_with_last(case: Case, run: Run) -> Case | None:
    """The case as it fails at the call that was made last, None where that came out as expected."""
    expected, actual, call = run.expected[-1], run.actual[-1], run.calls[-1]
    found = outcome_difference(expected, actual, places=run.port.device != "cpu")
    if found is None:
        return None
    number = len(run.actual) - 1
    failure = failure_of(found, expected, actual, function=call.function, call=number, shown=spell(call))
    return replace(as_run(case, run), failure=failure)


def _still_stated(case: Case, run: Run) -> Case | None:
    """Where a condition on several calls was broken, it is as long as these outcomes are the same."""
    if case.failure is None or differs(case) or tuple(run.actual) != case.actual:
        return None
    return as_run(case, run)


def differs(case: Case) -> bool:
    """Whether an outcome alone shows what is wrong; a condition that a property states is about several."""
    places = case.device != "cpu"
    pairs = zip(case.expected, case.actual, strict=True)
    return any(outcome_difference(expected, actual, places=places) is not None for expected, actual in pairs)


def as_run(case: Case, run: Run) -> Case:
    """The case as far as it was run, with what came of it."""
    return replace(
        case,
        steps=tuple(run.steps),
        expected=tuple(run.expected),
        actual=tuple(run.actual),
        device=run.port.device,
    )
