"""What the programs of a launch did: each operation with what it read and wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from statecheck.kernels.memory import Array, Memory, read
from statecheck.kernels.observed import ObservedMemory
from statecheck.kernels.sanitizer.touches import Observer, Touch
from statecheck.kernels.source.sites import Site

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched

READING = ("load", "poll")
"""Atomic operations that change nothing."""


@dataclass(eq=False)
class RecordedOperation:
    """One operation of one program.

    Args:
        found: what the elements that it touched held before, None for a plain store.
        left: what they held afterwards, None for a plain load.
    """

    touch: Touch
    site: Site
    found: Array | None
    left: Array | None = None


@dataclass
class RecordedLaunch(Observer):
    """A launch, and its operations in the order in which they were made."""

    launch: Launched
    operations: list[RecordedOperation] = field(default_factory=list)

    def before(self, touch: Touch) -> None:
        assert touch.site is not None
        found = None if touch.kind == "store" else _held(touch)
        self.operations.append(RecordedOperation(touch, touch.site, found))

    def after(self, touch: Touch) -> None:
        # A compare and swap that writes nothing is shown with what it found and what it left, too.
        if touch.kind == "store" or (
            touch.kind == "atomic" and self.operations[-1].site.operation not in READING
        ):
            self.operations[-1].left = _held(touch)


def _held(touch: Touch) -> Array:
    assert touch.site is not None
    return read(touch.site.element, touch.addresses, None, None)


@contextlib.contextmanager
def launches_recorded() -> Iterator[list[RecordedLaunch]]:
    """A list to which every launch in this context is added. Nothing else watches these launches."""
    from statecheck.kernels.launch import running

    recorded: list[RecordedLaunch] = []

    def memory(launch: Launched) -> Memory:
        recorded.append(RecordedLaunch(launch))
        return ObservedMemory(recorded[-1])

    with running(memory=memory):
        yield recorded
