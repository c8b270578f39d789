"""The first layer whose output differs, by fewer layers: for libraries that do not show their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from oracle.sequences import SequenceLaws
from statecheck.case import Case
from statecheck.case.values import Call, Record
from statecheck.subject.subject import NotOffered
from subjects.sequences.library import Library

LAYERS = "layers"
"""The feature whose values are numbers of layers; layers have the same weights with any number of them."""


class Scenarios(Protocol):
    """Makes a scenario, whose methods are the operations."""

    def __call__(self, *, model: str, seed: int, features: Mapping[str, Any]) -> Any: ...


def first_layer(library: Library, scenarios: Scenarios, case: Case) -> str:
    """With how many layers the calls of a case fail first; "" where the port has no such feature, or the case fails with none."""
    made, *calls = case.calls
    numbers = sorted(library.features(case.model, "new").get(LAYERS, ()))
    if LAYERS not in library.port.given_to_reference or len(numbers) < 2:
        return ""
    right: list[int] = []
    for number in numbers:
        named = {**made.named, "features": {**made.named["features"], LAYERS: number}}
        try:
            if _fails(scenarios, named, calls):
                agrees = f", and agree with {right[-1]}" if right else ""
                return f"The same calls fail with {number} of {numbers[-1]} layers{agrees}: the first layer that differs is number {number - 1}, counted from 0."
            right.append(number)
        except NotOffered:
            continue
    return ""


def _fails(scenarios: Scenarios, made: Mapping[str, Any], calls: Sequence[Call]) -> bool:
    """Whether a call breaks a law, or the library fails."""
    try:
        scenario = scenarios(**made)
        return any(_breaks(scenario, call) for call in calls)
    except NotOffered:
        raise
    except Exception:
        return True


def _breaks(scenario: Any, call: Call) -> bool:
    named = dict(call.named)
    named.pop("self", None)
    step: Record = getattr(scenario, call.function.rpartition(".")[2])(**named)
    broken: Any = step["broken"]
    return dict(broken.fields) != vars(SequenceLaws())
