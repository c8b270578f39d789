"""The memory that executed kernels see: this process's, by its addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import memmove, string_at
from functools import cache, lru_cache, partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statecheck.kernels.arithmetic import atomic, plain
from statecheck.kernels.private import native_interpreter as native
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
