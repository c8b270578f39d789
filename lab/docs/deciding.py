"""What decides a property's verdict, read from the code of its body."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from statecheck.execution.property import MachineProperty
from statecheck.execution.registry import Property

_ASK_THE_RULES = {"agrees", "agrees_without_waiting", "refuses"}
_STATE_CONDITIONS = {"equals", "holds", "finds"}
_COMPARE_RUNS = {"metamorphic", "algebra", "capture = replay"}
"""Kinds of properties that hold two runs of the subject against each other."""


def decided_by(tested: Property) -> str:
    """The checks of a property's body, in these words, joined by "and".

    rule: outcomes are compared with what the oracle expects. condition: the body states what must hold of the outcomes.
    law: it states that of two runs of the subject, which need no expected values.
    """
    names = _names(tested.machine if isinstance(tested, MachineProperty) else tested.body)
    checks = ["rule"] if names & _ASK_THE_RULES else []
    if names & _STATE_CONDITIONS:
        checks.append("law" if tested.kind in _COMPARE_RUNS else "condition")
    return " and ".join(checks)


def _names(body: Any) -> set[str]:
    """Every name that a body or a machine uses, and those of the helpers beside the properties."""
    names: set[str] = set()
    waiting, seen = [body], set[int]()
    while waiting:
        used = waiting.pop()
        if id(used) in seen:
            continue
        seen.add(id(used))
        if isinstance(used, type):
            waiting += [member for owner in used.__mro__ if _states(owner) for member in vars(owner).values()]
        elif isinstance(used, FunctionType):
            # Hypothesis wraps the rules of a machine.
            used = inspect.unwrap(used)
            names.update(_names_in(used.__code__))
            closed = inspect.getclosurevars(used)
            helpers = (*closed.nonlocals.values(), *closed.globals.values())
            waiting += filter(
                _states, (helper.func if isinstance(helper, partial) else helper for helper in helpers)
            )
    return names


def _states(helper: Any) -> bool:
    module = str(getattr(helper, "__module__", ""))
    return module.startswith("properties.releases.") or module.rpartition(".")[2].startswith("test_")


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
