"""Runs a counterexample again in fresh workers, since a device may do another thing every time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from properties.harness.case import Case
from properties.harness.execution.replay import replay

if TYPE_CHECKING:
    from properties.harness.execution.port import Port


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
            found = replay(case, port)
            messages.append(found.failure.sentence if found is not None and found.failure is not None else "")
    return Confirmation(sum(map(bool, messages)), times, tuple(messages))
