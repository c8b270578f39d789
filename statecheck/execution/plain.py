"""The execution port of libraries of sequences: it has values without tensors, and needs neither torch nor Triton."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import PurePath
from types import CodeType, TracebackType
from typing import Any

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
                # The only function of the harness that needs no tensor, `canary_identity`: it is wrong above this number, which a campaign has to find.
                result = arguments["number"] + (arguments["number"] > LARGEST_RIGHT_NUMBER)
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
        # An adapter returns records, or objects of its own, whose names are enough.
        is_plain = result is None or isinstance(result, Record | int)
        value = result if is_plain else record(type(result).__name__)
        return Returned(value, by_subject=own and bool(method))

    def _built(self, value: Value) -> Any:
        if isinstance(value, Name):
            return self._names[value.name]
        if isinstance(value, list | tuple):
            return type(value)(self._built(one) for one in value)
        if isinstance(value, dict):
            return {name: self._built(one) for name, one in value.items()}
        return value


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
        if (
            type(module) is str
            and module.partition(".")[0] not in _LIBRARIES
            and not module.startswith(_OURS)
        ):
            found = module, trace.tb_frame.f_code, trace.tb_lineno or 0
        trace = trace.tb_next
    return found


@lru_cache(maxsize=1_000)
def _file(module: str, file: str) -> str:
    """The file below the folder that its package is imported from, or its name alone."""
    parts, depth = PurePath(file).parts, module.count(".") + 1
    if parts[-1:] == ("__init__.py",):
        depth += 1
    names = [PurePath(part).stem for part in parts[-depth:] if part != "__init__.py"]
    known = ".".join(names) == module
    return plain_text("/".join(parts[-depth:] if known else parts[-1:]))
