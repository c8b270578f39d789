"""The memory of a launch that is observed, and of one that the sanitizer watches: observers are shown every access before and after it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statecheck.kernels import launch
from statecheck.kernels.memory import Memory, is_run, read, store_run, was_exchanged, write
from statecheck.kernels.sanitizer.touches import Observer, Touch
from statecheck.kernels.sanitizer.watch import Sanitizer
from statecheck.kernels.source.sites import Site

Array = NDArray[Any]
_lowest, _highest = np.minimum.reduce, np.maximum.reduce


class ObservedMemory(Memory):
    """Shows the observers what a launch does, one after the other."""

    def __init__(self, *observers: Observer) -> None:
        super().__init__()
        self.observers = [*observers]

    def _before(self, touch: Touch) -> None:
        for observer in self.observers:
            observer.before(touch)

    def _after(self, touch: Touch) -> None:
        for observer in self.observers:
            observer.after(touch)

    def load1(self, site: Site, pointer: int, origin: Any) -> Any:
        touch = self._of_scalar("load", site, pointer, origin)
        self._before(touch)
        value = super().load1(site, pointer, origin)
        self._after(touch)
        return value

    def load(self, site: Site, pointers: Array, mask: Array | None, other: Any, origin: Any) -> Array:
        touch = self._of_tile("load", site, pointers, mask, origin)
        self._before(touch)
        if touch.is_run:
            value = self.load_run(site, touch.low, pointers.shape, mask, other)
        else:
            value = read(site.element, pointers, mask, other)
        self._after(touch)
        return value

    def store1(self, site: Site, pointer: int, value: Any, origin: Any) -> None:
        touch = self._of_scalar("store", site, pointer, origin)
        touch.reads, touch.writes = False, True
        touch.data = value
        self._before(touch)
        super().store1(site, pointer, value, origin)
        self._after(touch)

    def store(self, site: Site, pointers: Array, values: Array, mask: Array | None, origin: Any) -> None:
        touch = self._of_tile("store", site, pointers, mask, origin, values)
        touch.reads, touch.writes = False, True
        self._before(touch)
        if touch.is_run and site.element != "bf16":
            store_run(touch.low, values if mask is None else values[mask])
        else:
            write(site.element, pointers, values, mask)
        self._after(touch)

    def rmw(self, site: Site, pointer: Any, value: Any, mask: Any, origin: Any) -> Any:
        touch = self._atomic(site, pointer, mask, origin)
        touch.reads, touch.writes = site.operation != "store", site.operation not in ("load", "poll")
        self._before(touch)
        result = super().rmw(site, pointer, value, mask, origin)
        self._after(touch)
        return result

    def cas(self, site: Site, pointer: Any, expected: Any, value: Any, origin: Any) -> Any:
        touch = self._atomic(site, pointer, None, origin)
        touch.writes = True
        self._before(touch)
        result = super().cas(site, pointer, expected, value, origin)
        # One that finds another value changes nothing, and so publishes nothing.
        touch.writes = was_exchanged(site, result, expected)
        touch.releases = touch.releases and touch.writes
        self._after(touch)
        return result

    def _atomic(self, site: Site, pointer: Any, mask: Any, origin: Any) -> Touch:
        if np.ndim(pointer):
            touch = self._of_tile("atomic", site, pointer, mask, origin)
        else:
            touch = self._of_scalar("atomic", site, pointer, origin)
            if mask is not None and not mask:
                touch.addresses = touch.addresses[:0]
        touch.acquires = site.sem in ("acquire", "acq_rel")
        touch.releases = site.sem in ("release", "acq_rel")
        return touch

    def _of_scalar(self, kind: str, site: Site, pointer: int, origin: Any) -> Touch:
        nbytes = site.nbytes
        # A scalar address is a Python integer, which does not overflow. Tiles of addresses are int64 and wrap around; so does this,
        # to be compared with the bounds of views.
        if not -0x8000000000000000 <= pointer < 0x8000000000000000:
            pointer = (pointer + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000
        addresses = np.array([pointer], np.int64)
        return Touch(
            kind,
            self.program,
            site.line,
            nbytes,
            addresses,
            pointer,
            pointer + nbytes,
            None,
            (),
            origin,
        )

    def _of_tile(
        self, kind: str, site: Site, pointers: Array, mask: Array | None, origin: Any, values: Any = None
    ) -> Touch:
        lanes = None if mask is None or np.count_nonzero(mask) == mask.size else mask

        def active(tile: Array) -> Array:
            return tile.reshape(-1) if lanes is None else tile[lanes]

        addresses = active(pointers)
        if origin is not None and type(origin) is not int:
            origin = active(np.broadcast_to(origin, pointers.shape))
        if lanes is not None and values is not None:
            values = values[lanes]
        low, high, neighbours = _bounds(addresses, site.nbytes)
        return Touch(
            kind, self.program, site.line, site.nbytes, addresses, low, high, lanes, pointers.shape, origin, values,
            is_run=neighbours,
        )  # fmt: skip


def _bounds(addresses: Array, nbytes: int) -> tuple[int, int, bool]:
    """The first byte of the active lanes, the byte behind the last one, and whether their elements are neighbours."""
    if not len(addresses):
        return 0, 0, False
    if is_run(addresses, nbytes):
        return int(addresses[0]), int(addresses[-1]) + nbytes, True
    return int(_lowest(addresses)), int(_highest(addresses)) + nbytes, False


@contextlib.contextmanager
def watching(sanitizer: Callable[[], Sanitizer]) -> Iterator[None]:
    """Every access of an executed launch in this context is shown to the sanitizer before it is made.

    Args:
        sanitizer: is asked for it at each launch.
    """

    def memory(launched: launch.Launched) -> WatchedMemory:
        return WatchedMemory(sanitizer(), launched)

    with launch.running(memory=memory):
        yield


class WatchedMemory(ObservedMemory):
    """Tells a sanitizer where pointers come from, and where launches and barriers are."""

    def __init__(self, watch: Sanitizer, launched: launch.Launched) -> None:
        super().__init__(watch)
        self._watch = watch
        watch.begin_launch(launched.kernel, prod(launched.grid))
        provenance = watch.provenance
        self._arguments = [
            provenance.view(argument, name) if hasattr(argument, "data_ptr") else None
            for argument, name in zip(launched.arguments, launched.names, strict=True)
        ]
        self._at = provenance.at

    def argument(self, number: int) -> int | None:
        return self._arguments[number]

    def origin_of(self, value: int) -> Any:
        return self._at(value)

    def origins_of(self, values: Array) -> Any:
        return self._watch.provenance.among(values)

    def check_offset(self, pointer: Any, offset: Any, exact: Any, place: tuple[str, int]) -> Any:
        """The pointer, but in lanes whose offset has overflowed, an address that tells the sanitizer of it when it is used."""
        wrong = exact != offset
        if not np.any(wrong):
            return pointer
        address = self._watch.overflowed(place, int(np.max(np.abs(exact))))
        return address if np.ndim(pointer) == 0 else np.where(wrong, address, pointer)

    def end(self) -> None:
        self._watch.end_launch()

    def barrier(self) -> None:
        self._watch.barrier(self.program)
