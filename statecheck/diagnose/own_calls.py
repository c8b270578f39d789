"""How a port's own functions are called, where a case calls the documented functions that they stand for."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from statecheck import rooms
from statecheck.case import Case
from statecheck.case.failure import brief
from statecheck.case.values import Let, Tensor, Value
from statecheck.diagnose.replay import Rerun
from statecheck.execution.describe import Describer
from statecheck.execution.in_process import InProcess
from statecheck.subject import Subject, load
from statecheck.workers import limits
from statecheck.workers.commands import run_command
from statecheck.workers.forking import die_with_parent

_MOST_ELEMENTS = 256
"""Of a row of a tensor, which a script is made of, too."""


def with_own_calls_apart(case: Case, subject: Subject) -> Case:
    """As `with_own_calls`, in a process of its own, which the case may end or keep; as it is where that comes to nothing."""
    if not subject.functions or case.device != "cpu" or case.fault or case.own_calls:
        return case
    with tempfile.TemporaryDirectory() as folder:
        path = case.save(Path(folder, "case.json"), durable=False)
        command = [sys.executable, "-m", "statecheck.diagnose.own_calls", str(path)]
        run_command(command, variables=os.environ | rooms.variables(), seconds=limits.CALL)
        return Case.load(path)


def with_own_calls(case: Case, subject: Subject) -> Case:
    """The case with what a port's own functions were called with; as it is, of any other subject.

    The steps are taken once more, in this process: not where they would end it, or need another device.
    """
    if not subject.functions or case.device != "cpu" or case.fault or case.own_calls:
        return case
    try:
        found = _Recorder(case, subject).texts()
    except Exception:
        # A report shows what stands for them instead.
        return case
    shown = _shown(case, found)
    failure = replace(case.failure, shown=shown) if case.failure is not None and shown else case.failure
    return replace(case, own_calls=found, failure=failure)


def _shown(case: Case, found: tuple[str, ...]) -> str:
    """What the failure's call comes to."""
    if case.failure is None or case.failure.call is None:
        return ""
    numbers = case.failure.about or (case.failure.call,)
    return "; ".join(found[number].rpartition("\n")[2] for number in numbers)


class _Recorder:
    def __init__(self, case: Case, subject: Subject) -> None:
        self._lines: list[str] = []
        self._case, self._subject = case, subject
        self._port = InProcess(subject.noting_calls(self._note), "cpu")
        self._describer = Describer("cpu")

    def texts(self) -> tuple[str, ...]:
        """For each call a line per function of the port, "" where it asks none."""
        found = []
        try:
            for _ in Rerun(self._case, self._port):
                found.append("\n".join(self._lines))
                self._lines.clear()
        finally:
            with self._subject.environment({}):
                """The port itself is asked from now on."""
        return tuple(found)

    def _note(self, function: str, arguments: Mapping[str, Any]) -> None:
        written = ", ".join(f"{name}={self._format(value)}" for name, value in arguments.items())
        self._lines.append(f"{function}({written})")

    def _format(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (list, tuple)):
            inner = ", ".join(map(self._format, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner})"
        return repr(value)

    def _tensor(self, tensor: torch.Tensor) -> str:
        """States by the pool that they are a view of, addresses by what lies there, and anything else by its elements."""
        pool = self._pool_at(tensor.data_ptr())
        if pool is not None:
            dtype = str(tensor.dtype).removeprefix("torch.")
            return f"<{dtype}{list(tensor.shape)} in {pool[0]}>"
        if tensor.dtype is torch.int64 and tensor.dim() == 1:
            places = [self._address(one) for one in tensor.tolist()]
            if all(places):
                return f"[{', '.join(places)}]"
        return brief(self._describer.tensor(tensor), _MOST_ELEMENTS)

    def _address(self, address: int) -> str:
        found = self._pool_at(address)
        return f"{found[0]} + {found[1]}" if found is not None else ""

    def _pool_at(self, address: int) -> tuple[str, int] | None:
        """A pool of the case, whose bytes are states and which views are taken of, and the offset in bytes."""
        for name, pool in self._pools().items():
            offset = address - pool.data_ptr()
            if 0 <= offset < pool.numel() * pool.element_size():
                return name, offset
        return None

    def _pools(self) -> dict[str, torch.Tensor]:
        named = {step.name: step.value for step in self._case.steps if isinstance(step, Let)}
        return dict(self._port.views(name for name, value in named.items() if _is_pool(value)))


def _is_pool(value: Value) -> bool:
    return isinstance(value, Tensor) and value.dtype == "uint8"


if __name__ == "__main__":
    die_with_parent()
    found = Case.load(Path(sys.argv[1]))
    with_own_calls(found, load(found.subject)).save(Path(sys.argv[1]), durable=False)
