"""A tensor as plain data: its elements, and the memory that it is a view of."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Literal

Place = Literal["device", "host"]
CANARY = 0xA5
"""What every byte of the memory around a tensor holds."""
ITEM_SIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}
"""Bytes of an element, by the name of its torch dtype."""


@dataclass(frozen=True)
class Tensor:
    """A tensor together with the memory that it is a view of.

    `elements` is the whole storage in elements (integer and bool dtypes; bytes say the same of "uint8" in less
    space), or None where the contents do not matter, or are written through a `View` (state pools that are too large to
    write out); `shape`, `strides` and `offset`, in elements, select the view.
    """

    dtype: str
    shape: tuple[int, ...]
    elements: tuple[Any, ...] | bytes | None
    """Ints; floats only in what a subject returned."""
    strides: tuple[int, ...] | None = None
    offset: int = 0
    on: Place = "device"

    @property
    def contiguous_strides(self) -> tuple[int, ...]:
        return dense_strides(self.shape)

    @property
    def storage_size(self) -> int:
        """Elements that the storage needs to hold the view, or holds."""
        if self.elements is not None:
            return len(self.elements)
        if 0 in self.shape:
            return self.offset
        reach = zip(self.shape, self.strides or self.contiguous_strides, strict=True)
        return self.offset + 1 + sum((size - 1) * stride for size, stride in reach)

    def positions(self) -> Iterator[int]:
        """Storage position of each element of the view, in row-major order."""
        starts, length = self.runs()
        return itertools.chain.from_iterable(range(start, start + length) for start in starts)

    def runs(self) -> tuple[tuple[int, ...], int]:
        """Where each run of neighbouring elements of the view begins in the storage, in row-major order; their length."""
        return _runs(self.shape, self.strides or self.contiguous_strides, self.offset)

    def values(self) -> tuple[int, ...]:
        """The view's elements in row-major order."""
        if self.elements is None:
            raise ValueError("elements = None, but should be known to read a tensor's values")
        if self.is_dense:
            return tuple(self.elements)
        starts, length = self.runs()
        runs = [self.elements[start : start + length] for start in starts]
        assert all(len(run) == length for run in runs), f"{self} reaches beyond its storage"
        return tuple(itertools.chain.from_iterable(runs))

    @property
    def is_dense(self) -> bool:
        """Whether the storage holds the view's elements, in row-major order, and nothing else."""
        return self.strides is None and self.offset == 0 and self.storage_size == prod(self.shape)

    def rows(self) -> tuple[tuple[int, ...], ...]:
        """A 2-D view's elements, row by row."""
        flat, width = self.values(), self.shape[1]
        return tuple(flat[row * width : (row + 1) * width] for row in range(self.shape[0]))

    def dense(self) -> Tensor:
        """The same values without the memory around them."""
        kept = self.elements if self.is_dense else self.values()
        return Tensor(self.dtype, self.shape, kept, on=self.on)

    def storage(self) -> Tensor:
        """The whole storage as a vector, which is how observed memory is described; of "uint8" as bytes."""
        assert self.elements is not None
        kept = bytes(self.elements) if self.dtype == "uint8" else self.elements
        if kept is self.elements and self.is_dense and len(self.shape) == 1:
            return self
        return Tensor(self.dtype, (len(kept),), kept, on=self.on)

    def on_host(self) -> Tensor:
        return replace(self, on="host")


@lru_cache(4096)
def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without gaps, in row-major order."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _runs(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> tuple[tuple[int, ...], int]:
    if 0 in shape:
        return (), 0
    (axes, length), starts = outer_axes(shape, strides), [offset]
    for size, stride in axes:
        starts = [start + index * stride for start in starts for index in range(size)]
    return tuple(starts), length


def outer_axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[list[tuple[int, int]], int]:
    """Size and stride of the axes that repeat a run of neighbouring elements, and the run's length."""
    axes, length = list(zip(shape, strides, strict=False)), 1
    while axes and (axes[-1][0] == 1 or axes[-1][1] == length):
        length *= axes.pop()[0]
    return axes, length


def described(dtype: str, shape: tuple[int, ...], raw: bytes) -> Tensor:
    """A view's elements in the form in which they are observed: those of a float type as the bytes that they are."""
    if "float" in dtype:
        return Tensor("uint8", (len(raw),), raw)
    return Tensor(dtype, shape, as_elements(raw, dtype))


def as_elements(raw: bytes, dtype: str) -> tuple[int, ...] | bytes:
    """The integers that `raw` holds; bytes stay bytes where the type is "uint8".

    Raises:
        ValueError: the type is a float type.
    """
    if dtype == "uint8":
        return raw
    return struct.unpack(_format(dtype, len(raw) // ITEM_SIZES[dtype]), raw)


def as_bytes(elements: tuple[int, ...] | bytes, dtype: str) -> bytes:
    """The memory of `elements`; the inverse of `as_elements`.

    Raises:
        ValueError: the type is a float type, and the elements are not bytes already.
    """
    if isinstance(elements, bytes):
        return elements
    return struct.pack(_format(dtype, len(elements)), *elements)


def _format(dtype: str, count: int) -> str:
    """How `struct` spells so many elements."""
    if "float" in dtype:
        raise ValueError(
            f"dtype = {dtype!r}, but should be an integer type, or its elements bytes [as_bytes]"
        )
    code = {1: "b", 2: "h", 4: "i", 8: "q"}[ITEM_SIZES[dtype]]
    return f"<{count}{code if dtype[0] == 'i' else code.upper()}"


def _tensor(dtype: str, values: Sequence[Any]) -> Tensor:
    if values and isinstance(values[0], (list, tuple)):
        flat = tuple(itertools.chain.from_iterable(values))
        return Tensor(dtype, (len(values), len(values[0])), flat)
    return Tensor(dtype, (len(values),), tuple(values))


def int32(values: Sequence[Any]) -> Tensor:
    """A dense int32 vector, or matrix when the values are rows."""
    return _tensor("int32", values)


def int64(values: Sequence[Any]) -> Tensor:
    """A dense int64 vector, or matrix when the values are rows."""
    return _tensor("int64", values)


def boolean(values: Sequence[bool]) -> Tensor:
    """A dense bool vector."""
    return _tensor("bool", [int(value) for value in values])
