"""What every execution port is: properties hand steps to it, and get outcomes back; and which port a subject has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Protocol

from statecheck.case.values import (
    Outcome,
    Step,
)
from statecheck.execution.plain import PlainExecutor
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


def ordinary_port(
    subject: Subject, device: str, *, sanitized: bool = True, on_call: Callable[[], None] = lambda: None
) -> LocalExecutor:
    """What is used where nothing else is asked for: on a CPU, where kernels are executed, the sanitizer watches.

    A library of sequences needs neither torch nor Triton, which are not imported for it.
    """
    if subject.sequences is not None:
        return PlainExecutor(subject, on_call=on_call)
    from statecheck.execution.in_process import InProcess

    return InProcess(subject, device, sanitized=sanitized and device == "cpu", on_call=on_call)


def choose_device(requested: str, subject: str = "", only: str = "") -> str:
    """The device that a request stands for: `auto` is `cuda` where there is a GPU and `cpu` elsewhere.

    In a process that executes kernels from their IR already, `auto` is `cpu`: both ways cannot meet in it.

    Args:
        subject: its name; a library of sequences runs where it wants, and "cpu" stands for that.
        only: an expression of ids; `auto` is `cpu` where all properties that the expression chooses run on a CPU alone, as scenarios of engines do.

    Raises:
        ValueError: an unknown device, "cuda" where there is none, or functions without torch and Triton.
    """
    if requested not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device = {requested!r}, but should be auto, cpu or cuda [choose_device]")
    if not needs_tensors(subject) and requested != "cuda":
        return "cpu"
    missing = [name for name in ("torch", "triton") if find_spec(name) is None]
    if missing:
        rule = "installed where functions are verified, as by pip install 'statecheck[kernels]'; libraries of sequences need neither"
        raise ValueError(f"{' and '.join(missing)} = not installed, but should be {rule} [choose_device]")
    if requested == "cpu":
        return "cpu"
    import torch

    from statecheck.kernels import triton_mode

    if requested == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device = 'cuda', but should be cpu or auto where torch finds no GPU [choose_device]"
        )
    if requested == "auto":
        has_gpu = torch.cuda.is_available() and not triton_mode.executes()
        return "cuda" if has_gpu and not _is_for_cpus(only) else "cpu"
    return requested


def _is_for_cpus(only: str) -> bool:
    from statecheck.execution.private.pytest import chosen_by
    from statecheck.execution.registry import load_properties

    chosen = [one for id_, one in load_properties().items() if only and chosen_by(only, id_, {})]
    return bool(chosen) and all(one.device == "cpu" for one in chosen)
