"""What the sanitizer reports: an access, and the exceptions that name one or two of them."""

from __future__ import annotations

from dataclasses import dataclass

from statecheck.case.values import KernelAccess, RaisedKind

Program = tuple[int, int, int]
_VERBS = {"load": "loads", "store": "stores", "atomic": "changes atomically", "arithmetic": "computes"}


def byte_count(count: int) -> str:
    """Such as "4 bytes"."""
    return "1 byte" if count == 1 else f"{count} bytes"


@dataclass(frozen=True)
class Access:
    """One element of one access that a program of a launch made."""

    kind: str
    """ "load", "store" or "atomic"; "arithmetic" where no memory is involved."""
    program: Program
    kernel: str
    tensor: str
    """Name of the tensor, empty where the address is in no known tensor."""
    index: tuple[int, ...] | None
    """In the tensor's view; None for an address in none of its elements."""
    address: int
    nbytes: int
    place: str
    """Innermost line of kernel code, as "kernels.py:88"."""
    path: str
    """The same with the file's whole path."""
    launch: int
    """Launches are numbered from 1 within a context."""

    @property
    def what(self) -> str:
        if not self.tensor:
            return f"{byte_count(self.nbytes)} at address {self.address:#x}"
        if self.index is None:
            return f"{byte_count(self.nbytes)} of `{self.tensor}`"
        return f"element {list(self.index)} of `{self.tensor}`" if self.index else f"`{self.tensor}`"

    @property
    def verb(self) -> str:
        return _VERBS[self.kind]

    @property
    def fields(self) -> KernelAccess:
        """What is the same in every run, as an outcome has it."""
        return KernelAccess(self.kernel, self.verb, self.tensor, self.index)

    def __str__(self) -> str:
        return f"program {self.program} of {self.kernel} {self.verb} {self.what} at {self.place}"


class Finding(Exception):
    """Something that a kernel did and may not do. `str()` of it is a sentence for the kernel's maintainer, which nothing reads fields from."""

    kind: RaisedKind = "memory"

    def __init__(self, message: str, access: Access, other: Access | None = None) -> None:
        # All three are arguments of the exception, which pickle then passes on.
        super().__init__(message, access, other)
        self.message, self.access, self.other = message, access, other

    def __str__(self) -> str:
        return self.message


class OutsideView(Finding):
    """An access outside the tensor that its pointer came from, though perhaps inside another one."""


class OverflowedOffset(Finding):
    """An access by an offset that does not fit in the 32 bits in which the kernel computes it."""


class Misaligned(Finding):
    """An access to an element at an address that is no multiple of its size, which a GPU does not make."""


class RaceBetweenPrograms(Finding):
    """Two programs of a launch touch a byte that one of them writes, and nothing orders them."""

    kind = "race"


class RaceWithinProgram(Finding):
    """Two lanes of a program touch a byte that one of them writes, with no barrier between."""

    kind = "race"


class UnwrittenRead(Finding):
    """A load of bytes that have not been written."""


class FreedBlock(Finding):
    """An access to bytes that were handed back."""


class NotExecuted(Exception):
    """A launch that is not made, since the executor does not know something in the kernel's IR, which the message names."""
