"""What can become of a worker, in words that are the same in every run.

The device names one and the same fault differently from run to run, and everything after it fails with other names.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from statecheck.case.values import Raised

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


@dataclass(frozen=True)
class Fault:
    """The end of a worker: its kind, one of the names above, and a sentence that is the same whenever the same thing happens.

    `killed`: by SIGKILL, which another process may have sent.
    """

    kind: str
    message: str
    killed: bool = False

    @property
    def from_outside(self) -> bool:
        """Whether another process may be the cause: it killed the worker, or holds the memory that the worker asked for."""
        return self.kind == MEMORY or self.killed

    @property
    def outcome(self) -> Raised:
        """How the fault appears as the outcome of a call."""
        return Raised(self.kind, self.message, kind="hang" if self.kind == HANG else "fault")


INTERRUPTED = Fault(DIED, "of another example's call")
"""A worker that is shared; the example has to be run anew, however often that happens."""


class Faulted(Exception):
    """A worker has come to its end; nothing that it held is left."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.kind}: {fault.message}")
        self.fault = fault


def fault_of_kind(kind: str) -> Fault:
    """A fault of a kind that needs no further words."""
    return Fault(kind, _WORDS[kind])


def wants_memory(name: str, message: str) -> bool:
    """Whether an exception, by the name of its type and what it says, is about a lack of the device's memory."""
    return name == "OutOfMemoryError" or (name == "AcceleratorError" and "out of memory" in message.lower())


def fault_told_by(text: str) -> Fault:
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
