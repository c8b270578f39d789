"""How a call ended other than by its result: what a subject's code raised, and the end of a worker, in words that are the same in every run.

A subject may raise anything: `SystemExit`, `pytest.skip`, an exception whose `str` raises. All of that is what the subject
did, and must neither end the harness nor be taken for a wish of Hypothesis or pytest. A device names one and the same fault differently from run to
run, and everything after it fails with other names.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from types import TracebackType

from statecheck.case.values import Raised

LONGEST_MESSAGE = 100_000
_TIMERS = frozenset({"pytest_timeout"})
"""Modules whose signal handlers raise in whatever happens to run."""


def from_outside(error: BaseException) -> bool:
    """Whether it only happened to be raised while the subject ran: Ctrl-C, or the time limit of a test.

    Where the process ignores Ctrl-C, as workers do, a `KeyboardInterrupt` is the subject's; so is a class derived from it.
    """
    if isinstance(error, Exception):
        return False
    if type(error) is KeyboardInterrupt and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        return True
    return _passes_through(error.__traceback__, _TIMERS)


def _passes_through(trace: TracebackType | None, modules: frozenset[str]) -> bool:
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") in modules:
            return True
        trace = trace.tb_next
    return False


def name_of(kind: type) -> str:
    """The name of a type, also where its metaclass has a `__name__` of its own."""
    return plain_text(type.__dict__["__name__"].__get__(kind))


def plain_text(text: str) -> str:
    """`text` as a plain string that can be written as UTF-8, which lone surrogates cannot."""
    if type(text) is str and text.isascii():
        return text
    return str.encode(text, "utf-8", "backslashreplace").decode()


def message_of(error: BaseException) -> str:
    """What the exception says, cut where it says very much."""
    try:
        text = plain_text(str(error))
    except BaseException as second:
        if from_outside(second):
            raise
        return f"<its message cannot be read: {name_of(type(second))}>"
    if len(text) <= LONGEST_MESSAGE:
        return text
    return f"{text[:LONGEST_MESSAGE]} ... {len(text)} characters in all"


def error_text(error: BaseException) -> str:
    """Type and message, as tracebacks end."""
    return f"{name_of(type(error))}: {message_of(error)}"


ILLEGAL, MISALIGNED, HANG = "illegal access", "misaligned access", "hang"
LAUNCH, MEMORY, DIED = "launch failure", "out of memory", "worker died"

_WORDS = {
    ILLEGAL: "memory was touched that is not there",
    MISALIGNED: "an address is no multiple of the size of what is there",
    LAUNCH: "a kernel ended in an error",
    MEMORY: "more memory was asked for than there is",
}
_SIGNS = (
    ("illegal memory access", ILLEGAL),
    ("illegal address", ILLEGAL),
    ("invalid address space", ILLEGAL),
    ("misaligned", MISALIGNED),
    ("out of memory", MEMORY),
)
_DEVICE_LIBRARY = re.compile(r"\b(cuda|hip)\b")
_LACKS_OF_MEMORY = ("out of memory", "cublas_status_alloc_failed")


@dataclass(frozen=True)
class Fault:
    """The end of a worker: its kind, one of the names above, and a sentence that is the same whenever the same thing happens.

    `killed`: by SIGKILL, which another process may have sent. `crowded`: other processes hold much of the device's memory, so that a lack
    of memory says nothing about the subject.
    """

    kind: str
    message: str
    killed: bool = False
    crowded: bool = False

    @property
    def from_outside(self) -> bool:
        """Whether another process may be the cause: it killed the worker, or holds the memory that the worker asked for."""
        return self.kind == MEMORY or self.killed

    @property
    def outcome(self) -> Raised:
        """How the fault appears as the outcome of a call."""
        if self.crowded:
            why = "other processes hold much of the device's memory"
            return Raised(self.kind, why, kind="fault", not_offered=True)
        return Raised(self.kind, self.message, kind="hang" if self.kind == HANG else "fault")


class Faulted(Exception):
    """A worker has come to its end; nothing that it held is left."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.kind}: {fault.message}")
        self.fault = fault


def fault_of_kind(kind: str) -> Fault:
    """A fault of a kind that needs no further words."""
    return Fault(kind, _WORDS[kind])


def wants_memory(name: str, message: str) -> bool:
    """Whether an exception, by the name of its type and what it says, is about a lack of the device's memory.

    Triton, and libraries that torch calls, raise RuntimeError with the name of the device's library in its message.
    """
    said = message.lower()
    of_device = name == "AcceleratorError" or (
        name == "RuntimeError" and _DEVICE_LIBRARY.search(said) is not None
    )
    return name == "OutOfMemoryError" or (of_device and any(sign in said for sign in _LACKS_OF_MEMORY))


def fault_of_error(text: str) -> Fault:
    """The fault that an error of the device's library stands for."""
    kinds = (kind for sign, kind in _SIGNS if sign in text.lower())
    return fault_of_kind(next(kinds, LAUNCH))


def hang(limit: float) -> Fault:
    return Fault(HANG, f"no answer within {limit:g} s")


def death(status: int) -> Fault:
    """The fault that a process ended of: minus the signal's number, or its exit code."""
    if status >= 0:
        return Fault(DIED, f"the process ended with exit code {status}")
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return Fault(DIED, f"the process ended by {name}", killed=-status == signal.SIGKILL)
