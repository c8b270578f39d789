"""The memory of a launch that remembers each operation: which program made it, which elements it touched, what it read and wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from statecheck.kernels.memory import Array, Memory, Program, read
from statecheck.kernels.observed import Elements, ObservedMemory
from statecheck.kernels.source.sites import Site

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched


@dataclass(eq=False)
class RecordedOperation:
    """One operation of one program.

    Args:
        addresses: of the elements that it touched; those of lanes that are masked out are not among them.
        found: what was there before, None for a plain store.
        left: what was there afterwards, None for a plain load.
    """

    program: Program
    site: Site
    addresses: Array
    found: Array | None
    left: Array | None


class RecordingMemory(ObservedMemory):
    """Remembers operations in the order in which they are made."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[RecordedOperation] = []
        self._writes = False

    def before(self, site: Site, elements: Elements, *, writes: bool) -> None:
        self.end()
        places = np.array(elements, np.int64).reshape(-1)
        found = None if site.kind == "store" else read(site.element, places, None, None)
        self.operations.append(RecordedOperation(self.program, site, places, found, None))
        self._writes = writes

    def end(self) -> None:
        """The last operation was made: note what it left."""
        if self._writes:
            last = self.operations[-1]
            last.left = read(last.site.element, last.addresses, None, None)
            self._writes = False


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch, and the memory that remembers what its programs did."""

    launch: Launched
    memory: RecordingMemory

    @property
    def operations(self) -> list[RecordedOperation]:
        # Where a program has failed, nothing came after its last operation.
        self.memory.end()
        return self.memory.operations


@contextlib.contextmanager
def launches_recorded() -> Iterator[list[RecordedLaunch]]:
    """A list to which every launch in this context is added. Nothing else watches these launches."""
    from statecheck.kernels.launch import running

    recorded: list[RecordedLaunch] = []

    def memory(launch: Launched) -> Memory:
        recorded.append(RecordedLaunch(launch, RecordingMemory()))
        return recorded[-1].memory

    with running(memory=memory):
        yield recorded
