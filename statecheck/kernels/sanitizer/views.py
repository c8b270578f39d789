"""Which bytes belong to a view of strided memory.

A view's bytes are runs: its innermost dimensions that leave no gap make one run, its outer dimensions repeat that.
Offsets are taken apart by the outer dimensions, largest stride first. That is exact where each stride reaches past
everything inside it; dimensions that interleave (sliding windows, overlapping pages) are written out as intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


class StridedBytes:
    """The bytes of a view relative to its first element: `outer` dimensions (count, stride) of `starts`..`ends`."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> None:
        self.shape, self.strides, self.itemsize = shape, strides, itemsize
        self.outer: list[tuple[int, int]] = []
        empty = 0 in shape
        self.starts: Integers = np.zeros(0 if empty else 1, np.int64)
        self.ends: Integers = self.starts + itemsize
        if not empty:
            self._take_in_dimensions()
        self.span = int(self._inner_span() + sum((n - 1) * s for n, s in self.outer)) if not empty else 0
        self.flat = not self.outer and len(self.starts) == 1
        self.run = int(self.ends[0]) if len(self.starts) == 1 else 0
        """Bytes of the inner run, if there is one alone."""

    def _take_in_dimensions(self) -> None:
        stepping = ((s, n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1 and s)
        for stride, count in sorted(stepping):
            span = self._inner_span() + sum((n - 1) * s for n, s in self.outer)
            one_run = not self.outer and len(self.starts) == 1
            if one_run and stride <= span:
                self.ends = self.ends + (count - 1) * stride
            elif stride > span:
                self.outer.insert(0, (count, stride))
            else:
                self._write_out(count, stride)

    def _inner_span(self) -> int:
        return int(self.ends[-1])

    def _write_out(self, count: int, stride: int) -> None:
        steps: Integers = np.arange(count, dtype=np.int64) * stride
        for n, s in self.outer:
            steps = np.add.outer(steps, np.arange(n, dtype=np.int64) * s).reshape(-1)
        self.outer = []
        starts = np.add.outer(steps, self.starts).reshape(-1)
        ends = np.add.outer(steps, self.ends).reshape(-1)
        self.starts, self.ends = _merged(starts, ends)

    def inside(self, offsets: Integers, nbytes: int) -> Booleans:
        """For every offset, whether the view has all of the `nbytes` bytes from there."""
        if not self.span:
            return np.zeros(offsets.shape, np.bool_)
        rest = offsets
        for count, stride in self.outer:
            rest = rest - np.minimum(np.maximum(rest // stride, 0), count - 1) * stride
        if len(self.starts) == 1:
            return (rest >= 0) & (rest + nbytes <= self.ends[0])
        run = np.maximum(np.searchsorted(self.starts, rest, "right") - 1, 0)
        return (rest >= self.starts[run]) & (rest + nbytes <= self.ends[run])

    def has(self, offset: int, nbytes: int) -> bool:
        """The same for one offset, quicker."""
        if len(self.starts) != 1:
            return bool(self.inside(np.array([offset], np.int64), nbytes)[0])
        for count, stride in self.outer:
            offset -= min(max(offset // stride, 0), count - 1) * stride
        return offset >= 0 and offset + nbytes <= self.run

    def index(self, offset: int) -> tuple[int, ...] | None:
        """The element at an offset; outside the view by counting its outermost dimension on, None between elements."""
        if not self.shape:
            return () if 0 <= offset < self.itemsize else None
        index = [0] * len(self.shape)
        stepping = [i for i, n in enumerate(self.shape) if self.strides[i] and n > 1]
        # Without a dimension to count on, the first one will do.
        order = sorted(stepping, key=lambda i: -self.strides[i]) or [i for i in (0,) if self.strides[i]]
        for place, i in enumerate(order):
            count = offset // self.strides[i]
            index[i] = count if place == 0 else min(count, self.shape[i] - 1)
            offset -= index[i] * self.strides[i]
        return tuple(index) if 0 <= offset < self.itemsize else None


def _merged(starts: Integers, ends: Integers) -> tuple[Integers, Integers]:
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate([[True], starts[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return starts[first], reach[last]


geometry_of = lru_cache(4096)(StridedBytes)


@dataclass(frozen=True, eq=False)
class TensorView:
    """A tensor as kernels see it: where it starts, what belongs to it, and what it is called."""

    name: str
    base: int
    geometry: StridedBytes
    tensor: Any = None
    """Kept, so that its memory is not used again as long as the view is known."""

    end: int = field(init=False)

    def __post_init__(self) -> None:
        # Asked for by every access.
        object.__setattr__(self, "end", self.base + self.geometry.span)

    @property
    def key(self) -> tuple[int, StridedBytes]:
        return self.base, self.geometry

    def inside(self, addresses: Integers, nbytes: int) -> Booleans:
        return self.geometry.inside(addresses - self.base, nbytes)

    def holds(self, low: int, high: int, addresses: Integers, nbytes: int) -> bool:
        """Whether all accesses are inside, where `low` and `high` are the smallest and largest of the addresses."""
        if low < self.base or high + nbytes > self.end:
            return False
        if self.geometry.flat:
            return True
        # Mostly all of them are in one run of bytes, and then nothing has to be asked of each.
        if low == high or high + nbytes - low <= self.geometry.run:
            if self.geometry.has(low - self.base, high + nbytes - low):
                return True
            if low == high:
                return False
        return bool(self.inside(addresses, nbytes).all())

    def index(self, address: int) -> tuple[int, ...] | None:
        return self.geometry.index(address - self.base)


def view_of(tensor: Any, name: str, *, keep: bool = False) -> TensorView:
    """The view that a tensor is, or one reinterpreted by Triton."""
    tensor = getattr(tensor, "base", tensor) if not hasattr(tensor, "untyped_storage") else tensor
    geometry = _laid_out(tensor.shape, tensor.stride(), tensor.element_size())
    return TensorView(name, tensor.data_ptr(), geometry, tensor if keep else None)


@lru_cache(4096)
def _laid_out(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> StridedBytes:
    return geometry_of(tuple(shape), tuple(stride * size for stride in strides), size)
