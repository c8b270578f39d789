"""The scenarios of a case of a library of sequences: its own, and in front of it those of earlier examples that it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from statecheck.case.case import Case
from statecheck.case.values import Call, Outcome

BEGINS = "Sequences"
"""The call with which each scenario begins."""
ExecutedCall = Sequence[tuple[Call, Outcome]]
"""Calls, with what came of each."""


def scenarios(case: Case) -> list[ExecutedCall]:
    """The calls of each scenario, the first of which makes the library."""
    found: list[list[tuple[Call, Outcome]]] = []
    for call, outcome in zip(case.calls, case.actual, strict=False):
        if call.function == BEGINS:
            found.append([])
        if found:
            found[-1].append((call, outcome))
    return [tuple(one) for one in found]


def last_scenario(case: Case) -> Case:
    """The case without scenarios of earlier examples."""
    numbers = [number for number, call in enumerate(case.calls) if call.function == BEGINS]
    if len(numbers) < 2:
        return case
    first = numbers[-1]
    at = [number for number, step in enumerate(case.steps) if step is case.calls[first]][-1]
    failure = case.failure
    if failure is not None and failure.call is not None:
        about = tuple(number - first for number in failure.about if number >= first)
        failure = replace(failure, call=max(0, failure.call - first), about=about)
    return replace(
        case,
        steps=case.steps[at:],
        expected=case.expected[first:],
        actual=case.actual[first:],
        failure=failure,
        own_calls=case.own_calls[first:],
    )
