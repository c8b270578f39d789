"""Runs a counterexample again in fresh workers: a device may do another thing every time, and a subject may remember things."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from statecheck.case import Case
from statecheck.diagnose.rerun import NotTried, replay
from statecheck.execution.executors import Executor


@dataclass(frozen=True)
class Confirmation:
    """How often a counterexample repeated; `messages` has what was seen in each run, "" where all was right."""

    repeated: int
    times: int
    messages: tuple[str, ...]

    @property
    def note(self) -> str:
        """The sentence for the report, "" where it was not run."""
        if self.repeated == self.times:
            return f"Repeated in {self.repeated} of {self.times} fresh workers." if self.times else ""
        return (
            f"This failure **did not repeat in {self.times - self.repeated} of {self.times}** fresh workers."
        )


def confirm(
    case: Case,
    port_factory: Callable[[], AbstractContextManager[Executor]],
    times: int = 3,
    seconds: float = float("inf"),
) -> Confirmation:
    """Run the case's steps up to `times` times, each on a port of its own; once at least, and no further one after `seconds`."""
    messages: list[str] = []
    until = time.monotonic() + seconds
    while len(messages) < times and (not messages or time.monotonic() < until):
        with port_factory() as port:
            messages.append(_seen(case, port))
    return Confirmation(sum(map(bool, messages)), len(messages), tuple(messages))


def _seen(case: Case, port: Executor) -> str:
    try:
        found = replay(case, port)
    except NotTried:
        return ""
    return found.failure.sentence if found is not None and found.failure is not None else ""
