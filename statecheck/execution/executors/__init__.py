"""What every execution port is: properties hand steps to it, and get outcomes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from statecheck.case.values import Outcome, Step
from statecheck.subject import Subject
from statecheck.subject.loading import needs_tensors


class Executor(Protocol):
    """Runs the steps of one example after another; `begin` forgets the names of the example before."""

    device: str

    def begin(self) -> None: ...

    def execute(self, step: Step) -> Outcome | None: ...

    def waiting_refused(self) -> AbstractContextManager[None]:
        """While it is entered, a call of the subject that waits for the device raises in the subject."""
        ...


class LocalExecutor(Executor, Protocol):
    """A port of this process. Between two examples it gives back the memory that it keeps for the next one."""

    def give_back(self) -> None: ...


def executed(port: Executor, steps: Sequence[Step]) -> list[Outcome | None]:
    """The outcome of each of the steps, None of those that are no calls.

    Round trips to a port in another process are expensive, so that it takes several steps at once: it has `execute_all`.
    """
    # By its name: to ask for the type of a protocol takes as long as some steps.
    execute_all: Callable[[Sequence[Step]], list[Outcome | None]] | None = getattr(port, "execute_all", None)
    return [port.execute(step) for step in steps] if execute_all is None else execute_all(steps)


def ordinary_port(
    subject: Subject, device: str, *, sanitized: bool = True, on_call: Callable[[], None] = lambda: None
) -> LocalExecutor:
    """What is used where nothing else is asked for: on a CPU, where kernels are executed, the sanitizer watches.

    A library of sequences needs neither torch nor Triton, which are not imported for it.
    """
    if subject.sequences is not None:
        from statecheck.execution.executors.plain import PlainExecutor

        return PlainExecutor(subject, on_call=on_call)
    from statecheck.execution.executors.in_process import InProcess

    return InProcess(subject, device, sanitized=sanitized and device == "cpu", on_call=on_call)


def choose_device(requested: str, subject: str = "") -> str:
    """The device that a request stands for: `auto` is `cuda` where there is a GPU and `cpu` elsewhere.

    In a process that executes kernels from their IR already, `auto` is `cpu`: both ways cannot meet in it.

    Args:
        subject: its name; a library of sequences runs where it wants, and "cpu" stands for that.

    Raises:
        ValueError: an unknown device, or "cuda" where there is none.
    """
    if requested not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device = {requested!r}, but should be auto, cpu or cuda [choose_device]")
    if requested == "cpu" or (requested == "auto" and not needs_tensors(subject)):
        return "cpu"
    import torch

    from statecheck.kernels import triton_mode

    if requested == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device = 'cuda', but should be cpu or auto where torch finds no GPU [choose_device]"
        )
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() and not triton_mode.executes() else "cpu"
    return requested
