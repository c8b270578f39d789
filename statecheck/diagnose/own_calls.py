"""How a port's own functions are called, where a case calls the documented functions that they stand for."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
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
    """As `with_own_calls`, in a process of its own, which the case may end or keep: what was noted until then is enough."""
    if not _has_unknown_calls(case, subject):
        return case
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes.jsonl")
        path = case.save(Path(folder, "case.json"), durable=False)
        command = [sys.executable, "-m", "statecheck.diagnose.own_calls", str(path), str(notes)]
        hangs = case.fault is not None and case.fault.kind == "hang"
        seconds = limits.REPEATED_HANG if hangs else limits.CALL
        ended = run_command(command, variables=os.environ | rooms.variables(), seconds=seconds).returncode
        if not notes.exists() or (ended and case.fault is None):
            return case
        lines = notes.read_text(encoding="utf-8").splitlines()
    return _noted(case, [json.loads(line) for line in lines])


def with_own_calls(case: Case, subject: Subject) -> Case:
    """The case with what a port's own functions were called with; as it is, of any other subject.

    The steps are taken once more, in this process: not where they would end it, or need another device.
    """
    if case.fault or not _has_unknown_calls(case, subject):
        return case
    notes: list[tuple[int, str]] = []
    try:
        _Recorder(case, subject, lambda number, line: notes.append((number, line))).run()
    except Exception:
        # A report shows what stands for them instead.
        return case
    return _noted(case, notes)


def _has_unknown_calls(case: Case, subject: Subject) -> bool:
    return bool(subject.functions) and case.device == "cpu" and not case.own_calls


def _noted(case: Case, notes: Sequence[tuple[int, str]]) -> Case:
    """The case with its port's calls: a line for each, by the number of the call that they belong to."""
    lines: list[list[str]] = [[] for _ in case.calls]
    for number, line in notes:
        lines[number].append(line)
    found = tuple(map("\n".join, lines))
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
    """Takes the steps of a case once more, and notes the calls of the port before each is made.

    Args:
        take: gets the number of the case's call, and a call of the port as a line.
    """

    def __init__(self, case: Case, subject: Subject, take: Callable[[int, str], object]) -> None:
        self._case, self._subject, self._take = case, subject, take
        self._number = 0
        self._port = InProcess(subject.noting_calls(self._note), "cpu")
        self._describer = Describer("cpu")

    def run(self) -> None:
        try:
            for _ in Rerun(self._case, self._port):
                self._number += 1
        finally:
            with self._subject.environment({}):
                """The port itself is asked from now on."""

    def _note(self, function: str, arguments: Mapping[str, Any]) -> None:
        written = ", ".join(f"{name}={self._format(value)}" for name, value in arguments.items())
        self._take(self._number, f"{function}({written})")

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
            name, offset = pool
            view = f"{name}.view({tensor.dtype}).as_strided({tuple(tensor.shape)}, {tensor.stride()}"
            return f"{view}, {offset // tensor.element_size()})"
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


def main(path: Path, notes: Path) -> None:
    """Write a line for each call of the port of a case, before it is made."""
    case = Case.load(path)
    with notes.open("w", encoding="utf-8", buffering=1) as out:
        _Recorder(case, load(case.subject), lambda *note: out.write(json.dumps(note) + "\n")).run()


if __name__ == "__main__":
    die_with_parent()
    main(*map(Path, sys.argv[1:]))
