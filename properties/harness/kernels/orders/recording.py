"""The memory of a launch that remembers each operation: which program made it, which elements it touched, what it read and wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from properties.harness.kernels.memory import Memory, Program
from properties.harness.kernels.orders.footprints import READING
from properties.harness.kernels.source.sites import Site
from properties.harness.kernels.source.values import dtype_of

if TYPE_CHECKING:
    from properties.harness.kernels.launch import Launched

Array = NDArray[Any]


@dataclass(eq=False)
class RecordedOperation:
    """One operation of one program.

    Args:
        addresses: of the elements that it touched; those of lanes that are masked out are not among them.
        found: what it read there, None for a plain store.
        left: what it wrote, None for a plain load.
    """

    program: Program
    warp: int
    site: Site
    addresses: Array
    found: Array | None
    left: Array | None


class RecordingMemory(Memory):
    """Remembers operations in the order in which they are made."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[RecordedOperation] = []

    def load1(self, site: Site, pointer: int, origin: Any) -> Any:
        value = super().load1(site, pointer, origin)
        self._note(site, pointer, None, found=value)
        return value

    def load(self, site: Site, pointers: Array, mask: Array | None, other: Any, origin: Any) -> Array:
        values = super().load(site, pointers, mask, other, origin)
        self._note(site, pointers, mask, found=values)
        return values

    def store1(self, site: Site, pointer: int, value: Any, origin: Any) -> None:
        super().store1(site, pointer, value, origin)
        self._note(site, pointer, None if self.warp == 0 else np.False_, left=value)

    def store(self, site: Site, pointers: Array, values: Array, mask: Array | None, origin: Any) -> None:
        super().store(site, pointers, values, mask, origin)
        self._note(site, pointers, self.own(mask, pointers.shape), left=values)

    def rmw(self, site: Site, pointer: Any, value: Any, mask: Any, origin: Any) -> Any:
        found = super().rmw(site, pointer, value, mask, origin)
        self._atomic(site, pointer, mask, found)
        return found

    def cas(self, site: Site, pointer: Any, expected: Any, value: Any, origin: Any) -> Any:
        found = super().cas(site, pointer, expected, value, origin)
        self._atomic(site, pointer, None, found)
        return found

    def _atomic(self, site: Site, pointer: Any, mask: Any, found: Any) -> None:
        mask = mask if self.warp == 0 else np.False_
        if site.operation in READING:
            self._note(site, pointer, mask, found=found)
            return
        places, active = _lanes(pointer, mask)
        left = np.zeros(np.shape(found), dtype_of(site.element)).reshape(-1)
        left[active] = Memory().load(site, places, None, None, None)
        self._note(site, pointer, mask, found=found, left=left)

    def _note(self, site: Site, pointer: Any, mask: Any, found: Any = None, left: Any = None) -> None:
        places, active = _lanes(pointer, mask)

        def values(one: Any) -> Array | None:
            return None if one is None else np.array(one, dtype_of(site.element)).reshape(-1)[active]

        self.operations.append(
            RecordedOperation(self.program, self.warp, site, places, values(found), values(left))
        )


def _lanes(pointer: Any, mask: Any) -> tuple[Array, Array]:
    """The addresses of active lanes, and which lanes these are."""
    every = np.array(pointer, np.int64)
    active = np.broadcast_to(True if mask is None else np.asarray(mask, np.bool_), every.shape).reshape(-1)
    return every.reshape(-1)[active], active


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch and the operations of its programs."""

    launch: Launched
    operations: list[RecordedOperation]


@contextlib.contextmanager
def launches_recorded() -> Iterator[list[RecordedLaunch]]:
    """A list to which every launch in this context is added. Nothing else watches these launches."""
    from properties.harness.kernels.launch import running

    recorded: list[RecordedLaunch] = []

    def memory(launch: Launched) -> Memory:
        made = RecordingMemory()
        recorded.append(RecordedLaunch(launch, made.operations))
        return made

    with running(memory=memory):
        yield recorded
