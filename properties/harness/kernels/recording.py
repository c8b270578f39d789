"""The memory of a launch that remembers each operation: who made it, which bytes it touched, what was read or written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton._C.libtriton import interpreter as native

from properties.harness.kernels.memory import Memory, Program, same_bits
from properties.harness.kernels.sites import Site
from properties.harness.kernels.values import dtype_of

Array = NDArray[Any]
_RAW: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(eq=False)
class Operation:
    """One operation of one program.

    Args:
        addresses: of the elements that it touched, those of lanes that are masked out are not among them.
        found: what these held before, None for a plain store.
        left: what they hold after it, None for what only reads.
    """

    program: Program
    warp: int
    site: Site
    addresses: Array
    found: Array | None
    left: Array | None

    @property
    def writes(self) -> bool:
        return self.left is not None


class RecordingMemory(Memory):
    """Remembers operations, and can take back what they wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._before: list[tuple[Array, Array]] = []

    def load1(self, site: Site, pointer: int, origin: Any) -> Any:
        value = super().load1(site, pointer, origin)
        self._note(site, _addresses(pointer), found=value)
        return value

    def load(self, site: Site, pointers: Array, mask: Array | None, other: Any, origin: Any) -> Array:
        values = super().load(site, pointers, mask, other, origin)
        self._note(site, _addresses(pointers, mask), found=_active(values, mask))
        return values

    def store1(self, site: Site, pointer: int, value: Any, origin: Any) -> None:
        if self.warp:
            self._note(site, _addresses(()))
            return
        self._keep(site, _addresses(pointer))
        super().store1(site, pointer, value, origin)
        self._note(site, _addresses(pointer), left=value)

    def store(self, site: Site, pointers: Array, values: Array, mask: Array | None, origin: Any) -> None:
        active = self.own(mask, pointers.shape)
        addresses = _addresses(pointers, active)
        self._keep(site, addresses)
        super().store(site, pointers, values, mask, origin)
        self._note(site, addresses, left=_active(values, active))

    def rmw(self, site: Site, pointer: Any, value: Any, mask: Any, origin: Any) -> Any:
        addresses = _addresses(pointer, None if mask is None else np.asarray(mask, np.bool_))
        first = self.warp == 0
        if first:
            self._keep(site, addresses)
        result = super().rmw(site, pointer, value, mask, origin)
        found = _active(np.asarray(result), None if mask is None else np.asarray(mask, np.bool_))
        self._note(
            site, addresses if first else _addresses(()), found, _now(site, addresses) if first else None
        )
        return result

    def cas(self, site: Site, pointer: Any, expected: Any, value: Any, origin: Any) -> Any:
        addresses, first = _addresses(pointer), self.warp == 0
        if first:
            self._keep(site, addresses)
        result = super().cas(site, pointer, expected, value, origin)
        found = np.asarray(result)
        lanes = zip(found.reshape(-1), np.broadcast_to(expected, found.shape).reshape(-1), strict=True)
        changes = first and any(same_bits(one, other, found.dtype) for one, other in lanes)
        self._note(
            site, addresses if first else _addresses(()), found, _now(site, addresses) if changes else None
        )
        return result

    def _note(self, site: Site, addresses: Array, found: Any = None, left: Any = None) -> None:
        def values(one: Any) -> Array | None:
            return None if one is None else np.array(one, dtype_of(site.element)).reshape(-1)

        self.operations.append(
            Operation(self.program, self.warp, site, addresses, values(found), values(left))
        )

    def _keep(self, site: Site, addresses: Array) -> None:
        self._before.append((addresses, _raw(addresses, site.nbytes)))

    def written(self) -> Array:
        """The addresses of all bytes that were written, in their order."""
        every = [_bytes(addresses, before.itemsize) for addresses, before in self._before]
        return np.unique(np.concatenate(every)) if every else np.empty(0, np.int64)

    def take_back(self) -> None:
        """Everything is as it was before the first operation."""
        for addresses, before in reversed(self._before):
            native.store(addresses.view(np.uint64), before, np.ones(addresses.shape, np.bool_))
        self._before.clear()


def _addresses(pointers: Any, mask: Array | None = None) -> Array:
    every = np.array(pointers, np.int64).reshape(-1)
    return every if mask is None else every[np.broadcast_to(mask, np.shape(pointers)).reshape(-1)]


def _active(values: Array, mask: Array | None) -> Array:
    return values.reshape(-1) if mask is None else values[np.broadcast_to(mask, values.shape)]


def _bytes(addresses: Array, nbytes: int) -> Array:
    """The address of every byte of the elements."""
    every: Array = (addresses[:, None] + np.arange(nbytes)).reshape(-1)
    return every


def _raw(addresses: Array, nbytes: int) -> Array:
    """The bits that the elements hold now."""
    rest, mask = np.zeros(addresses.shape, _RAW[nbytes]), np.ones(addresses.shape, np.bool_)
    found: Array = native.load(addresses.view(np.uint64), mask, rest, rest.dtype)
    return found


def raw_bytes(addresses: Array) -> Array:
    """What bytes hold now."""
    return _raw(addresses, 1)


def touched(operation: Operation) -> Array:
    """The address of every byte that the operation touched, once each and in their order."""
    return np.unique(_bytes(operation.addresses, operation.site.nbytes))


def _now(site: Site, addresses: Array) -> Array:
    """What elements hold, as the executor holds it."""
    plain = np.ones(addresses.shape, np.bool_)
    return Memory().load(site, addresses, plain, None, None)
