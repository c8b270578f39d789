"""What a launch writes: noted before each write, so that it can be taken back, and by whom."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statecheck.kernels.memory import Program
from statecheck.kernels.private import native_interpreter as native
from statecheck.kernels.sanitizer.touches import Observer, Touch

Bytes = NDArray[np.uint8]
Addresses = NDArray[np.int64]


class Writer(NamedTuple):
    """A program, and the line in which it stores ("store") or changes something atomically ("atomic")."""

    kind: str
    program: Program
    place: tuple[str, int]


class WrittenBytes(NamedTuple):
    """The bytes that a launch has written, by ascending addresses: what they hold, and the number of their last writer."""

    addresses: Addresses
    contents: Bytes
    writers: NDArray[np.int64]

    def put_back(self) -> None:
        """Write all of it again."""
        write_bytes(self.addresses, self.contents)

    def over(self, addresses: Addresses, contents: Bytes) -> Bytes:
        """These contents, but for the bytes that the launch has written; `addresses` have to be sorted."""
        result = contents.copy()
        if len(addresses):
            at = np.minimum(np.searchsorted(addresses, self.addresses), len(addresses) - 1)
            there = addresses[at] == self.addresses
            result[at[there]] = self.contents[there]
        return result

    def first_difference(self, other: WrittenBytes) -> int | None:
        """The first byte in which they differ, where memory holds what it did before either."""
        addresses = np.union1d(self.addresses, other.addresses)
        before = read_bytes(addresses)
        differs = self.over(addresses, before) != other.over(addresses, before)
        return int(addresses[differs.argmax()]) if differs.any() else None

    def writer(self, address: int) -> int | None:
        """The number of the last writer of a byte."""
        at = int(np.searchsorted(self.addresses, address))
        here = at < len(self.addresses) and self.addresses[at] == address
        return int(self.writers[at]) if here else None


class Journal(Observer):
    """The writes of a launch in the order in which they were made."""

    def __init__(self) -> None:
        self.writers: list[Writer] = []
        self._addresses: list[Addresses] = []
        self._before: list[Bytes] = []

    def before(self, touch: Touch) -> None:
        if not touch.writes:
            return
        addresses = (touch.addresses.reshape(-1, 1) + np.arange(touch.nbytes)).reshape(-1)
        self.writers.append(Writer(touch.kind, touch.program, touch.place))
        self._addresses.append(addresses)
        self._before.append(read_bytes(addresses))

    def take_back(self) -> WrittenBytes:
        """Have memory hold what it held before; what was written instead."""
        everything = np.concatenate([np.zeros(0, np.int64), *self._addresses])
        numbers = np.repeat(np.arange(len(self._addresses)), [len(some) for some in self._addresses])
        # The last of several writes to a byte is the first one from behind.
        addresses, last = np.unique(everything[::-1], return_index=True)
        written = WrittenBytes(addresses, read_bytes(addresses), numbers[::-1][last])
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
