"""The execution port of libraries of sequences: it has values without tensors, and needs neither torch nor Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from statecheck.case.raised import Faulted, from_outside, message_of, name_of
from statecheck.case.values import Call, Let, Name, Outcome, Raised, Record, Returned, Step, Value, record
from statecheck.execution.objects.source_line import source_line
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
