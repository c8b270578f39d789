"""The memory of a launch whose operations are noted: which elements each of them touches, and whether it writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from statecheck.kernels.memory import Array, Memory
from statecheck.kernels.source.sites import Site

Elements = int | Array
"""Addresses of the elements that an operation touches: those of active lanes, or the one of a scalar."""
READING = ("load", "poll")
"""Atomic operations that change nothing."""


class ObservedMemory(Memory):
    """Calls `before` ahead of each operation."""

    def before(self, site: Site, elements: Elements, *, writes: bool) -> None:
        """An operation is about to be made. A compare and swap counts as a write."""

    def load1(self, site: Site, pointer: int, origin: Any) -> Any:
        self.before(site, pointer, writes=False)
        return super().load1(site, pointer, origin)

    def load(self, site: Site, pointers: Array, mask: Array | None, other: Any, origin: Any) -> Array:
        self.before(site, pointers if mask is None else pointers[mask], writes=False)
        return super().load(site, pointers, mask, other, origin)

    def store1(self, site: Site, pointer: int, value: Any, origin: Any) -> None:
        self.before(site, pointer, writes=True)
        super().store1(site, pointer, value, origin)

    def store(self, site: Site, pointers: Array, values: Array, mask: Array | None, origin: Any) -> None:
        self.before(site, pointers if mask is None else pointers[mask], writes=True)
        super().store(site, pointers, values, mask, origin)

    def rmw(self, site: Site, pointer: Any, value: Any, mask: Any, origin: Any) -> Any:
        self.before(site, self._atomic_elements(pointer, mask), writes=site.operation not in READING)
        return super().rmw(site, pointer, value, mask, origin)

    def cas(self, site: Site, pointer: Any, expected: Any, value: Any, origin: Any) -> Any:
        self.before(site, self._atomic_elements(pointer, None), writes=True)
        return super().cas(site, pointer, expected, value, origin)

    @staticmethod
    def _atomic_elements(pointer: Any, mask: Any) -> Array:
        elements = np.array(pointer, np.int64).reshape(-1)
        return elements if mask is None else elements[np.broadcast_to(mask, np.shape(pointer)).reshape(-1)]
