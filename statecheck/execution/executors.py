"""What every execution port is: properties hand steps to it, and get outcomes back."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import PurePath
from types import CodeType, TracebackType
from typing import Any, Protocol

from statecheck.case.raised import Faulted, from_outside, message_of, name_of, plain_text
from statecheck.case.values import (
    Call,
    Let,
    Name,
    Outcome,
    Raised,
    Record,
    Returned,
    SourceLine,
    Step,
    Value,
    record,
)
from statecheck.subject import NotOffered, Subject
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
        return PlainExecutor(subject, on_call=on_call)
    from statecheck.execution.in_process import InProcess

    return InProcess(subject, device, sanitized=sanitized and device == "cpu", on_call=on_call)


def choose_device(requested: str, subject: str = "") -> str:
    """The device that a request stands for: `auto` is `cuda` where there is a GPU and `cpu` elsewhere.

    In a process that executes kernels from their IR already, `auto` is `cpu`: both ways cannot meet in it.

    Args:
        subject: its name; a library of sequences runs where it wants, and "cpu" stands for that.

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
        return "cuda" if torch.cuda.is_available() and not triton_mode.executes() else "cpu"
    return requested


LARGEST_RIGHT_NUMBER = 9
"""Above it the function of a campaign's canary is wrong."""


class PlainExecutor:
    """Executes in this process. A library that may end its process is called in another one by its adapter.

    Args:
        on_call: called before each call of the subject.
    """

    device = "cpu"

    def __init__(self, subject: Subject, *, on_call: Callable[[], None] = lambda: None) -> None:
        self.subject, self.on_call = subject, on_call
        self._names: dict[str, Any] = {}

    def begin(self) -> None:
        """An example begins: no name of the one before is bound."""
        self._names.clear()

    def execute(self, step: Step) -> Outcome | None:
        """Take a step; the outcome of a call.

        Raises:
            TypeError: it writes to memory, of which there is none.
        """
        if isinstance(step, Let):
            self._names[step.name] = self._built(step.value)
            return None
        if not isinstance(step, Call):
            raise TypeError(f"step = {step!r}, but should be a call or a binding [PlainExecutor]")
        self.on_call()
        return self._call(step)

    def give_back(self) -> None:
        """Nothing is kept."""

    @contextmanager
    def waiting_refused(self) -> Iterator[None]:
        """Nothing waits for a device here."""
        yield

    def _call(self, call: Call) -> Outcome:
        arguments = {name: self._built(value) for name, value in call.named.items()}
        owner, _, method = call.function.partition(".")
        own = self.subject.is_own(call.function)
        try:
            if owner == "harness":
                result = _OWN_FUNCTIONS[method](**arguments)
            elif method:
                result = getattr(arguments.pop("self"), method)(**arguments)
            else:
                result = self.subject.resolve(owner)(**arguments)
        except Faulted as error:
            return error.fault.outcome
        except BaseException as error:
            if from_outside(error):
                raise
            lacks = isinstance(error, NotOffered)
            at = source_line(error)
            return Raised(name_of(type(error)), message_of(error), at=at, by_subject=own, not_offered=lacks)
        if call.bind:
            self._names[call.bind] = result
        return Returned(_described(result), by_subject=own and bool(method))

    def _built(self, value: Value) -> Any:
        if isinstance(value, Name):
            return self._names[value.name]
        if isinstance(value, list | tuple):
            return type(value)(self._built(one) for one in value)
        if isinstance(value, dict):
            return {name: self._built(one) for name, one in value.items()}
        return value


def _canary_identity(number: int, device: Any) -> int:  # noqa: ARG001
    """The number; above `LARGEST_RIGHT_NUMBER` it is wrong, which a campaign has to find."""
    return number + (number > LARGEST_RIGHT_NUMBER)


_OWN_FUNCTIONS = {"canary_identity": _canary_identity}
"""The port's own functions that need no tensor."""


def _described(result: Any) -> Value:
    """The result as a value: an adapter returns records, or objects of its own, whose names are enough."""
    if result is None or isinstance(result, Record | int):
        return result
    return record(type(result).__name__)


_LIBRARIES = sys.stdlib_module_names | {"hypothesis", "numpy", "oracle", "torch", "triton"}
_OURS = ("statecheck.", "subjects.")
_LONGEST = 200


def source_line(error: BaseException) -> SourceLine | None:
    """The innermost line of the subject's own code in the traceback; None where there is none.

    An exception that another one was raised from shows that one's line if it has none itself: adapters name arguments
    otherwise.
    """
    found = _innermost(error.__traceback__)
    cause = error.__cause__
    if found is None and cause is not None:
        found = _innermost(cause.__traceback__)
    if found is None:
        return None
    module, code, line = found
    text = linecache.getline(code.co_filename, line).strip()[:_LONGEST]
    return SourceLine(_file(module, code.co_filename), line, _function(code), plain_text(text))


@lru_cache(maxsize=1_000)
def _function(code: CodeType) -> str:
    """The function that the line stands in. A comprehension is no function of its own: from Python 3.12 on it has no frame."""
    names = [name for name in code.co_qualname.split(".") if not name.startswith("<")]
    return plain_text(names[-1] if names else code.co_name)


def _innermost(trace: TracebackType | None) -> tuple[str, CodeType, int] | None:
    found = None
    while trace is not None:
        module: Any = trace.tb_frame.f_globals.get("__name__")
        if type(module) is str and _is_own(module):
            found = module, trace.tb_frame.f_code, trace.tb_lineno or 0
        trace = trace.tb_next
    return found


def _is_own(module: str) -> bool:
    return module.partition(".")[0] not in _LIBRARIES and not module.startswith(_OURS)


@lru_cache(maxsize=1_000)
def _file(module: str, file: str) -> str:
    """The file below the folder that its package is imported from, or its name alone."""
    parts, depth = PurePath(file).parts, module.count(".") + 1
    if parts[-1:] == ("__init__.py",):
        depth += 1
    names = [PurePath(part).stem for part in parts[-depth:] if part != "__init__.py"]
    known = ".".join(names) == module
    return plain_text("/".join(parts[-depth:] if known else parts[-1:]))
