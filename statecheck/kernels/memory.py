"""The memory that executed kernels see: this process's, by its addresses. Observers of a launch, such as the sanitizer, are shown every access
before and after it is made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import memmove, string_at
from functools import cache, lru_cache, partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statecheck.kernels.arithmetic import atomic, plain
from statecheck.kernels.private import native_interpreter as native
from statecheck.kernels.sanitizer.touches import Observer, Touch
from statecheck.kernels.sanitizer.watch import Sanitizer
from statecheck.kernels.source.ir import dtype_of, stored_dtype
from statecheck.kernels.source.sites import Site

Array = NDArray[Any]
Program = tuple[int, int, int]

_SCALARS: dict[str, Any] = {
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "ptr": ctypes.c_int64,
    "i1": ctypes.c_bool,
}


class Memory:
    """Loads and stores for one launch, and nothing else: what watches them is a subclass. `switch` says whose turn it is."""

    check_offset: Callable[[Any, Any, Any, tuple[str, int]], Any] | None = None
    """Is handed a pointer, its offset, and what the offset is without overflows; for those who watch."""

    def __init__(self) -> None:
        self.program: Program = (0, 0, 0)

    def switch(self, program: Program) -> None:
        """From now on this program's accesses come."""
        self.program = program

    def end(self) -> None:
        """All programs have ended."""

    def argument(self, number: int) -> int | None:  # noqa: ARG002 - for those who watch
        """Where pointers made of a parameter come from."""
        return None

    def origin_of(self, value: int) -> Any:  # noqa: ARG002 - for those who watch
        """Where a pointer made of this number comes from, if that is known."""
        return None

    def origins_of(self, values: Array) -> Any:  # noqa: ARG002 - for those who watch
        """The same for each number of a tile."""
        return None

    def load1(self, site: Site, pointer: int, origin: Any) -> Any:  # noqa: ARG002 - for those who watch
        """One element."""
        kind = _SCALARS.get(site.element)
        if kind is not None:
            return kind.from_address(pointer & 0xFFFFFFFFFFFFFFFF).value
        return read(site.element, np.array([pointer], np.int64), None, None)[0]

    def load(self, site: Site, pointers: Array, mask: Array | None, other: Any, origin: Any) -> Array:  # noqa: ARG002 - for those who watch
        """The active lanes' elements, and `other` in the rest."""
        active = (pointers if mask is None else pointers[mask]).reshape(-1)
        if not len(active):
            return filled(site.element, pointers.shape, other)
        if not is_run(active, site.nbytes):
            return read(site.element, pointers, mask, other)
        return self.load_run(site, int(active[0]), pointers.shape, mask, other)

    def load_run(
        self, site: Site, address: int, shape: tuple[int, ...], mask: Array | None, other: Any
    ) -> Array:
        """The same where the active lanes' elements are neighbours."""
        count = prod(shape) if mask is None else int(np.count_nonzero(mask))
        # `string_at` copies: what a program has loaded stays what it was, whatever is stored there later.
        raw: Array = np.frombuffer(string_at(address, count * site.nbytes), site.stored)
        if site.element == "bf16":
            raw = _unpacked(raw)
        if count == prod(shape):
            return raw.reshape(shape)
        result = filled(site.element, shape, other)
        result[mask] = raw
        return result

    def store1(self, site: Site, pointer: int, value: Any, origin: Any) -> None:  # noqa: ARG002 - for those who watch
        kind = _SCALARS.get(site.element)
        if kind is not None:
            kind.from_address(pointer & 0xFFFFFFFFFFFFFFFF).value = value
            return
        tile = np.array([value], dtype_of(site.element))
        write(site.element, np.array([pointer], np.int64), tile, None)

    def store(self, site: Site, pointers: Array, values: Array, mask: Array | None, origin: Any) -> None:  # noqa: ARG002 - for those who watch
        if site.element != "bf16":
            active = (pointers if mask is None else pointers[mask]).reshape(-1)
            if not len(active):
                return
            if is_run(active, site.nbytes):
                store_run(int(active[0]), values if mask is None else values[mask])
                return
        write(site.element, pointers, values, mask)

    def rmw(self, site: Site, pointer: Any, value: Any, mask: Any, origin: Any) -> Any:  # noqa: ARG002 - for those who watch
        """Change memory atomically; what was there before."""
        return change(site, pointer, value, mask)

    def cas(self, site: Site, pointer: Any, expected: Any, value: Any, origin: Any) -> Any:  # noqa: ARG002 - for those who watch
        """Store a value where the expected one stands; what was there before."""
        return exchange(site, pointer, expected, value)

    def barrier(self) -> None:
        """All lanes of the program have come here."""


def is_run(addresses: Array, nbytes: int) -> bool:
    """Whether elements of so many bytes are neighbours, from the first address of a list to the last."""
    first, count = addresses[0], len(addresses)
    if addresses[-1] - first != (count - 1) * nbytes:
        return False
    # The bytes of both arrays: comparing elements and asking whether all agree takes twice as long.
    return bool((addresses - first).tobytes() == _offsets(count, nbytes))


@lru_cache(256)
def _offsets(count: int, nbytes: int) -> bytes:
    return (np.arange(count, dtype=np.int64) * nbytes).tobytes()


def store_run(address: int, values: Array) -> None:
    """Store elements one behind the other."""
    memmove(address, values.tobytes(), values.nbytes)


def filled(element: str, shape: tuple[int, ...], other: Any) -> Array:
    """A tile of a load's `other`: a number, a tile, or None for zeros."""
    if other is None:
        return np.zeros(shape, dtype_of(element))
    result: Array = np.empty(shape, dtype_of(element))
    result[...] = other
    return result


def read(element: str, pointers: Array, mask: Array | None, other: Any) -> Array:
    """Elements at addresses (int64): those of active lanes, and `other` in the rest; of the pointers' shape."""
    dtype = stored_dtype(element)
    shape = pointers.shape
    if mask is None:
        mask = _everywhere(shape)
    if other is None or (type(other) is int and other == 0):
        rest = _nothing(shape, dtype)
    else:
        rest = np.empty(shape, dtype)
        rest[...] = _packed(other) if element == "bf16" else other
    found: Array = native.load(_own(pointers).view(np.uint64), _own(mask), rest, dtype)
    return _unpacked(found) if element == "bf16" else found


def _own(array: Array) -> Array:
    # Before 3.7 Triton takes no array that it could not write to.
    return array if array.flags.writeable else array.copy()


@lru_cache(256)
def _everywhere(shape: tuple[int, ...]) -> Array:
    return np.ones(shape, np.bool_)


@lru_cache(256)
def _nothing(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.zeros(shape, dtype)


def write(element: str, pointers: Array, values: Array, mask: Array | None) -> None:
    """Store the active lanes' elements at addresses (int64)."""
    raw = _packed(values) if element == "bf16" else values
    active = _everywhere(pointers.shape) if mask is None else _own(mask)
    native.store(_own(pointers).view(np.uint64), _own(raw), active)


def _packed(values: Any) -> Array:
    """bf16 as its 16 bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits >> np.uint32(16)).astype(np.uint16).reshape(np.shape(values))


def _unpacked(raw: Array) -> Array:
    return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)


_WITHOUT_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "load": lambda old, _: old,
    "poll": lambda old, _: old,
    "store": lambda _, new: new,
}


@cache
def change_of(operation: str, element: str) -> Callable[[Any, Any], Any] | None:
    """What an atomic operation makes of what it finds and its operand; None if the operation is not known."""
    return _WITHOUT_ARITHMETIC.get(operation) or atomic(operation, element)


def change(site: Site, pointer: Any, value: Any, mask: Any) -> Any:
    """An atomic read-modify-write, lane after lane, as lanes may name the same place."""
    function = change_of(site.operation, site.element)
    assert function is not None
    if np.ndim(pointer) == 0:
        masked_out = mask is not None and not mask
        return value if masked_out else _replace(site, pointer, partial(_with_operand, function, value))
    result = np.zeros(pointer.shape, dtype_of(site.element))
    for at in zip(*np.nonzero(np.ones(pointer.shape) if mask is None else mask), strict=True):
        result[at] = _replace(site, pointer[at], partial(_with_operand, function, plain(value[at])))
    return result


def _with_operand(function: Callable[[Any, Any], Any], operand: Any, old: Any) -> Any:
    return function(old, operand)


def exchange(site: Site, pointer: Any, expected: Any, value: Any) -> Any:
    """An atomic compare and swap."""
    if np.ndim(pointer) == 0:
        return _exchange_one(site, pointer, expected, value)
    result = np.zeros(pointer.shape, dtype_of(site.element))
    for at in np.ndindex(pointer.shape):
        result[at] = _exchange_one(site, pointer[at], expected[at], value[at])
    return result


def _exchange_one(site: Site, pointer: Any, expected: Any, value: Any) -> Any:
    dtype = dtype_of(site.element)
    return _replace(site, pointer, lambda old: value if same_bits(old, expected, dtype) else old)


def _replace(site: Site, pointer: Any, change: Callable[[Any], Any]) -> Any:
    """Store what `change` makes of one element; what was there before."""
    lane = np.array([pointer], np.int64)
    old = read(site.element, lane, None, None)
    write(site.element, lane, np.array([change(plain(old[0]))]).astype(old.dtype), None)
    return plain(old[0])


def same_bits(first: Any, second: Any, dtype: np.dtype[Any]) -> bool:
    """A GPU compares bits, also those of floats."""
    return bool(np.array(first, dtype).tobytes() == np.array(second, dtype).tobytes())


def was_exchanged(site: Site, found: Any, expected: Any) -> bool:
    """Whether any lane of a compare and swap found what it expected: otherwise it has only read."""
    dtype = dtype_of(site.element)
    old, wanted = np.asarray(found, dtype), np.broadcast_to(np.asarray(expected, dtype), np.shape(found))
    lanes = zip(old.reshape(-1), wanted.reshape(-1), strict=True)
    return any(same_bits(first, second, dtype) for first, second in lanes)


# A launch that is observed, and one that the sanitizer watches.

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
        self._before(touch)
        super().store1(site, pointer, value, origin)
        touch.data = np.frombuffer(string_at(pointer, site.nbytes), np.uint8)
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
        if values is not None:
            values = _packed(values) if site.element == "bf16" else values
            values = values if lanes is None else values[lanes]
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


class WatchedMemory(ObservedMemory):
    """Tells a sanitizer where pointers come from, and where launches and barriers are."""

    def __init__(
        self, watch: Sanitizer, kernel: str, grid: Program, names: Sequence[str], arguments: Sequence[Any]
    ) -> None:
        super().__init__(watch)
        self._watch = watch
        watch.begin_launch(kernel, prod(grid), arguments)
        provenance = watch.provenance
        self._arguments = [
            provenance.view(argument, name) if hasattr(argument, "data_ptr") else None
            for argument, name in zip(arguments, names, strict=True)
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
