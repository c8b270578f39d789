"""What a failing case is explained with, for which its steps are taken once more: who wrote the bytes that are wrong, and how a port's own
functions were called where the case calls the documented functions that they stand for.

A case says what is wrong; maintainers ask which program of which launch did it, and in which line. On a CPU the sanitizer sees that.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import numpy as np
import torch

from statecheck import rooms
from statecheck.case import Case
from statecheck.case.bucket import own_name
from statecheck.case.failure import Difference, brief, outcome_difference
from statecheck.case.findings import Access
from statecheck.case.values import Expected, Let, Outcome, Raised, Tensor, Value
from statecheck.diagnose.replay import Rerun
from statecheck.execution.in_process import Describer, InProcess
from statecheck.execution.memory import GUARD_BYTES, Allocation, Window
from statecheck.execution.registry import launches
from statecheck.kernels import triton_mode
from statecheck.subject import Subject, load
from statecheck.util import limits
from statecheck.workers.commands import NOT_RUN, Completed, run_command
from statecheck.workers.forking import die_with_parent

_FRAME, _LATE = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE), "Timeout ("


def _run_apart(seconds: float, *arguments: object) -> Completed:
    """This module as a command, in which kernels are executed on the CPU."""
    command = [sys.executable, "-m", "statecheck.diagnose.attribution", *map(str, arguments)]
    kept = {name: value for name, value in os.environ.items() if name != triton_mode.INTERPRET}
    variables = kept | {"CUDA_VISIBLE_DEVICES": ""} | rooms.variables()
    return run_command(command, variables=variables, seconds=seconds)


def explained(case: Case, subject: Subject) -> Case:
    """The case with its finding: what the sanitizer says of it, or who wrote the bytes that are wrong.

    Where kernels are compiled in this process, or have ended one, another one executes them. Without an answer, or for
    calls that launch nothing and end no process, the case stays as it is.
    """
    fault = case.fault
    if case.finding or not (fault or any(launches(call.function) for call in case.calls)):
        return case
    if triton_mode.executes() and fault is None:
        return replace(case, finding=_tried(case, subject))
    with tempfile.TemporaryDirectory() as folder:
        path = case.save(Path(folder) / "case.json", durable=False)
        hangs = fault is not None and fault.kind == "hang"
        return replace(
            case,
            finding=_asked(path, Path(folder, "finding.txt"), limits.REPEATED_HANG if hangs else limits.CALL),
        )


def _tried(case: Case, subject: Subject) -> str:
    """The finding; a report is written all the same where there is none to be had."""
    try:
        return finding(case, subject)
    except Exception as error:
        return f"It could not be tried under the sanitizer: {type(error).__name__}: {error}"


def _asked(path: Path, answer: Path, seconds: float) -> str:
    """What another process writes to the file `answer`, in which kernels are executed on the CPU; the subject may print anything."""
    done = _run_apart(seconds + limits.START, path, answer, seconds)
    if done.returncode == NOT_RUN:
        return "On a CPU it does not end either."
    if done.returncode == 0:
        return answer.read_text(encoding="utf-8")
    if done.stderr.startswith(_LATE):
        return f"On a CPU it does not end within {seconds:g} s either{_place(done.stderr)}."
    if done.returncode < 0:
        return f"On a CPU it ends the process as well{_place(done.stderr)}."
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return f"It could not be tried on a CPU: {last}"


def _place(trace: str) -> str:
    """The innermost line of the subject in what faulthandler says, or `end_late`, in words, if there is one."""
    import triton

    installed = (str(Path(triton.__file__).parent), *map(sysconfig.get_path, ("stdlib", "purelib")))
    machinery = (f"{rooms.PACKAGE}{os.sep}", *installed, "<")
    frames = _FRAME.findall(trace)
    found = (f", at {Path(file).name}:{line}" for file, line in frames if not file.startswith(machinery))
    return next(found, "")


def end_late(seconds: float) -> None:
    """End this process after so many seconds, and say where it is: in a kernel, by the kernel's own line."""
    # Where not even a thread gets its turn.
    faulthandler.dump_traceback_later(seconds + limits.EXIT, exit=True)
    Thread(target=_end_late, args=(seconds, threading.get_ident()), daemon=True).start()


def _end_late(seconds: float, thread: int) -> None:
    time.sleep(seconds)
    frame = sys._current_frames().get(thread)
    print(f"{_LATE}{seconds:g} s)", file=sys.stderr)
    while frame is not None:
        file, line = _line_of(frame)
        print(f'  File "{file}", line {line} in {frame.f_code.co_name}', file=sys.stderr)
        frame = frame.f_back
    sys.stderr.flush()
    os._exit(1)


def _line_of(frame: FrameType) -> tuple[str, int]:
    from statecheck.kernels.source.compile import kernel_line

    here = frame.f_code.co_filename, frame.f_lineno
    return kernel_line(*here) or here


def finding(case: Case, subject: Subject) -> str:
    """What the sanitizer says of the case's steps, or who wrote the bytes that are wrong, in a sentence or two.

    Kernels have to be executed on the CPU in this process.
    """
    return _Inquiry(case, InProcess(subject, "cpu", sanitized=True, record=True)).answer()


@dataclass
class _Inquiry:
    """One case, as far as it has been repeated."""

    case: Case
    port: InProcess
    launched: list[int] = field(default_factory=list)
    """How many launches there were after each call."""

    def answer(self) -> str:
        for taken in Rerun(self.case, self.port):
            assert self.port.watched is not None
            self.launched.append(self.port.watched.sanitizer.launches)
            found = self._after(taken.expected, taken.outcome)
            if found is not None:
                return found
        return self._of_wrong_bytes()

    def _after(self, expected: Expected, outcome: Outcome) -> str | None:
        """The answer if the case ends with this call."""
        if isinstance(outcome, Raised) and outcome.is_finding:
            return f"In {self._call(len(self.launched))}, {outcome.message}."
        difference = outcome_difference(expected, outcome, places=False)
        if difference is None or self.case.wrong_bytes is not None:
            return None
        address = self._address(difference)
        return "" if address is None else self._last_writer(f"`{difference.place}`", address)

    def _of_wrong_bytes(self) -> str:
        wrong_bytes = self.case.wrong_bytes
        if wrong_bytes is None:
            return ""
        bound = self.port.names.get(wrong_bytes.name)
        assert isinstance(bound, Allocation)
        sentence = self._last_writer(
            f"byte {wrong_bytes.first} of `{wrong_bytes.name}`", bound.inside.data_ptr() + wrong_bytes.first
        )
        belongs = wrong_bytes.belongs[:1].upper() + wrong_bytes.belongs[1:]
        return f"{belongs}. {sentence}" if belongs else sentence

    def _last_writer(self, what: str, address: int) -> str:
        assert self.port.watched is not None
        access = self.port.watched.last_writer(address)
        if access is None:
            return f"No kernel of these calls has written {what}: it holds what the host left there."
        return f"{what[:1].upper()}{what[1:]} was written last by {self._author(access)}."

    def _author(self, access: Access) -> str:
        call = next(number for number, count in enumerate(self.launched, 1) if access.launch <= count)
        return f"program {access.program} of {access.kernel} in {self._call(call)} at {access.place}"

    def _call(self, number: int) -> str:
        """A call by its number, and the step of an engine that it is part of."""
        wrong_bytes = self.case.wrong_bytes
        step = f"step {wrong_bytes.steps[number - 1]}, " if wrong_bytes and wrong_bytes.steps else ""
        name = own_name(self.case, number - 1) or self.case.calls[number - 1].function
        return f"{step}call {number} (`{name}`)"

    def _address(self, difference: Difference) -> int | None:
        """Where the element or the byte around a tensor lies that differs, if a name is bound to its memory."""
        bound = self.port.names.get(difference.tensor)
        if difference.guard is not None:
            return _in_guard(bound, difference.guard) if isinstance(bound, Allocation) else None
        if not difference.index:
            return None
        if isinstance(bound, Allocation):
            return _in_view(bound.inside.view(bound.view.dtype), difference.index)
        return _in_view(bound.view, difference.index) if isinstance(bound, Window) else None


def _in_guard(block: Allocation, number: int) -> int:
    first = block.inside.data_ptr()
    assert abs(number) <= GUARD_BYTES
    return first + number if number < 0 else first + block.inside.numel() + number - 1


def _in_view(view: torch.Tensor, index: tuple[int, ...]) -> int:
    """The address of an element; elements of float types are named by their bytes."""
    byte = 0
    if view.is_floating_point():
        element, byte = divmod(index[0], view.element_size())
        index = tuple(map(int, np.unravel_index(element, tuple(view.shape))))
    elements = sum(at * stride for at, stride in zip(index, view.stride(), strict=True))
    return view.data_ptr() + elements * view.element_size() + byte


def explain_case(path: Path, subject: str = "") -> str:
    """What the sanitizer says of a saved case, or who wrote what is wrong in it; "" where the case shows nothing wrong.

    Args:
        subject: another one than the case's.

    Raises:
        ValueError: no readable case at `path`, or kernels are compiled in this process.
    """
    triton_mode.prepare("cpu")
    case = Case.named(path, "sanitize")
    return finding(case, load(subject or case.subject))


# How a port's own functions were called.

_MOST_ELEMENTS = 256
"""Of a row of a tensor, which a script is made of, too."""


def with_own_calls_apart(case: Case, subject: Subject) -> Case:
    """As `with_own_calls`, in a process of its own, which the case may end or keep: what was noted until then is enough."""
    if not _has_unknown_calls(case, subject):
        return case
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes.jsonl")
        path = case.save(Path(folder, "case.json"), durable=False)
        hangs = case.fault is not None and case.fault.kind == "hang"
        # The start of the process is part of it: only a case that hangs is not given time for a slow one.
        seconds = limits.REPEATED_HANG if hangs else limits.START + limits.CALL
        ended = _run_apart(seconds, path, notes).returncode
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
            places = [self._address(address) for address in tensor.tolist()]
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


def write_own_calls(path: Path, notes: Path) -> None:
    """Write a line for each call of the port of a case, before it is made."""
    case = Case.load(path)
    with notes.open("w", encoding="utf-8", buffering=1) as out:
        _Recorder(case, load(case.subject), lambda *note: out.write(json.dumps(note) + "\n")).run()


if __name__ == "__main__":
    # The case may stop its process, which nothing but a parent would end.
    die_with_parent()
    case_file, result, *seconds = sys.argv[1:]
    if seconds:
        faulthandler.enable()
        end_late(float(seconds[0]))
        Path(result).write_text(explain_case(Path(case_file)), encoding="utf-8")
    else:
        write_own_calls(Path(case_file), Path(result))
