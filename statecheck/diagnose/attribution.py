"""Who wrote the bytes that a case is about: its steps once more, on a CPU, under the sanitizer.

A case says what is wrong; maintainers ask which program of which launch did it, and in which line.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import sysconfig
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from types import FrameType

import numpy as np
import torch

from statecheck import rooms
from statecheck.case import Case
from statecheck.case.bucket import own_name
from statecheck.case.failure import Difference, outcome_difference
from statecheck.case.findings import Access
from statecheck.case.values import Expected, Outcome, Raised
from statecheck.diagnose.replay import Rerun
from statecheck.execution.in_process import InProcess
from statecheck.execution.memory import GUARD_BYTES, Allocation, Window
from statecheck.execution.registry import launches
from statecheck.kernels import triton_mode
from statecheck.subject import Subject, load
from statecheck.workers import limits
from statecheck.workers.commands import NOT_RUN, run_command
from statecheck.workers.forking import die_with_parent

_FRAME, _LATE = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE), "Timeout ("


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
    command = [sys.executable, "-m", "statecheck.diagnose.attribution", str(path), str(answer), str(seconds)]
    kept = {name: value for name, value in os.environ.items() if name != triton_mode.INTERPRET}
    variables = kept | {"CUDA_VISIBLE_DEVICES": ""} | rooms.variables()
    done = run_command(command, variables=variables, seconds=seconds + limits.START)
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
    try:
        case = Case.load(path)
    except OSError as error:
        raise ValueError(
            f"case = {str(path)!r}, but should be a readable file [sanitize]: {error}"
        ) from error
    return finding(case, load(subject or case.subject))


if __name__ == "__main__":
    # The case may stop its process, which nothing but a parent would end.
    die_with_parent()
    faulthandler.enable()
    end_late(float(sys.argv[3]))
    Path(sys.argv[2]).write_text(explain_case(Path(sys.argv[1])), encoding="utf-8")
