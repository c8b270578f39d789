"""Which properties a command is about: those that an expression names, that a subject has functions for, on its device."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from statecheck.case import Case
from statecheck.case.case import values_inside
from statecheck.case.values import Function
from statecheck.reference import answered
from statecheck.subject.known import covers

if TYPE_CHECKING:
    from statecheck.execution.registry import Property
    from statecheck.subject import Subject

NEED_CUDA = frozenset({"harness.capture", "harness.replay"})
_MOST_PER_CORE = 8
_MOST_NEAR, _LIKE = 5, 0.5
"""Names that an unknown one is answered with, and how like it they have to be."""


def applicable(
    names: list[str], tested: Mapping[str, Property], subject: Subject, device: str
) -> tuple[list[str], dict[str, str]]:
    """The properties that say something about the subject on the device, and by name why the others do not."""
    from statecheck.execution.example import ExecutionContext
    from statecheck.execution.executors import ordinary_port

    context = ExecutionContext(subject, ordinary_port(subject, device, sanitized=False))
    reasons = {name: tested[name].not_applicable(context) for name in names}
    skipped = {name: reason for name, reason in reasons.items() if reason is not None}
    return [name for name in names if name not in skipped], skipped


def follows_requests(tested: Property) -> bool:
    """Whether it is a state machine that follows requests through the simulated engine."""
    return getattr(getattr(tested, "machine", None), "follows_requests", False)


def cores() -> int:
    """The cores that this process may use, where the system can say so."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def require_processes(name: str, number: int, where: str) -> int:
    """A number of processes that a person asks for.

    Raises:
        ValueError: none, or so many that they would keep each other and the machine from working.
    """
    if number < 1:
        raise ValueError(f"{name} = {number}, but should be >= 1 [{where}]")
    most = _MOST_PER_CORE * cores()
    if number > most:
        rule = f"at most {most}, {_MOST_PER_CORE} for each of {cores()} processors"
        raise ValueError(f"{name} = {number}, but should be {rule} [{where}]")
    return number


def select(ids: list[str], expression: str) -> list[str]:
    """The ids of properties that match a pytest `-k` expression.

    A word of it that is a topic, such as "sequences", chooses the whole topic. Other words are parts of an id.

    Raises:
        ValueError: no such expression, or it matches nothing.
    """
    if not expression:
        return ids
    from statecheck.execution.private.pytest import chosen_by

    topics = {id_.partition("/")[0] for id_ in ids}
    chosen = [id_ for id_ in ids if chosen_by(expression, id_, topics)]
    if not chosen:
        raise ValueError(
            f"only = {expression!r}, but should match a property; {_nearest(expression, ids)} [fuzz]"
        )
    return chosen


def require_declared_properties(subject: Subject) -> None:
    """Refuse a declared defect that names no property: by a slip it would match nothing, and say so to no one.

    Raises:
        ValueError: as `require_property`.
    """
    from statecheck.execution.registry import load_properties

    for one in subject.known_deviations:
        for name in one.names:
            require_property(name, load_properties(), f"known defect {one.name!r}")


def require_property(pattern: str, tested: Mapping[str, Property], where: str) -> None:
    """Refuse a pattern of ids of properties that matches none.

    Args:
        where: what names it, for the message.

    Raises:
        ValueError: it matches none; with the nearest ids.
    """
    if not any(covers((pattern,), id_) for id_ in tested):
        near = _nearest(pattern, tested)
        raise ValueError(f"properties = {pattern!r}, but should match a property; {near} [{where}]")


def _nearest(expression: str, ids: Collection[str]) -> str:
    """The ids and topics that are most like an expression, or all topics where none is."""
    topics = {id_.partition("/")[0] for id_ in ids}
    near = get_close_matches(expression.lower(), sorted({*ids, *topics}), _MOST_NEAR, _LIKE)
    if near:
        return f"like it are {', '.join(near)}"
    return f"topics are {', '.join(sorted(topics))}"


def missing_functions(case: Case, subject: Subject) -> list[str]:
    """What the case calls or launches that the subject does not have.

    Raises:
        ValueError: among what it calls, launches or hands over is something that no document has. Names are looked up in the
            subject, so that a case from elsewhere could otherwise call anything that it imports.
    """
    called = {call.function for call in case.calls}
    parts = values_inside(case.steps, "steps")
    handed_over = {value.name for _, value in parts if isinstance(value, Function)}
    undocumented = sorted((called | handed_over) - answered())
    if undocumented:
        raise ValueError(f"functions = {undocumented}, but should be documented ones [replay]")
    functions = {name for name in called if not name.startswith("harness.")}
    kernels = {call.named["kernel"] for call in case.calls if call.function == "harness.launch"}
    return sorted(name for name in functions | kernels if not subject.has(name))
