"""What a launch writes: noted before each write, so that it can be taken back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statecheck.kernels.private import native_interpreter as native
from statecheck.kernels.sanitizer.touches import Observer, Touch

Bytes = NDArray[np.uint8]
Addresses = NDArray[np.int64]


class WrittenBytes(NamedTuple):
    """The bytes that a launch has written, by ascending addresses, and what they hold."""

    addresses: Addresses
    contents: Bytes

    def over(self, addresses: Addresses, contents: Bytes) -> Bytes:
        """These contents, but for the bytes that the launch has written; `addresses` have to be sorted."""
        result = contents.copy()
        if len(addresses):
            at = np.minimum(np.searchsorted(addresses, self.addresses), len(addresses) - 1)
            there = addresses[at] == self.addresses
            result[at[there]] = self.contents[there]
        return result

    def leaves_as(self, other: WrittenBytes) -> bool:
        """Whether both leave the same bytes, where memory holds what it did before either."""
        addresses = np.union1d(self.addresses, other.addresses)
        before = read_bytes(addresses)
        return np.array_equal(self.over(addresses, before), other.over(addresses, before))


class Journal(Observer):
    """The writes of a launch in the order in which they were made."""

    def __init__(self) -> None:
        self._addresses: list[Addresses] = []
        self._before: list[Bytes] = []

    def before(self, touch: Touch) -> None:
        if not touch.writes:
            return
        addresses = (touch.addresses.reshape(-1, 1) + np.arange(touch.nbytes)).reshape(-1)
        self._addresses.append(addresses)
        self._before.append(read_bytes(addresses))

    def take_back(self) -> WrittenBytes:
        """Have memory hold what it held before; what was written instead."""
        addresses = np.unique(np.concatenate([np.zeros(0, np.int64), *self._addresses]))
        written = WrittenBytes(addresses, read_bytes(addresses))
        for some, before in zip(self._addresses[::-1], self._before[::-1], strict=True):
            write_bytes(some, before)
        return written


def read_bytes(addresses: Addresses) -> Bytes:
    """What this process's memory holds at these addresses."""
    everywhere, nothing = np.ones(addresses.shape, np.bool_), np.zeros(addresses.shape, np.uint8)
    result: Bytes = native.load(addresses.view(np.uint64), everywhere, nothing, np.dtype(np.uint8))
    return result


def write_bytes(addresses: Addresses, contents: Bytes) -> None:
    """Have this process's memory hold these bytes."""
    native.store(addresses.view(np.uint64), contents, np.ones(addresses.shape, np.bool_))
