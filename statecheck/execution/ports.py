"""What every execution port is: properties hand steps to it, and get outcomes back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from statecheck.case.values import Outcome, Step


class Port(Protocol):
    """Runs the steps of one example after another; `begin` forgets the names of the example before."""

    device: str

    def begin(self) -> None: ...

    def execute(self, step: Step) -> Outcome | None: ...

    def waiting_refused(self) -> AbstractContextManager[None]:
        """While it is entered, a call of the subject that waits for the device raises in the subject."""
        ...


@runtime_checkable
class TakesSeveral(Protocol):
    """A port in another process: round trips are expensive, so it takes several steps at once."""

    def execute_all(self, steps: Sequence[Step]) -> list[Outcome | None]: ...


def executed(port: Port, steps: Sequence[Step]) -> list[Outcome | None]:
    """The outcome of each of the steps, None of those that are no calls."""
    if isinstance(port, TakesSeveral):
        return port.execute_all(steps)
    return [port.execute(step) for step in steps]


class Recorder(Protocol):
    """Records what a port is about to do; see `workers.log.StepLog`."""

    def begin(self) -> None: ...

    def note(self, steps: Sequence[Step]) -> None: ...

    def enter(self) -> None: ...

    def leave(self) -> None: ...
