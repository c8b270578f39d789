"""Runs a counterexample again in fresh workers, since a device may do another thing every time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from properties.harness.case import Case
from properties.harness.compare import outcome_difference
from properties.harness.values import Call, Outcome

if TYPE_CHECKING:
    from properties.harness.port import Port


@dataclass(frozen=True)
class Confirmation:
    """How often a counterexample repeated; `messages` has what was seen in each run, "" where all was right."""

    repeated: int
    times: int
    messages: tuple[str, ...]

    @property
    def note(self) -> str:
        """The sentence for the report."""
        if self.repeated == self.times:
            return f"Repeated in {self.repeated} of {self.times} fresh workers."
        return (
            f"This failure **did not repeat in {self.times - self.repeated} of {self.times}** fresh workers."
        )


def confirm(
    case: Case, port_factory: Callable[[], AbstractContextManager[Port]], times: int = 3
) -> Confirmation:
    """Run the case's steps `times` times, each on a port of its own."""
    messages = []
    for _ in range(times):
        with port_factory() as port:
            messages.append(_seen(case, _outcomes(case, port), port.device))
    return Confirmation(sum(map(bool, messages)), times, tuple(messages))


def _outcomes(case: Case, port: Port) -> tuple[Outcome, ...]:
    port.begin()
    outcomes = []
    for step in case.steps:
        outcome = port.execute(step)
        if isinstance(step, Call):
            assert outcome is not None
            outcomes.append(outcome)
    return tuple(outcomes)


def _seen(case: Case, outcomes: tuple[Outcome, ...], device: str) -> str:
    """What is wrong with the outcomes; "" if nothing is."""
    found = _difference(case, outcomes, device)
    if found:
        return found
    # A condition on several calls can be broken although none differs from what is known of it.
    stated = not _difference(case, case.actual, device)
    return case.message if stated and outcomes == case.actual else ""


def _difference(case: Case, outcomes: tuple[Outcome, ...], device: str) -> str:
    pairs = zip(case.expected, outcomes, strict=True)
    found = (outcome_difference(expected, actual, places=device != "cpu") for expected, actual in pairs)
    return next((str(one) for one in found if one is not None), "")
