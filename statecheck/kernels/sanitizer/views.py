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


# Where pointers come from: every pointer carries the views it may point into, through all that kernels do with it.
#
# What it carries is the number of an origin, a tuple of views, or an array of such numbers where the elements of a tile differ.
# The addresses themselves stay what they are, so that kernels compare and subtract them as ever. What loses its origin is
# looked up by its address later.


Origin = int | Integers
UNKNOWN = -1


class Provenance:
    """The registered views, and the origins of the pointers of a launch."""

    def __init__(self) -> None:
        self._registered: dict[Any, TensorView] = {}
        self.arguments: list[TensorView] = []
        self.origins: list[tuple[TensorView, ...]] = []
        self._numbers: dict[tuple[TensorView, ...], int] = {}
        self._starts: dict[int, tuple[TensorView, ...]] = {}
        self._sorted: Integers | None = None

    @property
    def registered(self) -> list[TensorView]:
        """The latest last."""
        return list(self._registered.values())

    def register(self, view: TensorView) -> None:
        self.forget(view)
        self._registered[view.key] = view
        if view.base:
            self._starts[view.base] = (*self._starts.get(view.base, ()), view)
            self._sorted = None

    def is_registered(self, view: TensorView) -> bool:
        return view.key in self._registered

    def forget(self, view: TensorView) -> bool:
        known = self._registered.pop(view.key, None)
        if known is None:
            return False
        if known.base:
            left = tuple(view for view in self._starts[known.base] if view is not known)
            self._starts |= {known.base: left}
            if not left:
                del self._starts[known.base]
            self._sorted = None
        return True

    def _addresses(self) -> Integers:
        """The first bytes of the registered views, in order."""
        if self._sorted is None:
            self._sorted = np.array(sorted(self._starts), np.int64)
        return self._sorted

    def begin_launch(self) -> None:
        self.arguments, self.origins, self._numbers = [], [], {}

    def known(self) -> list[TensorView]:
        return [*self.arguments, *self._registered.values()]

    def number(self, views: tuple[TensorView, ...]) -> int:
        if views not in self._numbers:
            self._numbers[views] = len(self.origins)
            self.origins.append(views)
        return self._numbers[views]

    def view(self, argument: Any, name: str) -> int:
        """A tensor that a launch is handed: the origin of pointers made of it."""
        view = view_of(argument, name)
        view = self._registered.get(view.key, view)
        self.arguments.append(view)
        return self.number((view,))

    def at(self, address: int) -> int | None:
        """Integers that are the address of a registered tensor point into it."""
        views = self._starts.get(address)
        return self.number(views) if views else None

    def among(self, addresses: Integers) -> Integers | None:
        """The same for each of many; None where none of them is one."""
        starts = self._addresses()
        if not len(starts) or not addresses.size:
            return None
        if int(addresses.max()) < starts[0] or int(addresses.min()) > starts[-1]:
            return None
        at = np.minimum(np.searchsorted(starts, addresses), len(starts) - 1)
        found = starts[at] == addresses
        if not found.any():
            return None
        numbers = [self.number(self._starts[int(start)]) for start in starts]
        return np.where(found, np.array(numbers)[at], UNKNOWN)
